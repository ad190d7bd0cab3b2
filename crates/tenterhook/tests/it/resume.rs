//! A resumed run has the same results as an uninterrupted one.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use tenterhook::hooks::{Checkpoint, CheckpointOptions, SaveLast};
use tenterhook::module::{Interval, SchedulerPlan};
use tenterhook::run_context::FixedClock;
use tenterhook::toy::Toy;
use tenterhook::{
    HookResult, Key, LogOptions, Observer, Report, Settings, State, TrainBatchEnd, TrainEpochEnd,
    ValidationEnd, hook,
};

use crate::call_log::{CallLog, Recorder};
use crate::lab::{Lab, LabData, LabStrategy, bits, data, epochs, trainer};

const SUM: Key<f64> = Key::new("sum");

/// Keeps the values that it saw and drew, logs the latter, and puts their sum on the board.
#[derive(Default)]
struct Memory(Vec<f64>);

impl Memory {
    fn keep(&mut self, cx: &tenterhook::RunContext<'_>, what: f64) {
        let drawn = cx.rng().uniform();
        self.0.extend([what, drawn]);
        cx.log("drawn", drawn);
        cx.board().put(SUM, cx.board().get(SUM).unwrap_or(0.0) + drawn);
    }
}

#[hook]
impl Observer for Memory {
    fn on_train_batch_end(&mut self, cx: &TrainBatchEnd) -> HookResult {
        self.keep(cx, cx.loss.as_ref().map_or(0.0, tenterhook::Scalar::value));
        Ok(())
    }
    fn on_validation_end(&mut self, cx: &ValidationEnd) -> HookResult {
        self.keep(cx, cx.metrics().get("val/loss").unwrap());
        Ok(())
    }
    fn on_train_epoch_end(&mut self, cx: &TrainEpochEnd) -> HookResult {
        self.keep(cx, cx.metrics().get("train/loss").unwrap());
        Ok(())
    }
    fn state_dict(&self) -> HookResult<State> {
        Ok(State::of(1, &self.0)?)
    }
    fn load_state_dict(&mut self, state: &State) -> HookResult {
        self.0 = state.read(1)?;
        Ok(())
    }
}

struct Ended {
    bits: Vec<u32>,
    report: Report,
    call_log: CallLog,
}

/// Three epochs of four batches, from the beginning or from a checkpoint.
fn run(
    settings: &Settings,
    options: &CheckpointOptions,
    validate: u64,
    root: &Path,
    from: Option<&Path>,
) -> Ended {
    let call_log = CallLog::default();
    // A fixed clock, because a resumed run adds its earlier time.
    let clock = FixedClock(Duration::ZERO);
    let mut trainer = trainer(settings.clone())
        .with_checkpoints_in(root)
        .with_clock(clock)
        .with_strategy(LabStrategy::new(&call_log));
    if let Some(from) = from {
        trainer = trainer.restoring(from);
    }
    trainer.add_hook(Memory::default()).unwrap();
    trainer.add_hook(Recorder::new("all", &call_log)).unwrap();
    trainer.add_hook(Checkpoint::new(options.clone()).unwrap()).unwrap();
    let toy = Toy::default().with_scheduler(SchedulerPlan::every(Interval::Step));
    let mut lab = Lab::new(toy, &call_log).with_handler(|place, cx| {
        if place == "training_step" {
            cx.log_with("index", cx.batch_index() as f64, LogOptions::EPOCH);
        }
    });
    let report = trainer.fit(&mut lab, &mut LabData::new(data(4, validate), &call_log)).unwrap();
    Ended { bits: bits(&lab.toy), report, call_log }
}

fn three_epochs() -> Settings {
    Settings { log_every_n_steps: 3, ..epochs(3) }
}

fn every_step() -> CheckpointOptions {
    CheckpointOptions { every_n_train_steps: Some(1), save_top_k: Some(-1), ..CheckpointOptions::default() }
}

fn every_epoch() -> CheckpointOptions {
    CheckpointOptions { save_top_k: Some(-1), ..CheckpointOptions::default() }
}

/// Resumes from these checkpoints of an uninterrupted run. The results must be the same, including the last
/// checkpoint, which holds the states of all hooks, the metrics, the board and the random streams.
fn check(settings: &Settings, options: &CheckpointOptions, validate: u64, checkpoints: &[&str], last: &str) {
    let root = tempfile::tempdir().unwrap();
    let whole = run(settings, options, validate, root.path(), None);
    for checkpoint in checkpoints {
        // The directory also has the later checkpoints, as if the run was killed later.
        let elsewhere = tempfile::tempdir().unwrap();
        copy(root.path(), elsewhere.path());
        let from = elsewhere.path().join(checkpoint);
        let resumed = run(settings, options, validate, elsewhere.path(), Some(&from));
        assert_eq!(resumed.bits, whole.bits, "{checkpoint}");
        assert_eq!(resumed.report.metrics, whole.report.metrics, "{checkpoint}");
        assert_eq!(resumed.report.progress, whole.report.progress, "{checkpoint}");
        for file in ["state.json", "weights.safetensors", "optimizer.safetensors"] {
            // The numbers of saves continue after those in the directory.
            let is_number = |line: &&[u8]| line.starts_with(b"  \"number\":");
            let bytes = |root: &Path| {
                let bytes = std::fs::read(root.join(last).join(file)).unwrap();
                let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !is_number(line));
                lines.collect::<Vec<_>>().join(&b'\n')
            };
            assert!(bytes(elsewhere.path()) == bytes(root.path()), "{checkpoint}: {file}");
        }
        assert_eq!(names(elsewhere.path()), names(root.path()), "{checkpoint}");
    }
}

fn names(directory: &Path) -> BTreeSet<OsString> {
    std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect()
}

