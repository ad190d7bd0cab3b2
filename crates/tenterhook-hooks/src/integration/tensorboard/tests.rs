mod read_back;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tenterhook_core::{Cadence, Event, Hook as _, RunInfo, Stage};
use tenterhook_testkit::{FitScript, NamedTensors, Rig};

use super::*;
use crate::worker::WhenFull;

fn made(options: Value) -> TensorBoard {
    let options = serde_json::from_value(options).expect("they read");
    TensorBoard::from_options(options).expect("the options fit").with_clock(|| 1_700_000_000.25)
}

/// A rig with this run directory.
fn rig(directory: &Path, options: Value) -> Rig<TensorBoard> {
    let mut rig = Rig::new(made(options));
    rig.run(RunInfo { id: "r1".into(), directory: Some(directory.to_owned()), ..RunInfo::default() });
    rig
}

/// The event files of a directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    let mut files: Vec<_> = entries.map(|entry| entry.expect("it is there").path()).collect();
    files.sort();
    files
}

/// The only file of a directory.
fn only(directory: &Path) -> PathBuf {
    let files = files(directory);
    assert_eq!(files.len(), 1, "{files:?}");
    files[0].clone()
}

/// The number of events in a file, including the version.
fn count(path: &Path) -> usize {
    let bytes = std::fs::read(path).expect("it is there");
    let mut rest = bytes.as_slice();
    std::iter::from_fn(|| record::next(&mut rest).expect("memory reads")).count()
}

#[test]
fn the_file_is_in_its_directory_and_a_shared_one_has_a_directory_per_run() {
    let (dir, shared) =
        (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    for (options, place) in [
        (json!({}), dir.path().join("tensorboard")),
        (json!({ "dir": "tensorboard/a" }), dir.path().join("tensorboard/a")),
        (json!({ "dir": shared.path() }), shared.path().join("r1")),
    ] {
        let mut rig = rig(dir.path(), options);
        rig.metric("a", 1.0).on_log();
        rig.finish();
        let file = files(&place).into_iter().find(|path| path.is_file()).expect("it is there");
        let name = file.file_name().expect("a name").to_string_lossy().into_owned();
        assert!(name.starts_with("events.out.tfevents.1700000000."), "{name}");
        assert_eq!(count(&file), 2);
    }
}

#[test]
fn a_resumed_run_continues_its_file_and_an_evaluation_appends_to_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let place = dir.path().join("tensorboard");
    let script = FitScript::new(2, 3).logging().script();
    let play = |rig: &mut Rig<TensorBoard>, script: &[tenterhook_testkit::ScriptEntry]| {
        for entry in script {
            rig.metric("train/loss", entry.progress.total_batches as f64).play_entry(entry);
        }
    };
    let cut = script.iter().position(|entry| entry.progress.total_batches == 5).expect("there are six");
    let mut first = rig(dir.path(), json!({}));
    play(&mut first, &script[..cut]);
    let (mut evaluated, mut again) = (first.resumed(made(json!({}))), first.resumed(made(json!({}))));
    play(&mut first, &script[cut..]);
    first.finish();
    let path = only(&place);
    let whole = std::fs::read(&path).expect("it is there");

    evaluated.stage(Stage::Test).metric("test/loss", 1.0).on_log();
    evaluated.finish();
    let longer = std::fs::read(only(&place)).expect("it is there");
    assert!(longer.len() > whole.len() && longer.starts_with(&whole), "nothing is lost");

    let mut idle = first.resumed(made(json!({})));
    again.on_train_start();
    play(&mut again, &script[cut..]);
    again.finish();
    assert!(std::fs::read(only(&place)).expect("it is there") == whole, "as if nothing had happened");

    play(&mut again, &script[cut..]);
    again.finish();
    idle.on_train_start();
    idle.finish();
    assert!(std::fs::read(only(&place)).expect("it is there") == whole, "also where nothing more is logged");

    let mut anew = rig(dir.path(), json!({}));
    play(&mut anew, &script[..cut]);
    anew.finish();
    assert!(count(&only(&place)) < count_of(&whole), "a run that begins again begins its file anew");
}

fn count_of(mut bytes: &[u8]) -> usize {
    std::iter::from_fn(|| record::next(&mut bytes).expect("memory reads")).count()
}

#[test]
fn a_second_worker_continues_the_same_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut rig = rig(dir.path(), json!({}));
    rig.metric("a", 1.0).on_log();
    rig.finish();
    rig.metric("test/a", 1.0).stage(Stage::Test).on_log();
    rig.finish();
    assert_eq!(count(&only(&dir.path().join("tensorboard"))), 3);
    assert_eq!(rig.delivery_stats().expect("it has a worker").delivered, 1, "in this call");
}

