//! Gradient accumulation.

use tenterhook::{Settings, closure};

use crate::lab::{Bench, Numbers, SharedVec, epochs, numbers, numbers_of, sgd, trainer};

const FIRST: Numbers = Numbers([1.0, -2.0], [8.0]);
const SECOND: Numbers = Numbers([3.0, 0.5], [-4.0]);

#[test]
fn two_batches_make_one_step_with_their_mean_gradient() {
    let bench = Bench::new();
    let mut slope = bench.slope().with_optimizers(|_| Ok(sgd(1.0).into()));
    let seen = SharedVec::new();
    let see = seen.clone();
    let mut trainer = trainer(Settings { accumulate_grad_batches: 2, ..epochs(1) });
    let gradients = closure::on_before_optimizer_step("see", move |cx| {
        see.push(cx.gradients.by_name("weight").unwrap().to_vec());
    });
    trainer.add_hook(gradients).unwrap();
    let report = trainer.fit(&mut slope, &mut numbers(&[FIRST, SECOND])).unwrap();
    assert_eq!(report.progress.step, 1);
    assert_eq!(seen.take(), [[2.0, -0.75]]);
    assert_eq!(numbers_of(&slope), (vec![-2.0, 0.75], vec![-2.0]));
}

#[test]
fn a_window_does_not_see_the_gradients_of_the_last() {
    let bench = Bench::new();
    let mut slope = bench.slope().with_optimizers(|_| Ok(sgd(1.0).into()));
    trainer(epochs(1)).fit(&mut slope, &mut numbers(&[FIRST, SECOND])).unwrap();
    assert_eq!(numbers_of(&slope), (vec![-4.0, 1.5], vec![-4.0]));
}

#[test]
fn gradients_kept_for_hooks_are_cleared_before_the_next_step() {
    let bench = Bench::new();
    let mut slope = bench.slope().with_optimizers(|_| Ok(sgd(1.0).into()));
    let seen = SharedVec::new();
    let see = seen.clone();
    let mut trainer = trainer(epochs(1));
    let used = closure::on_after_optimizer_step("used", move |cx| {
        see.push(cx.gradients.by_name("inner.bias").unwrap().to_vec());
    });
    trainer.add_hook(used).unwrap();
    trainer.fit(&mut slope, &mut numbers(&[FIRST, SECOND])).unwrap();
    assert_eq!(seen.take(), [[8.0], [-4.0]]);
    assert_eq!(numbers_of(&slope), (vec![-4.0, 1.5], vec![-4.0]));
}
