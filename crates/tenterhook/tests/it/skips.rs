//! The three skips: no loss, no step, no update. None of them counts as a step.

use tenterhook::module::{Interval, SchedulerPlan};
use tenterhook::toy::Toy;
use tenterhook::{Decision, Progress, Report, Settings, StepOutput, Trainer, closure};

use crate::call_log::{CallLog, Recorder, SharedVec};
use crate::lab::{Lab, data, epochs, trainer};
use crate::line::{Batches, Line, Points, first, points, second, third};

type Say = fn() -> Decision;

/// Adds a hook with this decision at one event of one batch.
fn say(trainer: &mut Trainer, event: &str, batch: u64, decision: Say) {
    let at = move |progress: &Progress| {
        if progress.batches == batch { decision() } else { Decision::CONTINUE }
    };
    match event {
        "on_train_batch_start" => trainer.add_hook(closure::on_train_batch_start("skip", move |cx| at(cx))),
        "on_before_forward" => trainer.add_hook(closure::on_before_forward("skip", move |cx| at(cx))),
        "on_after_backward" => trainer.add_hook(closure::on_after_backward("skip", move |cx| at(cx))),
        "on_before_optimizer_step" => {
            trainer.add_hook(closure::on_before_optimizer_step("skip", move |cx| at(cx)))
        }
        "on_train_batch_end" => trainer.add_hook(closure::on_train_batch_end("skip", move |cx| at(cx))),
        other => panic!("no such case: {other}"),
    }
    .unwrap();
}

/// How the second of three batches is skipped.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Skip {
    NoLoss,
    Batch,
    Update,
}

const SKIPS: [Skip; 3] = [Skip::NoLoss, Skip::Batch, Skip::Update];

fn skip_second(trainer: &mut Trainer, skip: Skip) {
    match skip {
        Skip::NoLoss => {}
        Skip::Batch => say(trainer, "on_train_batch_start", 2, Decision::skip_batch),
        Skip::Update => say(trainer, "on_after_backward", 2, Decision::skip_update),
    }
}

#[test]
fn a_skipped_batch_makes_no_step_of_any_kind() {
    for skip in SKIPS {
        let call_log = CallLog::default();
        let mut trainer = trainer(epochs(1));
        trainer.add_hook(Recorder::new("all", &call_log)).unwrap();
        skip_second(&mut trainer, skip);
        let losses = SharedVec::new();
        let seen = losses.clone();
        trainer
            .add_hook(closure::on_train_batch_end("losses", move |cx| {
                seen.push((cx.step, cx.loss.is_some()));
            }))
            .unwrap();
        let toy = Toy::default().with_scheduler(SchedulerPlan::every(Interval::Step));
        let mut lab = Lab::new(toy, &call_log).with_step(move |lab, batch, cx| {
            let none = skip == Skip::NoLoss && cx.batch_index() == 1;
            Ok(if none { StepOutput::NoLoss } else { StepOutput::Loss(lab.toy.loss(batch)) })
        });
        let report = trainer.fit(&mut lab, &mut data(3, 0)).unwrap();
        let count = |source, place| call_log.places(source).iter().filter(|at| **at == place).count();
        assert_eq!(report.progress.step, 2, "{skip:?}");
        assert_eq!(count("module", "optimizer_step"), 2, "{skip:?}");
        assert_eq!(count("module", "lr_scheduler_step"), 2, "{skip:?}");
        assert_eq!(count("hook:all", "on_step_end"), 2, "{skip:?}");
        assert_eq!(count("hook:all", "on_train_batch_end"), 3, "{skip:?}");
        let steps = if skip == Skip::Batch { 2 } else { 3 };
        assert_eq!(count("module", "training_step"), steps, "{skip:?}");
        let backwards = if skip == Skip::Update { 3 } else { 2 };
        assert_eq!(count("hook:all", "on_after_backward"), backwards, "{skip:?}");
        assert_eq!(losses.take(), [(1, true), (1, skip == Skip::Update), (2, true)], "{skip:?}");
    }
}

/// `w` after one epoch over these batches.
fn fitted(mut trainer: Trainer, train: Vec<Points>) -> (f32, Report) {
    let mut line = Line::new(0.0625);
    let report = trainer.fit(&mut line, &mut Batches::of(train)).unwrap();
    (line.w(), report)
}

