//! `throughput`, `timer`, `profiler` and `model_summary` in real runs, with a clock that the test sets.

use std::path::Path;
use std::time::Duration;

use tenterhook::hooks::{
    CheckpointOptions, ModelSummary, ModelSummaryOptions, Profiler, ProfilerOptions, Throughput,
    ThroughputOptions, Timer, TimerOptions,
};
use tenterhook::toy::Toy;
use tenterhook::{
    Gradients, HookResult, HookSpec, Outcome, Phase, Settings, Update, UpdateHook, closure, hook,
};

use crate::call_log::CallLog;
use crate::clock::{Hand, ten_seconds_a_batch};
use crate::document_002::printing;
use crate::lab::{Lab, LabData, data, epochs, trainer};

fn of(duration: &str) -> TimerOptions {
    TimerOptions { duration: Some(duration.parse().unwrap()), ..TimerOptions::default() }
}

#[test]
fn a_timer_stops_training_and_the_least_steps_come_first() {
    let (mut trainer, _) = ten_seconds_a_batch(epochs(9));
    trainer.add_hook_type::<Timer>(of("25 s")).unwrap();
    let report = trainer.fit(&mut Toy::default(), &mut data(8, 1)).unwrap();
    assert_eq!(report.progress.step, 3);
    let reason = "`duration` of 25 s is over".into();
    assert_eq!(report.outcome, Outcome::Stopped { by: "timer".into(), reason });
    let timer: &Timer = trainer.hook("timer").unwrap();
    assert_eq!(timer.elapsed(Phase::Train), Duration::from_secs(30));
    assert_eq!(timer.remaining(), Some(Duration::ZERO));
    assert_eq!(report.metrics["timer/train_s"].to_bits(), 30f64.to_bits());
    let again = trainer.fit(&mut Toy::default(), &mut data(8, 1)).unwrap();
    assert_eq!(again.progress.step, 3, "another fit has its own time");

    let (mut trainer, _) = ten_seconds_a_batch(Settings { min_steps: Some(11), ..epochs(9) });
    trainer.add_hook_type::<Timer>(of("25 s")).unwrap();
    assert_eq!(trainer.fit(&mut Toy::default(), &mut data(8, 1)).unwrap().progress.step, 11);
}

#[test]
fn a_timer_tells_training_and_validation_apart() {
    let (mut trainer, hand) = ten_seconds_a_batch(Settings { num_sanity_val_steps: 1, ..epochs(2) });
    trainer.add_hook(closure::on_validation_batch_end("slow", move |_| hand.turn(7))).unwrap();
    trainer.add_hook_type::<Timer>(TimerOptions::default()).unwrap();
    let report = trainer.fit(&mut Toy::default(), &mut data(3, 2)).unwrap();
    assert_eq!((report.metrics["timer/train_s"], report.metrics["timer/validation_s"]), (60.0, 28.0));
    trainer.test(&mut Toy::default(), &mut data(3, 2)).unwrap();
    assert_eq!(trainer.hook::<Timer>("timer").unwrap().elapsed(Phase::Train), Duration::from_mins(1));
}

/// The timer and the throughput of two epochs of four batches, from the beginning or from a checkpoint.
fn measured(root: &Path, from: Option<&Path>) -> (f64, f64, f64) {
    // A resumed run needs another hour before it trains.
    let hand = Hand::at(0);
    let (turned, slow) = (hand.clone(), hand.clone());
    let mut trainer =
        trainer(epochs(2)).with_checkpoints_in(root.join("checkpoints")).with_clock(hand.clone());
    if let Some(from) = from {
        trainer = trainer.restoring(from);
    }
    trainer.add_hook(closure::on_train_start("start", move |_| hand.turn(3600))).unwrap();
    trainer.add_hook(closure::on_after_forward("work", move |cx| turned.turn(1 + cx.batch.index))).unwrap();
    trainer.add_hook(closure::on_validation_batch_end("slow", move |_| slow.turn(50))).unwrap();
    trainer.add_hook_type::<Timer>(TimerOptions::default()).unwrap();
    let options = ThroughputOptions { every_n_steps: 3, smoothing: 0.5 };
    trainer.add_hook_type::<Throughput>(options).unwrap();
    let every_step = CheckpointOptions {
        every_n_train_steps: Some(1),
        save_top_k: Some(-1),
        ..CheckpointOptions::default()
    };
    trainer.add_checkpointing(every_step).unwrap();
    let report = trainer.fit(&mut Toy::default(), &mut data(4, 1)).unwrap();
    let metric = |name: &str| report.metrics[name];
    (metric("timer/train_s"), metric("timer/validation_s"), metric("throughput/samples_per_s"))
}

#[test]
fn measurements_continue_after_a_resume_without_the_time_of_the_restart() {
    let root = tempfile::tempdir().unwrap();
    let whole = measured(root.path(), None);
    // An epoch takes ten seconds. Steps 1 to 3 take six seconds, steps 4 to 6 seven, with twelve samples
    // each.
    let throughput = (0.5 * 0.5 * 12.0 / 6.0 + 0.5 * 12.0 / 7.0) / 0.75;
    assert!(whole.0.to_bits() == 20f64.to_bits() && (whole.2 - throughput).abs() < 1e-12, "{whole:?}");
    for step in 1..8 {
        let checkpoint = root.path().join(format!("checkpoints/epoch={}-step={step}", (step - 1) / 4));
        let resumed = measured(root.path(), Some(&checkpoint));
        // A checkpoint of an epoch's last batch resumes after its validation.
        assert_eq!((resumed.0, resumed.2), (whole.0, whole.2), "from step {step}");
    }
}

