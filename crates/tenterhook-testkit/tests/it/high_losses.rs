//! A complete test of a controller, as in the documentation of the test kit.

use std::time::Duration;

use tenterhook_core::{Controller, Decision, Event, HookResult, TrainBatchEnd, TrainStart, hook};
use tenterhook_testkit::{FitScript, Rig};

struct HalveLr {
    threshold: f64,
    high_losses: u32,
    start_time: Option<Duration>,
}

impl HalveLr {
    fn new(threshold: f64) -> HalveLr {
        HalveLr { threshold, high_losses: 0, start_time: None }
    }
}

#[hook(reads = ["train/loss"])]
impl Controller for HalveLr {
    fn on_train_start(&mut self, cx: &TrainStart) -> HookResult<Decision> {
        self.start_time = Some(cx.elapsed());
        Ok(Decision::CONTINUE)
    }

    fn on_train_batch_end(&mut self, cx: &TrainBatchEnd) -> HookResult<Decision> {
        if cx.loss.as_ref().is_none_or(|loss| loss.value() <= self.threshold) {
            return Ok(Decision::CONTINUE);
        }
        self.high_losses += 1;
        Ok(if self.high_losses > 10 { Decision::scale_lr(0.5) } else { Decision::CONTINUE })
    }
}

#[test]
fn a_controller_halves_the_learning_rates_after_more_than_ten_high_losses() {
    let mut rig = Rig::new(HalveLr::new(5.0));
    rig.optimizers([("adam", &[0.001, 0.01]), ("sgd", &[0.1])]);

    rig.elapsed(Duration::from_secs(2)).on_train_start();
    assert_eq!(rig.hook().start_time, Some(Duration::from_secs(2)));

    rig.loss(15.0).on_train_batch_end();
    assert_eq!(rig.hook().high_losses, 1);
    for _ in 0..9 {
        assert!(rig.on_train_batch_end().decision.is_continue());
    }
    assert_eq!(rig.learning_rates(), [0.001, 0.01, 0.1]);

    assert_eq!(rig.on_train_batch_end().decision, Decision::scale_lr(0.5));
    assert_eq!(rig.decisions(), [(Event::TrainBatchEnd, Decision::scale_lr(0.5))]);
    assert_eq!(rig.learning_rates(), [0.0005, 0.005, 0.05]);
}

#[test]
fn low_losses_and_batches_without_one_do_not_count() {
    let mut rig = Rig::new(HalveLr::new(5.0));
    rig.loss(5.0).on_train_batch_end();
    rig.no_loss().on_train_batch_end();
    assert_eq!(rig.hook().high_losses, 0);
}

#[test]
fn a_fit_can_be_played_in_parts() {
    let script =
        FitScript::new(2, 8).losses(|batch| Some(if batch.is_multiple_of(2) { 1.0 } else { 6.0 })).script();
    let middle = script.iter().position(|entry| entry.progress.epoch == 1).expect("there is a second epoch");
    let mut rig = Rig::new(HalveLr::new(5.0));
    rig.play(&script[..middle]);
    assert_eq!(rig.hook().high_losses, 4);
    rig.play(&script[middle..]);
    assert_eq!(rig.hook().high_losses, 8);
    assert!(rig.decisions().is_empty());
    assert_eq!(rig.deliveries().len(), script.len());
}
