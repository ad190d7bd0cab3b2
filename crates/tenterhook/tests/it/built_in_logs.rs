//! `console`, `jsonl` and `logging` in real runs.

use std::cell::Cell;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tenterhook::hooks::{CheckpointOptions, Console, Jsonl, Logging, LoggingOptions};
use tenterhook::module::{Interval, SchedulerPlan};
use tenterhook::registry::Registry;
use tenterhook::run_context::{FixedClock, LossHistory, NoModel};
use tenterhook::tensor::{NoTensors, ReadScalar};
use tenterhook::toy::{Toy, ToyData};
use tenterhook::{
    Batch, FromOptions, HookRunner, LogOptions, Phase, Progress, RunContext, RunInfo, RunState, Scalar,
    Settings, Stage, Status, Tensors, TrainBatchEnd, closure,
};

use crate::call_log::{CallLog, SharedVec};
use crate::document_002::printing;
use crate::lab::{Lab, LabData, data, epochs, trainer};
use crate::run_directory::{latest, recorded};

#[test]
fn the_console_shows_metrics_of_the_module_and_not_those_of_hooks() {
    let root = tempfile::tempdir().unwrap();
    let settings = Settings { num_sanity_val_steps: 2, ..epochs(1) };
    let (mut trainer, seen) = printing(root.path(), settings);
    trainer.add_console_logging(2).unwrap();
    trainer.add_hook(closure::on_step_end("noise", |cx| cx.log("noise", 9.0))).unwrap();
    let mut lab = Lab::new(Toy::default(), &CallLog::default()).with_handler(|place, cx| match place {
        "training_step" => {
            cx.log("right", cx.batch_index() as f64);
            cx.log_with("error", 0.5, LogOptions::BOTH);
        }
        "on_validation_epoch_end" => cx.log("val/late", 7.0),
        _ => {}
    });
    trainer.fit(&mut lab, &mut data(3, 1)).unwrap();
    let lines = seen.take();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].starts_with("epoch 1/1  batch 2/3  step 2  loss "), "{lines:?}");
    assert!(lines[0].ends_with("  lr 0.1  error 0.5000  right 1.0000"), "{lines:?}");
    assert!(
        lines[1].starts_with("epoch 1/1 done  step 3  error 0.5000  right 2.0000  train/loss "),
        "{lines:?}"
    );
    assert!(lines[1].contains("  val/late 7.0000  val/loss "), "{lines:?}");
    assert!(!lines[1].contains("noise"), "{lines:?}");
}

#[test]
fn a_line_has_the_validation_whatever_hooks_log_at_its_end_and_the_rate_that_the_update_used() {
    let root = tempfile::tempdir().unwrap();
    let (mut trainer, seen) = printing(root.path(), epochs(1));
    trainer.add_console_logging(1).unwrap();
    trainer.add_json_logging(1).unwrap();
    let used = SharedVec::new();
    let rates = used.clone();
    trainer.add_hook(closure::on_step_end("rates", move |cx| rates.push(cx.lr))).unwrap();
    trainer.add_hook(closure::on_validation_epoch_end("late", |cx| cx.log("val/f1", 0.5))).unwrap();
    trainer.add_hook(closure::on_validation_end("later", |cx| cx.log("val/f2", 0.25))).unwrap();
    let mut toy = Toy::default().with_scheduler(SchedulerPlan::every(Interval::Step));
    trainer.fit(&mut toy, &mut data(2, 1)).unwrap();
    let (lines, used) = (seen.take(), used.take());
    assert!(lines[0].contains("  lr 0.1") && lines[1].contains("  lr 0.09"), "{lines:?}");
    assert!(lines[2].contains("  val/f1 0.5000  val/f2 0.2500  val/loss "), "{lines:?}");
    let text = std::fs::read_to_string(root.path().join("json_log.jsonl")).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let written: Vec<_> = lines.iter().filter_map(|line| line["lr"].as_f64()).collect();
    assert_eq!(written, used);
}