#[test]
fn training_continues_as_if_the_skipped_batch_did_not_exist() {
    let (expected, _) = fitted(trainer(epochs(1)), vec![first(), third()]);
    for skip in SKIPS {
        let mut trainer = trainer(epochs(1));
        skip_second(&mut trainer, skip);
        let skipped = if skip == Skip::NoLoss { points(&[]) } else { second() };
        let (w, _) = fitted(trainer, vec![first(), skipped, third()]);
        assert_eq!(w.to_bits(), expected.to_bits(), "{skip:?}");
    }
}

fn windows_of_two() -> Settings {
    Settings { accumulate_grad_batches: 2, ..epochs(1) }
}

#[test]
fn a_skip_at_the_end_of_a_window_drops_it_and_leaves_the_next_one_clean() {
    let (expected, _) = fitted(trainer(windows_of_two()), vec![third(), first()]);
    for skip in SKIPS {
        let mut trainer = trainer(windows_of_two());
        skip_second(&mut trainer, skip);
        let skipped = if skip == Skip::NoLoss { points(&[]) } else { second() };
        let (w, report) = fitted(trainer, vec![first(), skipped, third(), first()]);
        assert_eq!(w.to_bits(), expected.to_bits(), "{skip:?}");
        assert_eq!(report.progress.step, 1, "{skip:?}");
    }
}

#[test]
fn an_update_skipped_within_a_window_is_the_update_of_that_window() {
    let (expected, _) = fitted(trainer(windows_of_two()), vec![third(), first()]);
    let mut trainer = trainer(windows_of_two());
    say(&mut trainer, "on_after_backward", 1, Decision::skip_update);
    let (w, report) = fitted(trainer, vec![first(), second(), third(), first()]);
    assert_eq!(report.progress.step, 1, "no update from the gradients of the first batch");
    assert_eq!(w.to_bits(), expected.to_bits());
}

#[test]
fn a_window_that_begins_with_a_skipped_batch_is_made_of_the_rest() {
    for skip in [Skip::NoLoss, Skip::Batch] {
        let mut trainer = trainer(windows_of_two());
        if skip == Skip::Batch {
            say(&mut trainer, "on_train_batch_start", 3, Decision::skip_batch);
        }
        let skipped = if skip == Skip::NoLoss { points(&[]) } else { second() };
        let (w, report) = fitted(trainer, vec![first(), second(), skipped, third()]);
        let (before, _) = fitted(crate::lab::trainer(windows_of_two()), vec![first(), second()]);
        let gradient: f32 = third().points.iter().map(|(x, y)| 2.0 * (before * x - y) * x).sum::<f32>() / 2.0;
        assert_eq!(w.to_bits(), (before - 0.0625 * (gradient / 2.0)).to_bits(), "{skip:?}");
        assert_eq!(report.progress.step, 2, "{skip:?}");
    }
}

#[test]
fn an_update_can_be_skipped_until_just_before_it() {
    let mut trainer = trainer(epochs(1));
    say(&mut trainer, "on_before_optimizer_step", 2, Decision::skip_update);
    let (w, report) = fitted(trainer, vec![first(), second(), third()]);
    let (expected, _) = fitted(crate::lab::trainer(epochs(1)), vec![first(), third()]);
    assert_eq!((w.to_bits(), report.progress.step), (expected.to_bits(), 2));
}

#[test]
fn a_skip_that_comes_too_late_skips_nothing_and_not_the_next_batch() {
    let too_late: [(&str, Say); 3] = [
        ("on_before_forward", Decision::skip_batch),
        ("on_train_batch_end", Decision::skip_batch),
        ("on_train_batch_end", Decision::skip_update),
    ];
    let train = || vec![first(), second(), third()];
    let (expected, _) = fitted(trainer(epochs(1)), train());
    for (event, decision) in too_late {
        let mut trainer = trainer(epochs(1));
        say(&mut trainer, event, 2, decision);
        let (w, report) = fitted(trainer, train());
        assert_eq!((w.to_bits(), report.progress.step), (expected.to_bits(), 3), "{event}");
    }
}

#[test]
fn an_epoch_in_which_everything_is_skipped_ends_like_any_other() {
    let mut trainer = trainer(epochs(2));
    trainer.add_hook(closure::on_train_batch_start("skip_all", |_| Decision::skip_batch())).unwrap();
    let report = trainer.fit(&mut Toy::default(), &mut data(2, 1)).unwrap();
    assert_eq!((report.progress.step, report.progress.epochs_done), (0, 2));
    assert!(!report.metrics.contains_key("train/loss"), "{:?}", report.metrics);
}
