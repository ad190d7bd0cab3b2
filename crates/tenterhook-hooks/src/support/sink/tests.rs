//! A killed and resumed sink has the same records as an uninterrupted one, whatever its file held.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::json;
use tenterhook_core::{Event, FromOptions, Hook, HookExt, RunInfo};
use tenterhook_testkit::{FitScript, Rig, ScriptEntry};

use super::*;
use crate::support::python;
use crate::worker::WhenFull;
use crate::worker::tests::GATE;
use crate::{Csv, CsvOptions, TensorBoard};

const METRICS: &str = "metrics.jsonl";

fn csv() -> Csv {
    let options = CsvOptions { when_full: WhenFull::DropOldest, ..CsvOptions::default() };
    Csv::from_options(options).expect("the options fit")
}

fn tensorboard(options: serde_json::Value) -> TensorBoard {
    let options = serde_json::from_value(options).expect("they read");
    TensorBoard::from_options(options).expect("the options fit").with_clock(|| 1e9)
}

fn rows(directory: &Path) -> Vec<String> {
    let text = fs::read_to_string(directory.join("metrics.csv")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// The only event file.
fn event_file(directory: &Path) -> PathBuf {
    let mut files = fs::read_dir(directory.join("tensorboard")).expect("a directory");
    files.next().expect("a file").expect("it is there").path()
}

/// The events without their times.
fn events(directory: &Path) -> Vec<String> {
    crate::integration::tensorboard::timeless(&event_file(directory))
        .iter()
        .map(|event| format!("{event:?}"))
        .collect()
}

fn run(directory: &Path) -> RunInfo {
    RunInfo { id: "r1".into(), directory: Some(directory.to_owned()), ..RunInfo::default() }
}

fn rig<H: Hook>(hook: H, directory: &Path) -> Rig<H> {
    let mut rig = Rig::new(hook);
    rig.run(run(directory)).params([("w", [1.0, 2.0])]);
    rig
}

fn script() -> Vec<ScriptEntry> {
    FitScript::new(3, 4).logging().script()
}

/// The index of the first entry of this batch.
fn at(batch: u64) -> usize {
    script().iter().position(|entry| entry.progress.total_batches == batch).expect("there are twelve")
}

/// Trains, and writes `metrics.jsonl` as the trainer does: before the hook receives the line.
fn play<H: Hook>(rig: &mut Rig<H>, directory: &Path, script: &[ScriptEntry]) {
    let path = directory.join(METRICS);
    let mut metrics = ResumableFile::<tenterhook_files::TextLines>::open(&path).expect("it opens");
    let mut logged = BTreeMap::new();
    for entry in script {
        let batch = entry.progress.total_batches;
        if entry.event == Event::TrainBatchEnd {
            logged.insert("train/loss".to_owned(), json!(1.0 / batch as f64));
            rig.metric("train/loss", 1.0 / batch as f64);
            if batch.is_multiple_of(3) {
                logged.insert("a, b".to_owned(), json!("nan"));
                rig.metric("a, b", -f64::NAN);
            }
            if batch == 7 {
                logged.insert("late".to_owned(), json!(-1e-300));
                rig.metric("late", -1e-300);
            }
        }
        if entry.event == Event::Log && !logged.is_empty() {
            let line = json!({
                "step": entry.progress.step,
                "epoch": entry.progress.epoch,
                "stage": "train",
                "time": entry.elapsed.as_secs_f64(),
                "metrics": std::mem::take(&mut logged),
            });
            metrics.push(format!("{line}\n").as_bytes()).expect("it is written");
        }
        rig.play_entry(entry);
    }
}

/// The directory of an uninterrupted run.
fn uninterrupted<H: Hook>(hook: H) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let mut rig = rig(hook, directory.path());
    play(&mut rig, directory.path(), &script());
    rig.finish();
    assert!(rig.failures().is_empty(), "{:?}", rig.failures());
    directory
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("it is made");
    for entry in fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("it is there");
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).expect("it is copied");
        }
    }
}

