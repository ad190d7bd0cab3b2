//! Tests of the `tenter` program: arguments, output, exit codes and files.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod bad_input;
mod book;
mod checkpoints;
mod conformance;
mod documents;
mod dry_runs;
mod endless;
mod exit_codes;
mod export;
mod failures;
mod fuzz;
mod hooks;
#[cfg(target_os = "linux")]
mod kills;
mod locks;
/// A local server, shared with the tests of the hooks.
#[path = "../../../tenterhook-hooks/src/support/http/loopback.rs"]
mod loopback;
mod plan;
mod points;
mod python;
mod reaching;
/// Python readers of our files, shared with the tests of the hooks.
#[path = "../../../tenterhook-hooks/src/support/python.rs"]
mod reader;
mod resume;
mod runs;
mod signals;
mod sizes;
mod tenter;
mod terminal;
mod train;
mod trust;
mod uploads;
mod verify_neutral;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The configuration directory of the tests, which keeps them from using the developer's key.
const CONFIG_HOME: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/config");

/// Runs `tenter` in a directory.
fn tenter(arguments: &[&str], directory: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tenter"))
        .args(arguments)
        .env("XDG_CONFIG_HOME", CONFIG_HOME)
        .current_dir(directory)
        .output()
        .expect("tenter runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("output is text")
}

fn files() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it")
}
