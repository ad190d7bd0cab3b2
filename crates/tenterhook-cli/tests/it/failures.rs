//! Failing hooks: exit codes, output and files.

use serde_json::Value;

use crate::tenter::{Ran, TestDir};

/// A training run with a hook whose file cannot be written.
fn trained(dir: &TestDir, on_error: &str, more: &[&str]) -> Ran {
    // The parent of the file is a file itself.
    let path = dir.write("file", "").join("below.jsonl");
    let path = path.display();
    let text = format!(
        "[[hooks]]\nuse = \"jsonl\"\nlog_every_n_batches = 1\npath = '{path}'\non_error = \"{on_error}\"\n"
    );
    dir.write("failing.toml", text);
    dir.train(&[&["failing.toml"], more].concat())
}

fn failure_lines(dir: &TestDir) -> Vec<Value> {
    let events = dir.lines("runs/latest/events.jsonl").into_iter();
    events.filter(|event| event["event"] == "failure").collect()
}

#[test]
fn a_contained_failure_is_printed_once_counted_at_the_end_and_exits_with_0() {
    let dir = TestDir::new();
    let ran = trained(&dir, "warn", &[]).succeeded();
    let lines = failure_lines(&dir);
    let mut kinds: Vec<_> = lines.iter().map(|line| line["at"].as_str().unwrap_or_default()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    assert!(kinds.len() > 1 && lines.len() > kinds.len(), "{lines:?}");
    let told = ran.stderr.lines().filter(|line| line.contains("hook `json_log` failed in "));
    assert_eq!(told.count(), kinds.len(), "{}", ran.stderr);
    let (_, summary) = ran.stdout.split_once("\nfailures\n").expect("a list of failures");
    let listed = summary.lines().take_while(|line| line.starts_with("  hook `json_log` failed "));
    assert_eq!(listed.count(), kinds.len(), "{summary}");
    assert!(summary.contains(" times in on_train_batch_end, first at step "), "{summary}");
    let written = dir.json("runs/latest/run.json")["failures"].clone();
    let counts = written.as_array().expect("a list").iter().filter_map(|kind| kind["count"].as_u64());
    assert_eq!(counts.sum::<u64>(), lines.len() as u64, "{written}");
    let shown = dir.run(&["show", "latest"]).succeeded().stdout;
    assert!(shown.contains("\nfailures\n  hook `json_log` failed "), "{shown}");
}

#[test]
fn failures_are_printed_as_json() {
    let dir = TestDir::new();
    let ran = trained(&dir, "disable", &["--json"]).succeeded();
    let summary: Value = serde_json::from_str(&ran.stdout).expect("one line of JSON");
    let failures = summary["failures"].as_array().expect("a list");
    assert_eq!(failures.iter().filter_map(|kind| kind["count"].as_u64()).sum::<u64>(), 3, "{summary}");
    assert_eq!(failures.iter().filter(|kind| kind["disabled"] == true).count(), 1, "{summary}");
}

#[test]
fn a_failure_that_aborts_exits_with_1_and_is_recorded() {
    let dir = TestDir::new();
    let ran = trained(&dir, "abort", &[]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("error: hook `json_log` failed in "), "{}", ran.stderr);
    // It fails again in `on_exception`, which is listed afterwards.
    assert!(ran.stderr.contains("also: hook `json_log` failed in on_exception"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("src/call.rs"), "no backtrace unless it is asked for: {}", ran.stderr);
    assert!(ran.stdout.contains("hook costs: "), "{}", ran.stdout);
    let run = dir.json("runs/latest/run.json");
    assert_eq!(run["status"], "failed", "{run}");
    let lines = failure_lines(&dir);
    assert!(lines[0]["aborted"] == true && lines[1]["afterwards"] == true, "{lines:?}");
    assert!(lines.iter().all(|line| line["backtrace"].is_null()), "{lines:?}");
    let shown = dir.run(&["show", "latest"]).succeeded().stdout;
    assert_eq!(shown.matches("; that ended the run").count(), 1, "{shown}");
}

#[test]
fn a_failure_that_ends_the_run_has_a_backtrace_in_debug_mode() {
    let dir = TestDir::new();
    let ran = trained(&dir, "abort", &["--set", "trainer.debug=true"]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("src/call.rs"), "{}", ran.stderr);
    assert!(failure_lines(&dir)[0]["backtrace"].is_string());
}
