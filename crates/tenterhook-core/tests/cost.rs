//! The cost of an event in instructions, counted by valgrind; see `examples/cost`. Times are not checked.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../examples/cost/callgrind.rs"]
mod callgrind;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use callgrind::{Costs, Scenario};

/// Maximum cost of an event without receivers, in instructions over an empty loop.
const UNWANTED: f64 = 8.0;

/// Tolerance between two counts, for code that a process runs before and after its loop.
const ROUNDING: f64 = 0.01;

#[test]
fn an_event_without_receivers_costs_a_few_instructions_regardless_of_the_number_of_hooks() {
    let valgrind = match callgrind::valgrind::version() {
        Ok(version) => version,
        Err(why) => {
            assert!(std::env::var_os("CI").is_none(), "the cost of events must be measured here: {why}");
            say(&format!("SKIPPED: the cost of events is not measured: {why}"));
            return;
        }
    };
    let costs = Costs::counted(&example()).unwrap();
    say(&format!("Cost over an empty loop, counted by {valgrind}:\n{costs}"));

    let cost = |scenario| costs.of(scenario).unwrap();
    let (none, many) = (cost(Scenario::Unwanted(0)), cost(Scenario::Unwanted(100)));
    assert!(none <= UNWANTED, "without hooks an event costs {none} instructions, {UNWANTED} are promised");
    assert!((none - many).abs() < ROUNDING, "{none} instructions without hooks, {many} with 100 idle ones");
    // The compiler has not removed the check or the hooks.
    assert!(none >= 2.0, "the check takes at least two instructions, not {none}");
    assert!(cost(Scenario::Delivered(1)) > many);
    assert!(cost(Scenario::Delivered(100)) - cost(Scenario::Delivered(10)) > 90.0);
}

/// Writes to standard error directly, since the test harness captures the output of passing tests.
fn say(text: &str) {
    #[allow(clippy::disallowed_methods)] // the test harness captures `eprintln!`
    std::io::stderr().write_all(format!("\n{text}\n").as_bytes()).expect("standard error can be written to");
}

/// Builds the example `cost` in release mode, in the target directory of this test.
fn example() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--release", "--locked", "--package", "tenterhook-core", "--example", "cost"]);
    cargo.args(["--message-format", "json-render-diagnostics", "--target-dir"]).arg(target);
    // Flags for coverage, or for processors that valgrind does not support, are removed.
    cargo.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    let built = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).stderr(Stdio::inherit()).output().unwrap();
    assert!(built.status.success(), "{cargo:?}: {}", built.status);
    let messages = String::from_utf8(built.stdout).unwrap();
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let program = messages
        .filter(|message| message["target"]["name"] == "cost")
        .find_map(|message| message["executable"].as_str().map(PathBuf::from));
    program.expect("cargo says where it put the example")
}
