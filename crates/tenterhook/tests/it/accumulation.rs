//! `accumulate_grad_batches`: the result of an accumulation window.

use tenterhook::settings::{BatchLimit, ValInterval};
use tenterhook::{Report, Settings, Trainer, closure};

use crate::call_log::SharedVec;
use crate::lab::{epochs, trainer};
use crate::line::{Batches, Line, Points, first, points, second, third};

const LR: f32 = 0.0625;

fn windows_of(batches: u64) -> Settings {
    Settings { accumulate_grad_batches: batches, log_every_n_steps: 1, ..epochs(1) }
}

/// One epoch over these batches with these settings.
fn run(mut trainer: Trainer, train: Vec<Points>) -> (Line, Report) {
    let mut line = Line::new(f64::from(LR));
    let report = trainer.fit(&mut line, &mut Batches::of(train)).unwrap();
    (line, report)
}

fn gradient_at(w: f32, batch: &Points) -> f32 {
    let gradients = batch.points.iter().map(|(x, y)| 2.0 * (w * x - y) * x);
    gradients.sum::<f32>() / batch.points.len() as f32
}

#[test]
fn a_window_of_two_batches_equals_one_batch_of_both() {
    let (window, report) = run(trainer(windows_of(2)), vec![first(), second()]);
    let both: Vec<_> = [first().points, second().points].concat();
    let (merged, _) = run(trainer(windows_of(1)), vec![points(&both)]);
    assert_eq!(window.w().to_bits(), merged.w().to_bits());
    assert_eq!(report.progress.step, 1);
}

#[test]
fn the_loss_is_divided_in_a_short_last_window_too() {
    let (whole, _) = run(trainer(windows_of(2)), vec![first(), second()]);
    let (short, report) = run(trainer(windows_of(2)), vec![first(), second(), third()]);
    let expected = whole.w() - LR * (gradient_at(whole.w(), &third()) / 2.0);
    assert_eq!(short.w().to_bits(), expected.to_bits());
    assert_eq!(report.progress.step, 2);
}

#[test]
fn the_loss_that_is_seen_and_logged_is_undivided() {
    let seen = SharedVec::new();
    let mut trainer = trainer(windows_of(2));
    let (before, after) = (seen.clone(), seen.clone());
    let (end, step) = (seen.clone(), seen.clone());
    trainer.add_hook(closure::on_before_backward("before", move |cx| before.push(cx.loss.value()))).unwrap();
    trainer.add_hook(closure::on_after_backward("after", move |cx| after.push(cx.loss.value()))).unwrap();
    trainer
        .add_hook(closure::on_step_end("step", move |cx| {
            step.push(cx.loss.value());
            step.push(cx.metrics().get("train/loss").unwrap());
        }))
        .unwrap();
    trainer
        .add_hook(closure::on_train_batch_end("end", move |cx| end.push(cx.loss.as_ref().unwrap().value())))
        .unwrap();
    let (_, report) = run(trainer, vec![first(), second()]);
    // With w = 0 the loss is the mean square of y.
    let (one, two) = (2.5, 8.5);
    assert_eq!(seen.take(), [one, one, one, two, two, two, two, two]);
    assert!((report.metrics["train/loss"] - f64::midpoint(one, two)).abs() < 1e-12, "the epoch's mean");
}

#[test]
fn a_validation_inside_a_window_keeps_its_gradients() {
    let train = vec![first(), second(), third(), first()];
    let (undisturbed, _) = run(trainer(windows_of(2)), train.clone());
    let settings = Settings {
        val_check_interval: Some(ValInterval::Batches(BatchLimit::Count(1))),
        num_sanity_val_steps: 1,
        ..windows_of(2)
    };
    let mut line = Line::new(f64::from(LR));
    let mut data = Batches { train, validate: vec![third()] };
    let validations = SharedVec::new();
    let mut trainer = trainer(settings);
    let each = validations.clone();
    trainer.add_hook(closure::on_validation_end("count", move |_| each.push(()))).unwrap();
    trainer.fit(&mut line, &mut data).unwrap();
    assert_eq!(validations.take().len(), 1 + 4);
    assert_eq!(line.w().to_bits(), undisturbed.w().to_bits());
}

#[test]
fn gradients_grow_within_a_window_and_are_cleared_once_at_its_start() {
    let seen = SharedVec::new();
    let mut trainer = trainer(windows_of(2));
    let (cleared, grown) = (seen.clone(), seen.clone());
    trainer
        .add_hook(closure::on_before_zero_grad("cleared", move |cx| {
            cleared.push(("last window", cx.gradients.by_name("w").unwrap().to_vec()[0]));
        }))
        .unwrap();
    trainer
        .add_hook(closure::on_after_backward("grown", move |cx| {
            grown.push(("so far", cx.gradients.by_name("w").unwrap().to_vec()[0]));
        }))
        .unwrap();
    let (line, _) = run(trainer, vec![first(), second(), third()]);
    let half = |w: f32, batch: &Points| gradient_at(w, batch) / 2.0;
    let window = half(0.0, &first()) + half(0.0, &second());
    let w = -LR * window;
    assert_eq!(
        seen.take(),
        [
            ("last window", 0.0),
            ("so far", half(0.0, &first())),
            ("so far", window),
            ("last window", window),
            ("so far", half(w, &third())),
        ]
    );
    assert_eq!(line.w().to_bits(), (w - LR * half(w, &third())).to_bits());
}