fn copy(from: &Path, to: &Path) {
    for name in names(from) {
        let (from, to) = (from.join(&name), to.join(&name));
        if let Ok(target) = std::fs::read_link(&from) {
            std::os::unix::fs::symlink(target, to).unwrap();
        } else if from.is_dir() {
            std::fs::create_dir(&to).unwrap();
            copy(&from, &to);
        } else {
            std::fs::copy(&from, &to).unwrap();
        }
    }
}

#[test]
fn from_the_end_of_a_batch_within_an_epoch() {
    let within = ["epoch=0-step=1", "epoch=0-step=4", "epoch=1-step=5", "epoch=1-step=8", "epoch=2-step=11"];
    check(&three_epochs(), &every_step(), 2, &within, "epoch=2-step=12");
}

#[test]
fn from_the_end_of_any_batch_when_nothing_is_validated() {
    let any = ["epoch=0-step=2", "epoch=0-step=4", "epoch=1-step=8", "epoch=2-step=9"];
    check(&three_epochs(), &every_step(), 0, &any, "epoch=2-step=12");
}

#[test]
fn from_between_two_accumulation_windows() {
    let settings = Settings { accumulate_grad_batches: 2, ..three_epochs() };
    check(&settings, &every_step(), 1, &["epoch=0-step=1", "epoch=1-step=3"], "epoch=2-step=6");
}

#[test]
fn from_the_end_of_an_epoch() {
    let ends = ["epoch=0-step=4", "epoch=1-step=8"];
    check(&three_epochs(), &every_epoch(), 2, &ends, "epoch=2-step=12");
}

#[test]
fn from_the_end_of_the_last_epoch_only_the_ends_are_left() {
    let root = tempfile::tempdir().unwrap();
    let whole = run(&three_epochs(), &every_epoch(), 2, root.path(), None);
    let from = root.path().join("epoch=2-step=12");
    let resumed = run(&three_epochs(), &every_epoch(), 2, root.path(), Some(&from));
    assert_eq!(resumed.bits, whole.bits);
    let places = resumed.call_log.places("hook:all");
    let began = places.iter().position(|place| *place == "on_train_start").unwrap();
    let left = ["on_train_start", "on_log", "on_checkpoint_saved", "on_train_end", "on_fit_end", "teardown"];
    assert_eq!(places[began..], left);
}

#[test]
fn all_receivers_get_events_in_order_and_a_begun_epoch_does_not_begin_again() {
    let root = tempfile::tempdir().unwrap();
    run(&three_epochs(), &every_step(), 1, root.path(), None);
    let elsewhere = tempfile::tempdir().unwrap();
    let from = root.path().join("epoch=1-step=6");
    let settings = Settings { num_sanity_val_steps: 2, ..three_epochs() };
    let resumed = run(&settings, &every_step(), 1, elsewhere.path(), Some(&from));
    let rows: Vec<_> =
        resumed.call_log.rows().into_iter().map(|(of, place)| format!("{of} {place}")).collect();
    let begun = rows.iter().position(|row| row == "hook:all on_train_batch_start").unwrap();
    let told: Vec<_> = rows[..begun].iter().filter(|row| !row.starts_with("data")).collect();
    assert_eq!(
        told,
        [
            "hook:all setup",
            "module setup",
            "module configure_model",
            "module on_load_checkpoint",
            "module load_weights",
            "hook:all on_load_checkpoint",
            "hook:all load_state_dict",
            "strategy setup",
            "module configure_optimizers",
            "hook:all on_fit_start",
            "module on_fit_start",
            "module load_optimizer_state",
            "hook:all on_checkpoint_loaded",
            "hook:all on_train_start",
            "module on_train_start",
            "strategy on_train_start",
            "module on_train_batch_end",
            "hook:all on_log",
        ]
    );
    let count = |place| resumed.call_log.places("hook:all").iter().filter(|at| **at == place).count();
    assert_eq!((count("on_train_epoch_start"), count("on_train_epoch_end")), (1, 2));
    assert_eq!(count("on_train_batch_start"), 6, "two of the second epoch, four of the third");
}

#[test]
fn an_evaluation_can_be_made_of_a_checkpoint() {
    let root = tempfile::tempdir().unwrap();
    let whole = run(&three_epochs(), &every_epoch(), 2, root.path(), None);
    let mut trainer = trainer(epochs(1)).restoring(root.path().join("epoch=2-step=12"));
    let call_log = CallLog::default();
    trainer.add_hook(Recorder::new("all", &call_log)).unwrap();
    let mut lab = Lab::new(Toy::default(), &call_log);
    let report = trainer.validate(&mut lab, &mut data(4, 2)).unwrap();
    assert_eq!(bits(&lab.toy), whole.bits);
    assert!((report.metrics["val/loss"] - whole.report.metrics["val/loss"]).abs() < f64::EPSILON);
    let places = call_log.places("hook:all");
    let expected =
        ["setup", "on_load_checkpoint", "load_state_dict", "on_checkpoint_loaded", "on_validation_start"];
    assert_eq!(places[..5], expected);
}

#[test]
fn under_the_names_that_the_uninterrupted_run_gave() {
    let named = |filename: &str, top: i64, monitor: Option<&str>| CheckpointOptions {
        filename: Some(filename.into()),
        monitor: monitor.map(Into::into),
        save_top_k: Some(top),
        save_last: SaveLast::LINK,
        ..every_epoch()
    };
    let all = ["model", "model-v1"];
    check(&three_epochs(), &named("model", -1, None), 2, &all, "model-v2");
    let best = ["0", "1"];
    let options =
        CheckpointOptions { auto_insert_metric_name: false, ..named("{epoch}", 3, Some("val/loss")) };
    check(&three_epochs(), &options, 2, &best, "2");
}