#[test]
fn throughput_is_reported_at_the_end_and_does_not_include_validation() {
    let root = tempfile::tempdir().unwrap();
    let (trainer, seen) = printing(root.path(), epochs(2));
    let hand = Hand::at(9);
    let (turned, slow) = (hand.clone(), hand.clone());
    let mut trainer = trainer.with_clock(hand);
    trainer.add_hook(closure::on_after_forward("work", move |_| turned.turn(2))).unwrap();
    trainer.add_hook(closure::on_validation_batch_end("slow", move |_| slow.turn(50))).unwrap();
    let options = ThroughputOptions { every_n_steps: 2, ..ThroughputOptions::default() };
    trainer.add_hook_type::<Throughput>(options).unwrap();
    let report = trainer.fit(&mut Toy::default(), &mut data(4, 1)).unwrap();
    assert!((report.metrics["throughput/samples_per_s"] - 2.0).abs() < 1e-12);
    assert!((report.metrics["throughput/batches_per_s"] - 0.5).abs() < 1e-12);
    let said = "throughput: on average 2.0 samples/s, 0.50 batches/s, without validation";
    assert_eq!(seen.take(), [said]);
}

#[test]
fn a_profiler_tells_forward_hooks_and_waiting_apart() {
    let root = tempfile::tempdir().unwrap();
    let (trainer, seen) = printing(root.path(), epochs(2));
    let hand = Hand::at(0);
    let (hooked, slow, stepped) = (hand.clone(), hand.clone(), hand.clone());
    let mut trainer = trainer.with_clock(hand);
    let options =
        ProfilerOptions { skip_first_batches: 1, filename: Some("profile.json".into()), print: true };
    trainer.add_hook_type::<Profiler>(options).unwrap();
    trainer.add_hook(closure::on_after_backward("hook", move |_| hooked.turn(1))).unwrap();
    trainer.add_hook(closure::on_validation_batch_end("slow", move |_| slow.turn(50))).unwrap();
    let call_log = CallLog::default();
    let mut lab = Lab::new(Toy::default(), &call_log).with_handler(move |place, _| match place {
        "training_step" => stepped.turn(3),
        // The time of the module's handlers belongs to no other part.
        "on_train_batch_start" => stepped.turn(2),
        _ => {}
    });
    let report = trainer.fit(&mut lab, &mut LabData::new(data(3, 1), &call_log)).unwrap();
    for (part, seconds) in [
        ("data_wait", 0.0),
        ("forward", 9.0),
        ("backward", 0.0),
        ("optimizer", 0.0),
        ("hooks", 3.0),
        ("other", 6.0),
    ] {
        let measured = report.metrics[&format!("profile/{part}_s")];
        assert!((measured - seconds).abs() < 1e-9, "{part}: {measured} in the second epoch");
    }
    let table = seen.take();
    assert!(table[0].starts_with("where the time of 5 batches went (the first 1 not counted"), "{table:?}");
    assert!(table.iter().any(|line| line.starts_with("forward") && line.ends_with("50.0 %")), "{table:?}");
    let text = std::fs::read_to_string(root.path().join("profile.json")).unwrap();
    let profile: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(profile["parts"]["hooks"]["total_s"], 5.0);
}

struct Slow(Hand);

#[hook]
impl UpdateHook for Slow {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        spec.name("slow")
    }
    fn update(&mut self, _: &mut Gradients<'_>, _: &Update<'_>) -> HookResult {
        self.0.turn(5);
        Ok(())
    }
}

#[test]
fn time_of_hooks_for_activations_and_gradients_is_not_part_of_the_step() {
    let hand = Hand::at(0);
    let (watched, stepped) = (hand.clone(), hand.clone());
    let mut trainer = trainer(epochs(1)).with_clock(hand.clone());
    let options = ProfilerOptions { skip_first_batches: 0, print: false, filename: None };
    trainer.add_hook_type::<Profiler>(options).unwrap();
    trainer.add_hook(closure::on_activation("watch", move |_| watched.turn(7))).unwrap();
    trainer.add_hook(Slow(hand)).unwrap();
    let call_log = CallLog::default();
    let mut lab = Lab::new(Toy::default(), &call_log).with_handler(move |place, _| {
        if place == "training_step" {
            stepped.turn(3);
        }
    });
    let report = trainer.fit(&mut lab, &mut LabData::new(data(2, 1), &call_log)).unwrap();
    for (part, seconds) in [("forward", 6.0), ("hooks", 24.0), ("optimizer", 0.0), ("other", 0.0)] {
        let measured = report.metrics[&format!("profile/{part}_s")];
        assert!((measured - seconds).abs() < 1e-9, "{part}: {measured}");
    }
}

#[test]
fn a_model_is_summarized_before_training() {
    let root = tempfile::tempdir().unwrap();
    let (mut trainer, seen) = printing(root.path(), epochs(1));
    trainer.add_hook_type::<ModelSummary>(ModelSummaryOptions::default()).unwrap();
    trainer.fit(&mut Toy::default(), &mut data(1, 0)).unwrap();
    let expected = [
        "name    shape  parameters   share",
        "weight    [2]           2  66.7 %",
        "bias      [1]           1  33.3 %",
        "model: 3 parameters in 2 tensors, 12 B: F32 3 (12 B)",
    ];
    assert_eq!(seen.take(), expected);
}
