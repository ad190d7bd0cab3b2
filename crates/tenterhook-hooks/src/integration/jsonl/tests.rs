use std::path::Path;
use std::time::Duration;

use serde_json::json;
use tenterhook_core::Hook as _;
use tenterhook_core::{Event, Outcome, Progress, RunInfo, Stage};
use tenterhook_testkit::{FitScript, Rig};

use super::*;

fn jsonl(options: impl Into<JsonlOptions>) -> Jsonl {
    Jsonl::from_options(options.into()).expect("the options fit")
}

/// A rig with this run directory.
fn rig(options: impl Into<JsonlOptions>, directory: &Path) -> Rig<Jsonl> {
    let mut rig = Rig::new(jsonl(options));
    rig.run(RunInfo { id: "r1".into(), directory: Some(directory.to_owned()), ..RunInfo::default() });
    rig
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).expect("it is there");
    assert!(text.is_empty() || text.ends_with('\n'), "the last line is whole");
    text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
}

fn events(path: &Path) -> Vec<String> {
    lines(path).iter().map(|line| line["event"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn a_run_is_one_object_per_line() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut rig = rig(2, dir.path());
    rig.lr(0.5).play(&FitScript::new(1, 3).validate(1).losses(|batch| Some(batch as f64)).script());
    let expected = [
        json!({ "event": "train_start", "time": 0.0, "epoch": 0, "step": 0, "run": "r1", "resumed": false,
            "parameters": 0, "total_epochs": null, "total_batches": null }),
        json!({ "event": "batch", "time": 2.0, "epoch": 0, "step": 2, "batch": 1, "loader": "train",
            "loss": 2.0, "average_loss": 2.0, "lr": 0.5, "metrics": {} }),
        json!({ "event": "validation_end", "time": 4.0, "epoch": 0, "step": 3, "stage": "fit", "metrics": {} }),
        json!({ "event": "epoch_end", "time": 4.0, "epoch": 0, "step": 3, "average_loss": 3.0, "metrics": {} }),
        json!({ "event": "train_end", "time": 4.0, "epoch": 1, "step": 3, "outcome": "completed", "metrics": {} }),
    ];
    assert_eq!(lines(&dir.path().join("json_log.jsonl")), expected);
}

#[test]
fn a_line_has_the_rate_of_the_last_update_also_after_a_resume() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut rig = rig(5, dir.path());
    for batch in 1..=15 {
        rig.progress(Progress { total_batches: batch, ..Progress::default() });
        if batch % 4 == 0 {
            rig.lr(batch as f64).on_step_end();
            rig.lr(99.0).on_step_end();
        }
        rig.on_train_batch_end();
        if batch == 13 {
            rig = rig.resumed(jsonl(5));
        }
    }
    let rates: Vec<_> =
        lines(&dir.path().join("json_log.jsonl")).iter().map(|line| line["lr"].clone()).collect();
    assert_eq!(rates, [4.0, 8.0, 12.0], "of two updates in a batch, the first");
}

#[test]
fn metrics_are_in_the_line_of_their_event_and_non_finite_numbers_are_strings() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut rig = rig(1, dir.path());
    rig.metric("old", 0.0).on_train_epoch_start();
    rig.metric("a", f64::NAN).loss(f64::INFINITY).on_train_batch_end();
    rig.metric("b", 2.0).on_train_batch_end();
    rig.on_validation_start();
    rig.metric("val/loss", 3.0).on_validation_end();
    rig.on_train_batch_end();
    rig.on_train_epoch_end();
    rig.on_test_start();
    rig.metric("test/loss", 4.0).on_test_end();
    let lines = lines(&dir.path().join("json_log.jsonl"));
    let metrics: Vec<_> = lines.iter().map(|line| &line["metrics"]).collect();
    let expected = [
        json!({ "a": "nan" }),
        json!({ "b": 2.0 }),
        json!({ "val/loss": 3.0 }),
        json!({}),
        json!({ "a": "nan", "b": 2.0, "val/loss": 3.0 }),
        json!({ "test/loss": 4.0 }),
    ];
    assert_eq!(metrics, expected.iter().collect::<Vec<_>>());
    assert_eq!(lines[0]["loss"], "inf");
}