/// Truncates `metrics.jsonl` in this directory to the checkpoint, resumes and trains to the end.
fn resume<H: Hook>(mut again: Rig<H>, directory: &Path, (from, length): (usize, u64)) -> Vec<String> {
    let metrics = fs::OpenOptions::new().write(true).open(directory.join(METRICS)).expect("it is there");
    metrics.set_len(length).expect("it is cut");
    again.run(run(directory));
    again.on_train_start();
    play(&mut again, directory, &script()[from..]);
    again.finish();
    assert!(again.failures().is_empty(), "{:?}", again.failures());
    again.said().into_iter().map(|(_, text)| text).collect()
}

/// A run whose worker is blocked from batch 4 on. It takes a checkpoint at batch 7, is killed at batch 10 and resumed.
fn killed_while_the_worker_lags<H: Hook>(
    make: impl Fn() -> H,
    contents: impl Fn(&Path) -> Vec<String>,
) -> (tempfile::TempDir, Vec<String>) {
    let (first, second) =
        (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    let gate = GATE.with(|gate| std::sync::Arc::clone(&gate.borrow()));
    let mut killed = rig(make(), first.path());
    play(&mut killed, first.path(), &script()[..at(4)]);
    let sent = killed.delivery_stats().expect("it has a worker").sent;
    let deadline = Instant::now() + Duration::from_mins(1);
    while killed.delivery_stats().expect("it has a worker").delivered < sent {
        assert!(Instant::now() < deadline, "the worker writes");
        std::thread::sleep(Duration::from_millis(1));
    }
    let hold = gate.write().expect("nobody panicked");
    let before = contents(first.path());
    play(&mut killed, first.path(), &script()[at(4)..at(7)]);
    let again = killed.resumed(make());
    let length = fs::metadata(first.path().join(METRICS)).expect("it is there").len();
    play(&mut killed, first.path(), &script()[at(7)..at(10)]);
    assert_eq!(contents(first.path()), before, "the worker lags");
    copy(first.path(), second.path());
    drop(hold);
    let said = resume(again, second.path(), (at(7), length));
    (second, said)
}

#[test]
fn a_table_whose_worker_lagged_at_a_kill_has_every_row() {
    let (directory, said) = killed_while_the_worker_lags(csv, rows);
    assert_eq!(rows(directory.path()), rows(uninterrupted(csv()).path()));
    assert_eq!(said, ["restored 3 rows of metrics.csv from metrics.jsonl"]);
    let Some(python) = python::with("csv") else { return };
    let script = "import csv, json, sys\nprint(json.dumps([[int(row['step']), float(row['train/loss'])] \
                  for row in csv.DictReader(open(sys.argv[1], newline=''))]))";
    let read = python::run(&python, script, &directory.path().join("metrics.csv"));
    let text = fs::read_to_string(directory.path().join(METRICS)).expect("it is there");
    let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("it reads"));
    let lines: Vec<_> = lines.map(|line| json!([line["step"], line["metrics"]["train/loss"]])).collect();
    assert_eq!((lines.len(), read), (12, json!(lines)));
}

#[test]
fn an_event_file_whose_worker_lagged_at_a_kill_has_every_line() {
    let (directory, said) = killed_while_the_worker_lags(|| tensorboard(json!({})), events);
    assert_eq!(events(directory.path()), events(uninterrupted(tensorboard(json!({}))).path()));
    let file = event_file(directory.path());
    let name = file.file_name().expect("a name").to_string_lossy().into_owned();
    assert_eq!(said, [format!("restored 3 events of {name} from metrics.jsonl")]);
    let Some(python) = python::with("tensorboard.backend.event_processing.event_accumulator") else { return };
    let script = "import json, sys\n\
                  from tensorboard.backend.event_processing.event_accumulator import EventAccumulator\n\
                  reader = EventAccumulator(sys.argv[1], size_guidance={'scalars': 0})\n\
                  reader.Reload()\n\
                  print(json.dumps([e.step for e in reader.Scalars('train/loss')]))";
    assert_eq!(python::run(&python, script, &file), json!((1..=12).collect::<Vec<_>>()));
}

