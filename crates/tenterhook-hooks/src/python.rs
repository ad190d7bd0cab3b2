//! A Python that reads what we write.

use std::path::Path;
use std::process::Command;

/// A Python that has these modules; CI installs one and names it.
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

/// What a script prints, as JSON; it finds this path in `sys.argv[1]`.
pub(crate) fn run(python: &str, script: &str, path: &Path) -> serde_json::Value {
    let output = Command::new(python).args(["-c", script]).arg(path).output().expect("python runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}
