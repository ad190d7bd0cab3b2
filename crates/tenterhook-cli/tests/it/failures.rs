//! A hook that fails, as whoever runs `tenter` sees it: exit codes, what is printed, what is written.

use serde_json::Value;

use crate::tenter::{Place, Ran};

/// A training with a hook whose file can never be written.
fn trained(place: &Place, on_error: &str, more: &[&str]) -> Ran {
    // Below a file there is no place for another.
    let path = place.write("file", "").join("below.jsonl");
    let path = path.display();
    let text = format!(
        "[[hooks]]\nuse = \"jsonl\"\nlog_every_n_batches = 1\npath = '{path}'\non_error = \"{on_error}\"\n"
    );
    place.write("failing.toml", text);
    place.train(&[&["failing.toml"], more].concat())
}

fn failure_lines(place: &Place) -> Vec<Value> {
    let events = place.lines("runs/latest/events.jsonl").into_iter();
    events.filter(|event| event["event"] == "failure").collect()
}

#[test]
fn a_contained_failure_is_told_once_per_kind_counted_at_the_end_and_exits_with_0() {
    let place = Place::new();
    let ran = trained(&place, "warn", &[]).succeeded();
    let lines = failure_lines(&place);
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
    let written = place.json("runs/latest/run.json")["failures"].clone();
    let counts = written.as_array().expect("a list").iter().filter_map(|kind| kind["count"].as_u64());
    assert_eq!(counts.sum::<u64>(), lines.len() as u64, "{written}");
    let shown = place.run(&["show", "latest"]).succeeded().stdout;
    assert!(shown.contains("\nfailures\n  hook `json_log` failed "), "{shown}");
}

#[test]
fn a_program_reads_the_failures_as_json() {
    let place = Place::new();
    let ran = trained(&place, "disable", &["--json"]).succeeded();
    let summary: Value = serde_json::from_str(&ran.stdout).expect("one line of JSON");
    let failures = summary["failures"].as_array().expect("a list");
    assert_eq!(failures.iter().filter_map(|kind| kind["count"].as_u64()).sum::<u64>(), 3, "{summary}");
    assert_eq!(failures.iter().filter(|kind| kind["disabled"] == true).count(), 1, "{summary}");
}

#[test]
fn a_failure_that_aborts_exits_with_1_and_is_written_down() {
    let place = Place::new();
    let ran = trained(&place, "abort", &[]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("error: hook `json_log` failed in "), "{}", ran.stderr);
    // Told of the failure, it fails again: that comes later.
    assert!(ran.stderr.contains("also: hook `json_log` failed in on_exception"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("src/call.rs"), "no backtrace unless it is asked for: {}", ran.stderr);
    assert!(ran.stdout.contains("what hooks cost: "), "{}", ran.stdout);
    let run = place.json("runs/latest/run.json");
    assert_eq!(run["status"], "failed", "{run}");
    let lines = failure_lines(&place);
    assert!(lines[0]["aborted"] == true && lines[1]["afterwards"] == true, "{lines:?}");
    assert!(lines.iter().all(|line| line["backtrace"].is_null()), "{lines:?}");
    let shown = place.run(&["show", "latest"]).succeeded().stdout;
    assert_eq!(shown.matches("; that ended the run").count(), 1, "{shown}");
}

#[test]
fn in_debug_what_ends_the_run_is_printed_with_its_backtrace() {
    let place = Place::new();
    let ran = trained(&place, "abort", &["--set", "trainer.debug=true"]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("src/call.rs"), "{}", ran.stderr);
    assert!(failure_lines(&place)[0]["backtrace"].is_string());
}