#[test]
fn own_entries_that_are_missing_are_reported() {
    let options = json!({ "histograms": ["weights"], "histogram_every_n_steps": 1 });
    let (directory, said) = killed_while_the_worker_lags(|| tensorboard(options.clone()), events);
    let whole = events(uninterrupted(tensorboard(options.clone())).path());
    assert_eq!(events(directory.path()).len(), whole.len() - 3);
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[1].starts_with("3 events of "), "{said:?}");
    assert!(
        said[1].ends_with(
            "histograms and images that only TensorBoard receives are in no other file of the run"
        ),
        "{said:?}"
    );
}

/// Resumes with a damaged file: any prefix, no file, or other content.
fn any_damage<H: Hook>(
    make: impl Fn() -> H,
    file: impl Fn(&Path) -> PathBuf,
    contents: impl Fn(&Path) -> Vec<String>,
) {
    let whole = uninterrupted(make());
    let expected = contents(whole.path());
    let checkpoint = tempfile::tempdir().expect("a directory");
    let mut first = rig(make(), checkpoint.path());
    play(&mut first, checkpoint.path(), &script()[..at(7)]);
    let length = fs::metadata(checkpoint.path().join(METRICS)).expect("it is there").len();
    let bytes = fs::read(file(whole.path())).expect("it is there");
    let mut flipped = bytes.clone();
    flipped[20] ^= 0x40;
    let prefixes = (0..=bytes.len()).step_by(7).map(|end| Some(bytes[..end].to_vec()));
    let others = [None, Some(flipped), Some(b"something else\n".to_vec()), Some(vec![0; 3000])];
    for left in prefixes.chain(others) {
        let directory = tempfile::tempdir().expect("a directory");
        copy(whole.path(), directory.path());
        let path = file(directory.path());
        match &left {
            Some(left) => fs::write(&path, left).expect("it is written"),
            None => fs::remove_file(&path).expect("it is removed"),
        }
        let said = resume(first.resumed(make()), directory.path(), (at(7), length));
        let left = left.map(|left| left.len());
        assert_eq!(contents(directory.path()), expected, "{left:?}: {said:?}");
        if left.is_none() {
            assert_eq!(said.len(), 1, "{said:?}");
            assert!(said[0].starts_with("restored 6 "), "{said:?}");
        }
    }
}

#[test]
fn a_table_is_restored_whatever_is_left_of_it() {
    any_damage(csv, |directory| directory.join("metrics.csv"), rows);
}

#[test]
fn an_event_file_is_restored_whatever_is_left_of_it() {
    let contents = |directory: &Path| {
        let (config, mut lines): (Vec<_>, Vec<_>) = events(directory)
            .into_iter()
            .partition(|event| event.contains(&format!("{:?}", b"config")[1..20]));
        // A missing configuration is written again, after the restored events.
        assert_eq!(config.len(), 1);
        lines.push("config".into());
        lines
    };
    any_damage(|| tensorboard(json!({})), event_file, contents);
}

#[test]
fn lines_that_a_sink_did_not_receive_are_not_restored() {
    let make = || csv().every("2 steps").expect("a cadence");
    let whole = uninterrupted(make());
    let expected = rows(whole.path());
    assert_eq!(expected.len(), 7, "every second line");
    let checkpoint = tempfile::tempdir().expect("a directory");
    let mut first = rig(make(), checkpoint.path());
    play(&mut first, checkpoint.path(), &script()[..at(7)]);
    let length = fs::metadata(checkpoint.path().join(METRICS)).expect("it is there").len();
    for (left, missing) in [(7, 0), (4, 0), (2, 2)] {
        let directory = tempfile::tempdir().expect("a directory");
        copy(whole.path(), directory.path());
        let text = expected[..left].join("\n") + "\n";
        fs::write(directory.path().join("metrics.csv"), text).expect("it is written");
        let said = resume(first.resumed(make()), directory.path(), (at(7), length));
        assert_eq!(rows(directory.path()).len(), expected.len() - missing, "{said:?}");
        let lost = format!(
            "{missing} rows of metrics.csv are missing and cannot be restored: the hook did not receive every line of \
             metrics.jsonl"
        );
        assert_eq!(said, if missing > 0 { vec![lost] } else { Vec::new() });
    }
}