#[test]
fn an_epoch_of_unknown_length_and_accumulated_batches_are_shown_as_they_are() {
    let root = tempfile::tempdir().unwrap();
    let settings = Settings { accumulate_grad_batches: 2, ..epochs(1) };
    let (mut trainer, seen) = printing(root.path(), settings);
    trainer.add_console_logging(1).unwrap();
    let mut data = ToyData { sized: false, ..data(3, 0) };
    trainer.fit(&mut Toy::default(), &mut data).unwrap();
    let lines: Vec<_> = seen
        .take()
        .iter()
        .map(|line| line.split("  ").skip(1).take(2).collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(lines[..3], ["batch 1 step 0", "batch 2 step 1", "batch 3 step 2"]);
}

/// Losses that count how often they are read.
struct Counted(Cell<u32>);

impl Counted {
    fn count(&self) -> f64 {
        self.0.set(self.0.get() + 1);
        1.0
    }
}

impl ReadScalar for Counted {
    fn read(&self) -> f64 {
        self.count()
    }
}

impl LossHistory for Counted {
    fn latest(&self) -> Option<f64> {
        Some(self.count())
    }
    fn average(&self) -> Option<f64> {
        Some(self.count())
    }
}

#[test]
fn losses_are_read_on_the_batches_that_are_logged_and_on_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let run = RunInfo { checkpoints: dir.path().join("checkpoints"), ..RunInfo::default() };
    let shared = RunState::new(run, 0, Box::new(FixedClock::default()));
    let mut hooks = HookRunner::default();
    hooks.add(Console::from_options(3.into()).unwrap()).unwrap();
    hooks.add(Jsonl::from_options(4.into()).unwrap()).unwrap();
    hooks.publish(&shared);
    let losses = Counted(Cell::new(0));
    let mut read_on = Vec::new();
    for batches in 1..=12 {
        losses.0.set(0);
        let progress = Progress { batches, total_batches: batches, ..Progress::default() };
        let standing = (Stage::Fit, Phase::Train, Status::Training);
        let tensors = Tensors::new(&NoTensors);
        let batch =
            Batch { index: batches - 1, size: 1, loader_index: 0, loader: "a", is_last: false, tensors };
        let run_cx = RunContext::new(standing, progress, &shared, &NoModel, &losses);
        let event = TrainBatchEnd::new(run_cx, batch, Some(Scalar::new(&losses)));
        hooks.deliver(&event).unwrap();
        if losses.0.get() > 0 {
            read_on.push(batches);
        }
    }
    assert_eq!(read_on, [3, 4, 6, 8, 9, 12]);
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    let read = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    text.lines().map(read).collect()
}

/// Two epochs of four batches, from the beginning or from a checkpoint, with a log beside the checkpoints.
fn logged(root: &Path, from: Option<&Path>) -> Vec<Value> {
    let settings =
        Settings { val_check_interval: Some(serde_json::from_value(2.into()).unwrap()), ..epochs(2) };
    let mut trainer = trainer(settings)
        .with_checkpoints_in(root.join("checkpoints"))
        .with_clock(FixedClock(Duration::ZERO));
    if let Some(from) = from {
        trainer = trainer.restoring(from);
    }
    trainer.add_json_logging(1).unwrap();
    let every_step = CheckpointOptions {
        every_n_train_steps: Some(1),
        save_top_k: Some(-1),
        ..CheckpointOptions::default()
    };
    trainer.add_checkpointing(every_step).unwrap();
    trainer.add_hook(closure::on_step_end("log", |cx| cx.log("step", cx.step as f64))).unwrap();
    trainer.fit(&mut Toy::default(), &mut data(4, 1)).unwrap();
    lines(&root.join("json_log.jsonl"))
}

