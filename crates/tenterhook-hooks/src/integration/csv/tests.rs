use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tenterhook_core::{Hook as _, RunInfo, Stage};
use tenterhook_testkit::{FitScript, Rig};

use super::*;
use crate::support::python;

fn csv(options: CsvOptions) -> Csv {
    Csv::from_options(options).expect("the options fit")
}

/// A rig with this run directory.
fn rig(directory: &Path) -> Rig<Csv> {
    let options = CsvOptions { when_full: WhenFull::Block, ..CsvOptions::default() };
    let mut rig = Rig::new(csv(options));
    rig.run(RunInfo { id: "r1".into(), directory: Some(directory.to_owned()), ..RunInfo::default() });
    rig
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).expect("it is there")
}

/// Plays a script, in which some metrics are not logged in every step.
fn play(rig: &mut Rig<Csv>, script: &[tenterhook_testkit::ScriptEntry]) {
    for entry in script {
        if entry.event == tenterhook_core::Event::TrainBatchEnd {
            let batch = entry.progress.total_batches;
            rig.metric("train/loss", 1.0 / batch as f64);
            if batch.is_multiple_of(3) {
                rig.metric("a, b", f64::NAN);
            }
            if batch == 5 {
                rig.metric("late", -1e-300);
            }
        }
        rig.play_entry(entry);
    }
}

fn script() -> Vec<tenterhook_testkit::ScriptEntry> {
    FitScript::new(2, 3).logging().script()
}

#[test]
fn python_reads_a_row_per_line_that_was_logged() {
    let Some(python) = python::with("csv") else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let mut rig = rig(dir.path());
    play(&mut rig, &script());
    rig.finish();
    assert!(rig.failures().is_empty(), "{:?}", rig.failures());
    let script = "import csv, json, sys\n\
                  print(json.dumps(list(csv.DictReader(open(sys.argv[1], newline=\"\")))))";
    let rows = python::run(&python, script, &dir.path().join("metrics.csv"));
    let row = |step: u64, epoch: u64, loss: &str, ab: &str, late: &str| {
        json!({ "step": step.to_string(), "epoch": epoch.to_string(), "stage": "train", "time": format!("{step}.0"),
            "train/loss": loss, "a, b": ab, "late": late })
    };
    let expected = json!([
        row(1, 0, "1.0", "", ""),
        row(2, 0, "0.5", "", ""),
        row(3, 0, "0.3333333333333333", "nan", ""),
        row(4, 1, "0.25", "", ""),
        row(5, 1, "0.2", "", "-1e-300"),
        row(6, 1, "0.16666666666666666", "nan", ""),
    ]);
    assert_eq!(rows, expected);
    let sent = rig.delivery_stats().expect("it has a worker");
    assert_eq!((sent.sent, sent.delivered, sent.dropped, sent.lost), (6, 6, 0, 0));
    assert_eq!(sent.waited, Duration::ZERO);
}

#[test]
fn a_resumed_run_truncates_its_table_and_an_evaluation_does_not() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("metrics.csv");
    let script = script();
    let cut = script.iter().position(|entry| entry.progress.total_batches == 5).expect("there are six");
    let mut first = rig(dir.path());
    play(&mut first, &script[..cut]);
    let fresh = || csv(CsvOptions::default());
    let (mut evaluated, mut again) = (first.resumed(fresh()), first.resumed(fresh()));
    play(&mut first, &script[cut..]);
    first.finish();
    let whole = text(&path);

    evaluated.stage(Stage::Validate).metric("val/loss", 1.0).on_log();
    evaluated.finish();
    assert_eq!(text(&path).lines().count(), whole.lines().count() + 1, "nothing is lost");

    let mut idle = first.resumed(fresh());
    again.on_train_start();
    play(&mut again, &script[cut..]);
    again.finish();
    assert_eq!(text(&path), whole, "as if nothing had happened");

    play(&mut again, &script[cut..]);
    again.finish();
    idle.on_train_start();
    idle.finish();
    assert_eq!(text(&path), whole, "also where nothing more is logged");
}