#[test]
fn nothing_is_written_in_a_dry_run_a_sanity_check_or_a_missing_directory() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut dry = rig(dir.path(), json!({ "histograms": ["weights"], "histogram_every_n_steps": 1 }));
    dry.fast_dev_run(true)
        .params([("w", [1.0])])
        .metric("a", 1.0)
        .play(&FitScript::new(1, 2).logging().script());
    rig(dir.path(), json!({})).phase(Phase::SanityCheck).metric("a", 1.0).on_log();
    rig(&dir.path().join("unmade"), json!({})).metric("a", 1.0).on_log();
    rig(dir.path(), json!({})).on_log();
    assert_eq!(files(dir.path()), Vec::<PathBuf>::new());
}

#[test]
fn only_events_that_the_options_need_are_wanted() {
    let wanted = |options: Value| {
        let hook = made(options);
        let events = [Event::Log, Event::TrainBatchStart, Event::BeforeOptimizerStep, Event::StepEnd];
        events.map(|event| hook.spec().events.contains(event))
    };
    assert_eq!(wanted(json!({})), [true, false, false, false]);
    assert_eq!(wanted(json!({ "images": "x" })), [true, true, false, false]);
    assert_eq!(wanted(json!({ "histograms": ["gradients"] })), [true, false, true, false]);
    assert_eq!(wanted(json!({ "histograms": ["weights"] })), [true, false, false, true]);
}

#[test]
fn patterns_and_images_that_match_nothing_are_reported_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let said = |options: Value| {
        let mut rig = rig(dir.path(), options);
        rig.params([("fc1.weight", [1.0])]);
        rig.batch_tensors(NamedTensors::default().with("x", [2, 5], [0.0; 10]).with("y", [2], [0.0; 2]));
        rig.play(&FitScript::new(3, 2).script());
        rig.said().into_iter().map(|(_, text)| text).collect::<Vec<_>>()
    };
    assert_eq!(said(json!({ "images": "x", "histograms": ["weights"] })), Vec::<String>::new());
    assert_eq!(
        said(json!({ "histograms": ["weights"], "params": ["fc1.wieght", "**"] })),
        ["`params`: no parameter matches `fc1.wieght`; nearest: `fc1.weight`"]
    );
    assert_eq!(
        said(json!({ "images": "z" })),
        ["`images`: no tensor of the batch matches `z`; there are: `x`, `y`"]
    );
    let shapes = said(json!({ "images": "y" }));
    assert_eq!(shapes.len(), 1);
    assert!(
        shapes[0].starts_with("`images`: `y` has the shape [2], which is not one of images"),
        "{shapes:?}"
    );
}

#[test]
fn a_file_that_cannot_be_written_is_an_error_of_the_hook() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("tensorboard"), "").expect("it is written");
    let mut rig = rig(dir.path(), json!({}));
    rig.metric("a", 1.0).on_log();
    rig.finish();
    let failure = rig.failures().first().map(|failed| format!("{failed:?}")).expect("it fails");
    assert!(failure.contains("cannot write") && failure.contains("choose another `dir`"), "{failure}");
}

#[test]
fn invalid_options_are_refused_by_name() {
    for (options, part) in [
        (json!({ "dir": "" }), "`dir` must name a file"),
        (json!({ "dir": "checkpoints" }), "a directory of the run itself"),
        (json!({ "dir": "tensorboard/../.." }), "`dir` is \"tensorboard/../..\", which leads out"),
        (json!({ "histogram_every_n_steps": 0 }), "`histogram_every_n_steps` must be 1 or more"),
        (json!({ "histogram_bins": 0 }), "`histogram_bins` must be 1 or more"),
        (json!({ "histogram_bins": 10_001 }), "`histogram_bins` must be 10000 or less"),
        (json!({ "images_every_n_epochs": 0 }), "`images_every_n_epochs` must be 1 or more"),
        (json!({ "max_images": 0 }), "`max_images` must be 1 or more"),
        (json!({ "params": [] }), "`params` is empty"),
        (json!({ "images": "a..b" }), "`images`: `a..b` is not a pattern"),
        (json!({ "queue_size": 0 }), "`queue_size` must be 1 or more"),
        (json!({ "flush_timeout": "0 s" }), "`flush_timeout` is 0 s; it must be above 0"),
    ] {
        let options = serde_json::from_value(options).expect("they read");
        let error = TensorBoard::from_options(options).err().expect("refused").to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn the_directory_is_claimed_and_the_needed_run_length_declared() {
    let access = |options: Value| made(options).spec();
    assert_eq!(access(json!({ "dir": "a" })).claims, access(json!({ "dir": "./a" })).claims);
    assert_ne!(access(json!({ "dir": "a" })).claims, access(json!({ "dir": "b" })).claims);
    assert_eq!(access(json!({ "histogram_every_n_steps": 7 })).min_run_length, []);
    let chosen = access(json!({ "histograms": ["weights"], "histogram_every_n_steps": 7 }));
    assert_eq!(chosen.min_run_length, [("histogram_every_n_steps", Cadence::Steps(7))]);
    let default = access(json!({ "histograms": ["weights"] }));
    assert_eq!(
        (default.min_run_length, default.throttle),
        (vec![("histogram_every_n_steps", Cadence::Steps(100))], Some(Cadence::Steps(100)))
    );
    assert_eq!(TensorBoardOptions::default().when_full, WhenFull::DropOldest);
}
