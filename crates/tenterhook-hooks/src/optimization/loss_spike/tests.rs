use tenterhook_core::{Event, Hook};
use tenterhook_testkit::Rig;

use super::*;

fn rig(options: LossSpikeOptions) -> Rig<LossSpike> {
    Rig::new(LossSpike::new(options).expect("they fit"))
}

/// Reduces the rates after more than two losses above 5.
fn options() -> LossSpikeOptions {
    LossSpikeOptions { threshold: 5.0, count: 2, ..LossSpikeOptions::default() }
}

/// The steps at which the rates are reduced, with one of these losses per step.
fn acts(options: LossSpikeOptions, losses: &[f64]) -> Vec<u64> {
    let mut rig = rig(options);
    let steps = losses
        .iter()
        .zip(1..)
        .filter(|(loss, step)| !rig.step(*step).loss(**loss).on_train_batch_end().decision.is_continue());
    steps.map(|(_, step)| step).collect()
}

#[test]
fn the_defaults_halve_the_rates_after_more_than_ten_losses_above_ten() {
    let mut rig = rig(LossSpikeOptions::default());
    rig.lr(0.1).loss(10.0).on_train_batch_end();
    assert_eq!(rig.hook().high_losses(), 0, "ten is not above ten");
    rig.loss(15.0);
    for _ in 0..10 {
        rig.on_train_batch_end();
    }
    assert_eq!((rig.hook().high_losses(), rig.decisions()), (10, vec![]));
    rig.on_train_batch_end();
    assert_eq!(rig.decisions(), [(Event::TrainBatchEnd, Decision::scale_lr(0.5))]);
    assert_eq!(rig.learning_rates(), [0.05]);
    let said = rig.said();
    assert_eq!(said[0].1, "11 losses were above 10; the learning rates are multiplied by 0.5");
    assert_eq!(rig.hook().high_losses(), 0, "it counts anew");
}

#[test]
fn a_reduction_resets_the_count() {
    assert_eq!(acts(options(), &[9.0; 7]), [3, 6]);
}

#[test]
fn other_losses_reset_the_count_only_if_consecutive() {
    let losses = [9.0, 9.0, 1.0, 9.0, 9.0, 9.0];
    assert_eq!(acts(options(), &losses), [4]);
    assert_eq!(acts(LossSpikeOptions { consecutive: true, ..options() }, &losses), [6]);
}

#[test]
fn losses_in_the_cooldown_are_not_counted() {
    assert_eq!(acts(LossSpikeOptions { cooldown: 2, ..options() }, &[9.0; 10]), [3, 8]);
}

#[test]
fn threshold_count_and_factor_are_configurable() {
    assert_eq!(acts(LossSpikeOptions { threshold: 9.0, ..options() }, &[9.0; 9]), [0; 0]);
    assert_eq!(acts(LossSpikeOptions { count: 0, ..options() }, &[9.0; 3]), [1, 2, 3]);
    let mut rig = rig(LossSpikeOptions { factor: 0.1, count: 0, ..options() });
    rig.lr(1.0).loss(9.0).on_train_batch_end();
    assert_eq!(rig.learning_rates(), [0.1]);
}

#[test]
fn no_rate_falls_below_min_lr() {
    let mut rig = rig(LossSpikeOptions { min_lr: 0.1, count: 0, ..options() });
    rig.optimizers([("a", &[0.4, 0.8]), ("b", &[0.1]), ("c", &[0.125, 0.0]), ("d", &[0.05])]);
    rig.loss(9.0).on_train_batch_end();
    assert_eq!(rig.learning_rates(), [0.2, 0.4, 0.1, 0.1, 0.0, 0.05], "what is lower already stays");
    rig.on_train_batch_end();
    rig.on_train_batch_end();
    assert_eq!(rig.learning_rates(), [0.1, 0.2, 0.1, 0.1, 0.0, 0.05]);
    let said: Vec<_> = rig.said().into_iter().map(|(_, text)| text).collect();
    assert_eq!(
        said,
        [
            "1 loss was above 5; the learning rates are reduced to no less than `min_lr` = 0.1",
            "1 loss was above 5; the learning rates are reduced to no less than `min_lr` = 0.1",
            "1 loss was above 5; the learning rates stay at `min_lr` = 0.1",
        ]
    );
}

#[test]
fn a_batch_without_a_loss_and_a_nan_are_not_counted_and_an_infinite_one_is_high() {
    let mut rig = rig(LossSpikeOptions { consecutive: true, ..options() });
    rig.loss(f64::INFINITY).on_train_batch_end();
    rig.loss(f64::NAN).on_train_batch_end();
    rig.no_loss().on_train_batch_end();
    assert_eq!(rig.hook().high_losses(), 1);
}

#[test]
fn a_resumed_run_reduces_at_the_same_steps() {
    let options = LossSpikeOptions { cooldown: 2, ..options() };
    for split in 1..10 {
        let mut first = rig(options.clone());
        let mut found = Vec::new();
        for step in 1..=split {
            let acts = !first.step(step).loss(9.0).on_train_batch_end().decision.is_continue();
            found.extend(acts.then_some(step));
        }
        let mut rig = first.resumed(LossSpike::new(options.clone()).expect("they fit"));
        for step in split + 1..=10 {
            let acts = !rig.step(step).loss(9.0).on_train_batch_end().decision.is_continue();
            found.extend(acts.then_some(step));
        }
        assert_eq!(found, [3, 8], "resumed after {split}");
    }
}

#[test]
fn it_declares_that_it_reads_every_loss() {
    assert_eq!(rig(options()).hook().spec().reads, ["train/loss"]);
}

#[test]
fn invalid_values_are_refused_by_key() {
    for (options, begins) in [
        (LossSpikeOptions { threshold: f64::NAN, ..options() }, "`threshold` is NaN"),
        (LossSpikeOptions { factor: 1.0, ..options() }, "`factor` is 1"),
        (LossSpikeOptions { factor: 0.0, ..options() }, "`factor` is 0"),
        (LossSpikeOptions { min_lr: -1.0, ..options() }, "`min_lr` is -1"),
    ] {
        let error = LossSpike::new(options).expect_err("refused").to_string();
        assert!(error.starts_with(begins), "{error}");
    }
    for wrong in ["count = -1", "cooldown = \"5 steps\"", "consecutive = 1", "treshold = 1.0"] {
        assert!(toml::from_str::<LossSpikeOptions>(wrong).is_err(), "{wrong}");
    }
}
