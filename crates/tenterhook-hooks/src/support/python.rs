//! Runs Python in tests, to read files with other implementations. Tests of other crates include this file.

#![allow(dead_code)] // each crate uses a part of it

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// A Python with these modules. CI installs one and sets `TENTERHOOK_PYTHON`.
pub(crate) fn with(modules: &str) -> Option<String> {
    let python = std::env::var("TENTERHOOK_PYTHON").unwrap_or_else(|_| "python3".into());
    let has_them = Command::new(&python).args(["-c", &format!("import {modules}")]).output();
    if has_them.is_ok_and(|output| output.status.success()) {
        return Some(python);
    }
    assert!(std::env::var_os("CI").is_none(), "CI must have a Python with {modules}");
    eprintln!("SKIPPED: there is no Python with {modules} (name one in TENTERHOOK_PYTHON)");
    None
}

/// The output of a script as JSON; `sys.argv[1]` is this path.
pub(crate) fn run(python: &str, script: &str, path: &Path) -> serde_json::Value {
    let output = Command::new(python).args(["-c", script]).arg(path).output().expect("python runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// The output of a script with this standard input, as JSON.
pub(crate) fn answer(python: &str, script: &str, input: &str) -> serde_json::Value {
    let mut command = Command::new(python);
    let piped = command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = piped.spawn().expect("python runs");
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("it listens");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "the script fails");
    serde_json::from_slice(&output.stdout).expect("its answer")
}