#[test]
fn a_restarted_run_overwrites_its_own_table_and_appends_to_one_elsewhere() {
    let (dir, other) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    for _ in 0..2 {
        let mut rig = rig(dir.path());
        play(&mut rig, &script());
        rig.finish();
        assert_eq!(text(&dir.path().join("metrics.csv")).lines().count(), 7);
    }
    let path = other.path().join("all.csv");
    for runs in 1..3 {
        let mut rig = Rig::new(csv(CsvOptions { path: path.clone(), ..CsvOptions::default() }));
        rig.run(RunInfo { directory: Some(dir.path().to_owned()), ..RunInfo::default() });
        play(&mut rig, &script());
        rig.finish();
        assert_eq!(text(&path).lines().count(), 1 + runs * 6);
    }
}

#[test]
fn rows_of_another_run_stay_on_resume() {
    let (dir, other) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    let path = other.path().join("all.csv");
    let made = || {
        let mut rig = Rig::new(csv(CsvOptions { path: path.clone(), ..CsvOptions::default() }));
        rig.run(RunInfo { directory: Some(dir.path().to_owned()), ..RunInfo::default() });
        rig
    };
    let script = script();
    let mut before = made();
    play(&mut before, &script);
    before.finish();
    let cut = script.iter().position(|entry| entry.progress.total_batches == 3).expect("there are six");
    let mut first = made();
    play(&mut first, &script[..cut]);
    // After this, the number of rows of the other run is known.
    first.finish();
    let mut again = first.resumed(csv(CsvOptions { path: path.clone(), ..CsvOptions::default() }));
    play(&mut first, &script[cut..]);
    first.finish();
    let whole = text(&path);
    again.on_train_start();
    play(&mut again, &script[cut..]);
    again.finish();
    assert_eq!(text(&path), whole);
    assert_eq!(whole.lines().count(), 13);
}

#[test]
fn nothing_is_written_in_a_dry_run_a_sanity_check_or_a_missing_directory() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut dry = rig(dir.path());
    dry.fast_dev_run(true);
    play(&mut dry, &script());
    rig(dir.path()).phase(tenterhook_core::Phase::SanityCheck).metric("a", 1.0).on_log();
    assert!(rig(&dir.path().join("unmade")).metric("a", 1.0).on_log().failure.is_none());
    // Nothing but histograms was logged.
    rig(dir.path()).on_log();
    assert_eq!(std::fs::read_dir(dir.path()).expect("it is there").count(), 0);
    assert_eq!(dry.delivery_stats(), None);
}

#[test]
fn a_file_that_cannot_be_written_is_an_error_of_the_hook() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("file"), "").expect("it is written");
    let path = dir.path().join("file/below.csv");
    let mut rig = Rig::new(csv(CsvOptions { path: path.clone(), ..CsvOptions::default() }));
    rig.run(RunInfo { directory: Some(dir.path().to_owned()), ..RunInfo::default() });
    rig.metric("a", 1.0).on_log();
    rig.finish();
    let failure = rig.failures().first().map(|failed| format!("{failed:?}")).expect("it fails");
    assert!(failure.contains(&format!("cannot write {}", path.display())), "{failure}");
    assert!(failure.contains("choose another `path`"), "{failure}");
    assert_eq!(rig.delivery_stats(), None, "it has no worker");
}

#[test]
fn invalid_options_are_refused_by_name() {
    let refused = |options: Value| {
        let options = serde_json::from_value(options).expect("they read");
        Csv::from_options(options).expect_err("refused").to_string()
    };
    for (options, part) in [
        (json!({ "path": "" }), "`path` must name a file"),
        (json!({ "path": "../a.csv" }), "`path` is \"../a.csv\", which leads out"),
        (json!({ "path": "metrics.jsonl" }), "a file of the run itself"),
        (json!({ "queue_size": 0 }), "`queue_size` must be 1 or more"),
        (json!({ "flush_timeout": "0 s" }), "`flush_timeout` is 0 s; it must be above 0"),
    ] {
        let error = refused(options);
        assert!(error.contains(part), "{error}");
    }
    let claims = |path: &str| csv(CsvOptions { path: path.into(), ..CsvOptions::default() }).spec().claims;
    assert_eq!(claims("a.csv"), claims("./a.csv"));
    assert_ne!(claims("a.csv"), claims("b.csv"));
}