#[test]
fn a_failure_and_how_it_ended_are_written() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut rig = rig(1, dir.path());
    rig.on_exception();
    let stopped = Outcome::Stopped { by: "me".into(), reason: "enough".into() };
    rig.outcome(stopped).on_train_end();
    let lines = lines(&dir.path().join("json_log.jsonl"));
    assert_eq!(lines[0]["event"], "exception");
    assert_eq!([&lines[0]["origin"], &lines[0]["place"]], ["module", "training_step"]);
    assert_eq!(lines[0]["error"], "a made-up failure");
    assert_eq!([&lines[1]["outcome"], &lines[1]["reason"]], ["stopped", "enough"]);
}

#[test]
fn the_file_is_where_the_path_says() {
    let dir = tempfile::tempdir().expect("a directory");
    let with = |path: &Path| JsonlOptions { path: path.to_owned(), ..JsonlOptions::default() };
    rig(with(Path::new("logs/mine.jsonl")), dir.path()).on_train_start();
    assert_eq!(events(&dir.path().join("logs/mine.jsonl")), ["train_start"]);
    let absolute = dir.path().join("absolute.jsonl");
    rig(with(&absolute), Path::new("/nowhere")).on_train_start();
    assert_eq!(events(&absolute), ["train_start"]);
    let mut beside = Rig::new(jsonl(1));
    let checkpoints = dir.path().join("a-run/checkpoints");
    beside.run(RunInfo { checkpoints, ..RunInfo::default() }).on_train_start();
    assert_eq!(events(&dir.path().join("a-run/json_log.jsonl")), ["train_start"]);
}

#[test]
fn nothing_is_written_in_a_dry_run_a_sanity_check_or_a_missing_directory() {
    let dir = tempfile::tempdir().expect("a directory");
    rig(1, dir.path()).fast_dev_run(true).play(&FitScript::new(1, 2).script());
    let mut checked = rig(1, dir.path());
    for event in [Event::SanityCheckStart, Event::ValidationStart, Event::ValidationEnd] {
        checked.deliver(event);
    }
    let unmade = dir.path().join("unmade");
    assert!(rig(1, &unmade).on_test_end().failure.is_none());
    assert_eq!(std::fs::read_dir(dir.path()).expect("it is there").count(), 0);
}

#[test]
fn a_resumed_run_truncates_its_file_and_an_evaluation_does_not() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("json_log.jsonl");
    let script = FitScript::new(1, 4).script();
    let cut = script.iter().position(|entry| entry.progress.batches == 3).expect("there are four");
    let mut first = rig(1, dir.path());
    first.play(&script[..cut]);
    let mut evaluated = first.resumed(jsonl(1));
    let mut again = first.resumed(jsonl(1));
    first.play(&script[cut..]);
    let whole = lines(&path);

    evaluated.stage(Stage::Validate).on_validation_end();
    assert_eq!(lines(&path)[..whole.len()], whole, "nothing is lost");

    again.elapsed(Duration::from_secs(9)).on_train_start();
    again.play(&script[cut..]);
    assert_eq!(lines(&path), whole, "as if nothing had happened");
}

#[test]
fn lines_missing_before_the_checkpoint_are_reported() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("json_log.jsonl");
    let script = FitScript::new(1, 4).script();
    let mut first = rig(1, dir.path());
    first.play(&script[..script.len() / 2]);
    let written = lines(&path).len();
    std::fs::remove_file(&path).expect("it is removed");
    let mut again = first.resumed(jsonl(1));
    again.on_train_start();
    let said: Vec<_> = again.said().into_iter().map(|(_, text)| text).collect();
    let missing = format!(
        "{written} lines of json_log.jsonl are missing and cannot be restored: no other file of the run holds them"
    );
    assert_eq!(said, [missing]);
    assert_eq!(events(&path), ["train_start"], "it begins anew");
}

#[test]
fn a_restarted_run_overwrites_the_file_of_its_first_attempt() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("json_log.jsonl");
    let script = FitScript::new(1, 4).script();
    rig(1, dir.path()).play(&script);
    let whole = lines(&path);
    rig(1, dir.path()).play(&script);
    assert_eq!(lines(&path), whole);
}

