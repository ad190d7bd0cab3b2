//! `lr_monitor`, `plateau_detector` and `loss_spike` in real runs.

use std::path::Path;

use serde_json::Value;
use tenterhook::hooks::{
    Checkpoint, CheckpointOptions, GradientMonitor, GradientMonitorOptions, LossSpike, LossSpikeOptions,
    LrFrequency, LrMonitor, LrMonitorOptions, PlateauDetector, PlateauDetectorOptions,
};
use tenterhook::module::{Interval, SchedulerPlan};
use tenterhook::toy::Toy;
use tenterhook::{Decision, Report, RunNotice, Settings, Trainer, closure};

use crate::call_log::SharedVec;
use crate::lab::{bits, data, epochs, trainer};
use crate::run_directory::{latest, recorded};

fn metric_lines(root: &Path, name: &str) -> Vec<(u64, u64, f64)> {
    let text = std::fs::read_to_string(latest(root).join("metrics.jsonl")).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let of = |line: Value| {
        let number = |key: &str| line[key].as_u64().unwrap();
        Some((number("step"), number("epoch"), line["metrics"][name].as_f64()?))
    };
    lines.filter_map(of).collect()
}

fn said(report: &Report) -> Vec<String> {
    let said = report.notices.iter().filter(|notice| matches!(notice, RunNotice::Said { .. }));
    said.map(ToString::to_string).collect()
}

#[test]
fn the_rate_of_a_step_is_the_one_that_its_update_used() {
    let root = tempfile::tempdir().unwrap();
    let mut trainer = recorded(root.path(), epochs(1));
    trainer.add_hook(LrMonitor::default()).unwrap();
    let rates = SharedVec::new();
    let seen = rates.clone();
    trainer
        .add_hook(closure::on_step_end("check", move |cx| {
            assert_eq!(cx.metrics().get("lr/sgd"), Some(cx.lr));
            seen.push((cx.step, 0, cx.lr));
            // A changed learning rate takes effect at the next step.
            if cx.step == 2 { Decision::scale_lr(0.5) } else { Decision::CONTINUE }
        }))
        .unwrap();
    let mut toy = Toy::default().with_scheduler(SchedulerPlan::every(Interval::Step));
    trainer.fit(&mut toy, &mut data(4, 0)).unwrap();
    assert_eq!(metric_lines(root.path(), "lr/sgd"), rates.take());
}

#[test]
fn the_rate_of_an_epoch_is_that_of_its_start() {
    let root = tempfile::tempdir().unwrap();
    let mut trainer = recorded(root.path(), epochs(3));
    let options = LrMonitorOptions { frequency: LrFrequency::Epoch, ..LrMonitorOptions::default() };
    trainer.add_hook(LrMonitor::new(options)).unwrap();
    let mut toy = Toy::new(2).with_scheduler(SchedulerPlan::every(Interval::Epoch));
    trainer.fit(&mut toy, &mut data(2, 0)).unwrap();
    let expected = [(1, 0, 0.1), (3, 1, 0.1 * 0.9), (5, 2, 0.1 * 0.9 * 0.9)];
    assert_eq!(metric_lines(root.path(), "lr/sgd"), expected);
    assert_eq!(metric_lines(root.path(), "lr/sgd_2"), expected, "both of the toy's are called sgd");
}

#[test]
fn a_plateau_is_reported_once_and_logged_at_the_end_of_every_epoch() {
    let root = tempfile::tempdir().unwrap();
    let mut trainer = recorded(root.path(), epochs(5));
    let options = PlateauDetectorOptions { window: 3, ..PlateauDetectorOptions::default() };
    trainer.add_hook(PlateauDetector::new(options).unwrap()).unwrap();
    // With a learning rate of 0, the loss is constant.
    let report = trainer.fit(&mut Toy::default().with_lr(0.0), &mut data(2, 0)).unwrap();
    let flags: Vec<_> = metric_lines(root.path(), "plateau/train/loss")
        .into_iter()
        .map(|(step, _, flag)| (step, flag))
        .collect();
    assert_eq!(flags, [(2, 0.0), (4, 0.0), (6, 1.0), (8, 1.0), (10, 1.0)]);
    let said = said(&report);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].starts_with("plateau_detector: plateau: `train/loss` = "), "{said:?}");
    assert!(trainer.hook::<PlateauDetector>("plateau_detector").unwrap().is_on_plateau());
}