#[test]
fn a_resumed_run_leaves_the_lines_of_an_uninterrupted_one() {
    let root = tempfile::tempdir().unwrap();
    let whole = logged(root.path(), None);
    let events: Vec<_> = whole.iter().map(|line| line["event"].as_str().unwrap()).collect();
    let epoch = ["batch", "batch", "validation_end", "batch", "batch", "validation_end", "epoch_end"];
    assert_eq!(events, [&["train_start"][..], &epoch, &epoch, &["train_end"]].concat());
    let path = root.path().join("json_log.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    for step in [1, 3, 5, 7] {
        std::fs::write(&path, &text).unwrap();
        let checkpoint = root.path().join(format!("checkpoints/epoch={}-step={step}", (step - 1) / 4));
        assert_eq!(logged(root.path(), Some(&checkpoint)), whole, "from step {step}");
    }
}

#[test]
fn the_log_is_in_the_run_directory_and_tells_of_evaluations_and_failures() {
    let root = tempfile::tempdir().unwrap();
    let mut trainer = recorded(root.path(), epochs(1));
    trainer.add_json_logging(3).unwrap();
    let call_log = CallLog::default();
    let mut lab = Lab::new(Toy::default(), &call_log);
    let all = ToyData { train: vec![2, 2], ..ToyData::default() };
    trainer.fit(&mut lab, &mut LabData::new(all.clone(), &call_log)).unwrap();
    let path = latest(root.path()).join("json_log.jsonl");
    trainer.test(&mut lab, &mut LabData::new(all.clone(), &call_log)).unwrap();
    trainer.validate(&mut lab, &mut LabData::new(all.clone(), &call_log)).unwrap();
    let log = lines(&path);
    let events: Vec<_> = log.iter().map(|line| line["event"].as_str().unwrap()).collect();
    let expected =
        ["train_start", "batch", "validation_end", "epoch_end", "train_end", "test_end", "validation_end"];
    assert_eq!(events, expected);
    assert_eq!((&log[1]["batch"], &log[1]["loader"]), (&2.into(), &"train0".into()));
    assert_eq!([&log[2]["stage"], &log[6]["stage"]], ["fit", "validate"]);

    call_log.fails_at("module", "backward");
    trainer.fit(&mut lab, &mut LabData::new(all, &call_log)).unwrap_err();
    let log = lines(&latest(root.path()).join("json_log.jsonl"));
    assert_eq!(log.len(), 2, "another run has its own file: {log:?}");
    assert_eq!(log[1]["error"], "module fails in backward");
}

#[test]
fn logging_reports_the_course_of_a_run() {
    let root = tempfile::tempdir().unwrap();
    let (trainer, seen) = printing(root.path(), Settings { num_sanity_val_steps: 1, ..epochs(2) });
    let mut trainer = trainer.with_clock(FixedClock(Duration::ZERO));
    trainer.add_hook_type::<Logging>(LoggingOptions::default()).unwrap();
    trainer.add_checkpointing(2).unwrap();
    let id = trainer.run_info().id.clone();
    trainer.fit(&mut Toy::default(), &mut data(3, 1)).unwrap();
    let told = seen.take();
    let expected = [
        format!("logging: run {id}: 3 parameters on cpu, 2 epochs of 3 batches"),
        "validation after step 3  val/loss ".into(),
        "epoch 1/2 done in 0 s  train/loss ".into(),
        "validation after step 6  val/loss ".into(),
        "epoch 2/2 done in 0 s  train/loss ".into(),
        "checkpoint of step 6 saved as ".into(),
        "logging: completed after 2 epochs and 6 steps in 0 s; best val/loss ".into(),
    ];
    assert_eq!(told.len(), expected.len(), "{told:?}");
    for (told, expected) in told.iter().zip(expected) {
        assert!(told.starts_with(&expected), "{told} for {expected}");
    }
}

#[test]
fn each_logging_hook_is_built_by_its_name() {
    for (used, name) in [
        ("console", "console_log"),
        ("jsonl", "json_log"),
        ("logging", "logging"),
        ("tensorboard", "tensorboard"),
        ("csv", "csv"),
        ("throughput", "throughput"),
        ("timer", "timer"),
        ("profiler", "profiler"),
        ("model_summary", "model_summary"),
    ] {
        let made = Registry::default().hook(used, serde_json::json!({}));
        assert_eq!(made.map(|hook| hook.name().to_owned()).ok().as_deref(), Some(name));
    }
}