#[test]
fn a_moved_run_continues_its_own_file_and_only_appends_to_a_shared_one() {
    let (one, other) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    let mut first = rig(1, one.path());
    first.on_train_start();
    let text = std::fs::read_to_string(one.path().join("json_log.jsonl")).expect("it is there");
    std::fs::write(other.path().join("json_log.jsonl"), text.repeat(2)).expect("it is written");
    let mut moved = first.resumed(jsonl(1));
    moved.run(RunInfo { directory: Some(other.path().to_owned()), ..RunInfo::default() });
    moved.on_train_end();
    assert_eq!(events(&other.path().join("json_log.jsonl")), ["train_start", "train_end"]);
    // Without a run directory, an existing file may belong to another run.
    let mut beside = Rig::new(jsonl(1));
    let checkpoints = one.path().join("checkpoints");
    beside.run(RunInfo { checkpoints, ..RunInfo::default() }).on_train_start();
    assert_eq!(events(&one.path().join("json_log.jsonl")), ["train_start", "train_start"]);
}

#[test]
fn a_file_that_another_run_has_extended_is_appended_to() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("all.jsonl");
    let made = || jsonl(JsonlOptions { path: path.clone(), log_every_n_batches: 1 });
    let script = FitScript::new(1, 4).script();
    let mut first = Rig::new(made());
    first.play(&script[..script.len() / 2]);
    let own = std::fs::read_to_string(&path).expect("it is there");
    let mut again = first.resumed(made());
    let other = "{\"event\":\"batch\",\"time\":77.0}\n";
    std::fs::write(&path, format!("{other}{own}{other}")).expect("it is written");
    again.elapsed(Duration::from_secs(9)).on_train_start();
    let text = std::fs::read_to_string(&path).expect("it is there");
    assert!(text.starts_with(&format!("{other}{own}{other}")), "{text}");
    assert_eq!(events(&path).last().map(String::as_str), Some("train_start"));
}

#[cfg(unix)]
#[test]
fn the_file_can_be_a_stream() {
    let made = || jsonl(JsonlOptions { path: "/dev/null".into(), log_every_n_batches: 1 });
    let mut first = Rig::new(made());
    first.play(&FitScript::new(1, 2).script());
    let mut again = first.resumed(made());
    again.on_train_start();
    assert!(first.failures().is_empty() && again.failures().is_empty(), "{:?}", again.failures());
}

#[test]
fn a_file_that_cannot_be_written_is_an_error_of_the_hook() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("file"), "").expect("it is written");
    let path = dir.path().join("file/below.jsonl");
    let mut rig = rig(JsonlOptions { path: path.clone(), ..JsonlOptions::default() }, dir.path());
    let failure = rig.on_train_start().failure.clone().expect("it fails");
    assert!(failure.contains(&format!("cannot write {}", path.display())), "{failure}");
    assert!(rig.is_enabled(), "it is tried again");
}

#[test]
fn invalid_options_are_refused_by_name() {
    let error = Jsonl::from_options(0.into()).expect_err("refused").to_string();
    assert!(error.starts_with("`log_every_n_batches` must be 1 or more"), "{error}");
    for path in ["", "/", "../log.jsonl", "metrics.jsonl"] {
        let options = JsonlOptions { path: path.into(), ..JsonlOptions::default() };
        let error = Jsonl::from_options(options).expect_err(path).to_string();
        assert!(error.starts_with("`path` ") && error.contains("\"json_log.jsonl\""), "{error}");
    }
}

#[test]
fn the_file_is_claimed_and_the_needed_run_length_declared() {
    let access = |log_every_n_batches, path: &str| {
        Jsonl::from_options(JsonlOptions { log_every_n_batches, path: path.into() }).expect("it fits").spec()
    };
    for every in [7, JsonlOptions::default().log_every_n_batches] {
        assert_eq!(
            access(every, "a.jsonl").min_run_length,
            [("log_every_n_batches", Cadence::Batches(every))]
        );
    }
    assert_eq!(access(100, "a.jsonl").claims, access(100, "./a.jsonl").claims);
    assert_ne!(access(100, "a.jsonl").claims, access(100, "b.jsonl").claims);
}
