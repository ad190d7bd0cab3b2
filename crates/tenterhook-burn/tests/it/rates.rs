//! Learning rates: schedules, and changes by controllers.

use tenterhook::schedule::{Plateau, from_fn};
use tenterhook::{Decision, closure};
use tenterhook_burn::{Burn, Optimizer, Schedule};

use crate::lab::{Bench, Numbers, SharedVec, Slope, epochs, numbers, numbers_of, sgd, trainer};

/// Halves the learning rate after every step.
fn halving() -> Optimizer {
    sgd(1.0).schedule(Schedule::per_step(from_fn(|tick| 0.5_f64.powf(tick.count as f64))))
}

/// Trains on gradients of 1, and returns the learning rates of the steps.
fn rates(
    slope: &mut Burn<Slope>,
    steps: usize,
    decide: impl Fn(u64) -> Decision + Send + 'static,
) -> Vec<f64> {
    let seen = SharedVec::new();
    let see = seen.clone();
    let mut trainer = trainer(epochs(1));
    trainer.add_hook(closure::on_train_batch_start("decide", move |cx| decide(cx.batch.index))).unwrap();
    trainer.add_hook(closure::on_step_end("see", move |cx| see.push(cx.lr))).unwrap();
    trainer.fit(slope, &mut numbers(&vec![Numbers([1.0, 1.0], [1.0]); steps])).unwrap();
    seen.take()
}

#[test]
fn a_schedule_steps_after_every_optimizer_step() {
    let bench = Bench::new();
    let mut slope = bench.slope().with_optimizers(|_| Ok(halving().into()));
    assert_eq!(rates(&mut slope, 4, |_| Decision::CONTINUE), [1.0, 0.5, 0.25, 0.125]);
    assert_eq!(numbers_of(&slope).1, [-1.875]);
}

#[test]
fn a_controllers_factor_stays_through_the_schedule() {
    let bench = Bench::new();
    let mut slope = bench.slope().with_optimizers(|_| Ok(halving().into()));
    let decide = |batch| if batch == 1 { Decision::scale_lr(4.0) } else { Decision::CONTINUE };
    assert_eq!(rates(&mut slope, 4, decide), [1.0, 2.0, 1.0, 0.5]);
    assert_eq!(numbers_of(&slope).1, [-4.5]);
}

#[test]
fn a_schedule_continues_from_the_learning_rate_that_a_controller_set() {
    let bench = Bench::new();
    let mut slope = bench.slope().with_optimizers(|_| Ok(halving().into()));
    let decide = |batch| if batch == 2 { Decision::set_lr(8.0) } else { Decision::CONTINUE };
    assert_eq!(rates(&mut slope, 4, decide), [1.0, 0.5, 8.0, 4.0]);
}

#[test]
fn several_schedules_multiply() {
    let bench = Bench::new();
    let mut slope = bench.slope().with_optimizers(|_| {
        let from_two = Schedule::per_step(from_fn(|tick| if tick.count < 2 { 1.0 } else { 0.1 }));
        Ok(halving().schedule(from_two).into())
    });
    let found = rates(&mut slope, 4, |_| Decision::CONTINUE);
    let expected = [1.0, 0.5, 0.025, 0.0125];
    assert!(
        found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-12),
        "{found:?}"
    );
}

#[test]
fn a_plateau_of_the_metric_lowers_the_learning_rate() {
    let bench = Bench::new();
    let mut slope = bench.slope().with_optimizers(|_| {
        let mut plateau = Plateau::default();
        (plateau.factor, plateau.patience) = (0.5, 1);
        Ok(sgd(1.0).schedule(Schedule::on_plateau_of("val/loss", plateau)).into())
    });
    let seen = SharedVec::new();
    let see = seen.clone();
    let mut trainer = trainer(epochs(6));
    trainer.add_hook(closure::on_step_end("see", move |cx| see.push(cx.lr))).unwrap();
    trainer.fit(&mut slope, &mut numbers(&[Numbers([1.0, 1.0], [1.0])])).unwrap();
    // The first value is the best; the second without improvement after it exceeds the patience.
    assert_eq!(seen.take(), [1.0, 1.0, 1.0, 0.5, 0.5, 0.25]);
}