#[test]
fn a_metric_of_validation_counts_only_in_the_epochs_that_validate() {
    let mut trainer = trainer(Settings { check_val_every_n_epoch: Some(2), ..epochs(5) });
    let monitor = "val/loss".to_owned();
    let options = PlateauDetectorOptions { monitor, window: 3, ..PlateauDetectorOptions::default() };
    trainer.add_hook(PlateauDetector::new(options).unwrap()).unwrap();
    let report = trainer.fit(&mut Toy::default().with_lr(0.0), &mut data(2, 1)).unwrap();
    assert_eq!(report.metrics["plateau/val/loss"].to_bits(), 0f64.to_bits(), "two values are no three");
    assert_eq!(said(&report), Vec::<String>::new());
}

#[test]
fn too_many_high_losses_halve_the_rates_and_every_loss_is_read() {
    let mut trainer = trainer(Settings { log_every_n_steps: 0, ..epochs(1) });
    let options = LossSpikeOptions { threshold: 0.0, count: 2, ..LossSpikeOptions::default() };
    trainer.add_hook(LossSpike::new(options).unwrap()).unwrap();
    let rates = SharedVec::new();
    let seen = rates.clone();
    trainer
        .add_hook(closure::on_step_end("rates", move |cx| {
            assert!(cx.metrics().get("train/loss").is_some(), "it is logged at every step");
            seen.push(cx.lr);
        }))
        .unwrap();
    let report = trainer.fit(&mut Toy::new(2), &mut data(7, 0)).unwrap();
    assert_eq!(rates.take(), [0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.025]);
    assert_eq!(
        said(&report),
        ["loss_spike: 3 losses were above 0; the learning rates are multiplied by 0.5"; 2]
    );
}

/// Three epochs of four batches under all of these hooks, from the beginning or from a checkpoint.
fn watched(root: &Path, from: Option<&str>) -> (Vec<u32>, std::collections::BTreeMap<String, f64>) {
    let settings = Settings { gradient_clip_val: Some(1.0), ..epochs(3) };
    let mut trainer: Trainer = trainer(settings).with_checkpoints_in(root);
    if let Some(from) = from {
        trainer = trainer.restoring(root.join(from));
    }
    let gradients = GradientMonitorOptions { log_frequency: 2, ..GradientMonitorOptions::default() };
    trainer.add_hook(GradientMonitor::new(gradients).unwrap()).unwrap();
    trainer.add_hook(LrMonitor::default()).unwrap();
    let plateau = PlateauDetectorOptions { window: 2, threshold: 0.5, ..PlateauDetectorOptions::default() };
    trainer.add_hook(PlateauDetector::new(plateau).unwrap()).unwrap();
    let spike = LossSpikeOptions { threshold: 0.01, count: 3, ..LossSpikeOptions::default() };
    trainer.add_hook(LossSpike::new(spike).unwrap()).unwrap();
    let options = CheckpointOptions {
        every_n_train_steps: Some(1),
        save_top_k: Some(-1),
        ..CheckpointOptions::default()
    };
    trainer.add_hook(Checkpoint::new(options).unwrap()).unwrap();
    let mut toy = Toy::default();
    let report = trainer.fit(&mut toy, &mut data(4, 1)).unwrap();
    (bits(&toy), report.metrics)
}

#[test]
fn a_resumed_run_ends_as_the_whole_one() {
    let root = tempfile::tempdir().unwrap();
    let whole = watched(root.path(), None);
    let share = whole.1["grad_clip/share"];
    assert!(share > 0.0 && share < 1.0 && whole.1.contains_key("plateau/train/loss"), "{share}");
    for step in [1, 3, 6, 9, 11] {
        let resumed = watched(root.path(), Some(&format!("epoch={}-step={step}", (step - 1) / 4)));
        assert_eq!(resumed, whole, "from step {step}");
    }
}

#[test]
fn neutral_observers_change_no_bit() {
    let fit = |watched: bool| {
        let mut trainer = trainer(epochs(2));
        if watched {
            let gradients = GradientMonitorOptions {
                log_frequency: 1,
                log_histogram: true,
                percentiles: vec![50.0],
                ..GradientMonitorOptions::default()
            };
            trainer.add_hook(GradientMonitor::new(gradients).unwrap()).unwrap();
            trainer.add_hook(LrMonitor::default()).unwrap();
            trainer.add_hook(PlateauDetector::new(PlateauDetectorOptions::default()).unwrap()).unwrap();
        }
        let mut toy = Toy::default();
        trainer.fit(&mut toy, &mut data(4, 1)).unwrap();
        bits(&toy)
    };
    assert_eq!(fit(true), fit(false));
}
