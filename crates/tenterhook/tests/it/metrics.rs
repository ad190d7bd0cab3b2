//! Logged metrics: when they are visible, and that a sanity check leaves none.

use std::collections::BTreeMap;

use tenterhook::random::RandomStream;
use tenterhook::settings::{BatchLimit, ValInterval};
use tenterhook::toy::Toy;
use tenterhook::{LogOptions, Reduce, Settings, closure};

use crate::call_log::{CallLog, SharedVec};
use crate::lab::{Lab, data, epochs, trainer};

/// A module that logs the batch's number in the given ways, in its training step.
fn logging(ways: &'static [(&'static str, LogOptions)]) -> Lab {
    Lab::new(Toy::default(), &CallLog::default()).with_handler(move |place, cx| {
        if place == "training_step" {
            let value = [3.0, 1.0, 2.0][usize::try_from(cx.batch_index()).unwrap()];
            for (name, options) in ways {
                cx.log_with(name, value, *options);
            }
        }
    })
}

#[test]
fn a_step_metric_is_seen_at_once_and_an_epoch_metric_at_the_end() {
    const WAYS: &[(&str, LogOptions)] =
        &[("step", LogOptions::STEP), ("epoch", LogOptions::EPOCH), ("both", LogOptions::BOTH)];
    let mut trainer = trainer(epochs(1));
    let seen = SharedVec::new();
    let (at_batch, at_epoch) = (seen.clone(), seen.clone());
    let names = ["step", "epoch", "both", "both_step", "both_epoch"];
    trainer
        .add_hook(closure::on_train_batch_end("batch", move |cx| {
            at_batch.push(names.map(|name| cx.metrics().get(name)));
        }))
        .unwrap();
    trainer
        .add_hook(closure::on_train_epoch_end("epoch", move |cx| {
            at_epoch.push(names.map(|name| cx.metrics().get(name)));
        }))
        .unwrap();
    trainer.fit(&mut logging(WAYS), &mut data(3, 0)).unwrap();
    let batch = |value: f64| [Some(value), None, Some(value), Some(value), None];
    let end = [Some(2.0), Some(2.0), Some(2.0), Some(2.0), Some(2.0)];
    assert_eq!(seen.take(), [batch(3.0), batch(1.0), batch(2.0), end]);
}

#[test]
fn values_of_an_epoch_are_aggregated_as_configured() {
    const fn epoch(reduce: Reduce) -> LogOptions {
        LogOptions { reduce, ..LogOptions::EPOCH }
    }
    const WAYS: &[(&str, LogOptions)] = &[
        ("mean", LogOptions::EPOCH),
        ("sum", epoch(Reduce::Sum)),
        ("min", epoch(Reduce::Min)),
        ("max", epoch(Reduce::Max)),
        ("last", epoch(Reduce::Last)),
    ];
    // The validations within the epoch must not change its aggregated metrics.
    let report = trainer(Settings {
        val_check_interval: Some(tenterhook::settings::ValInterval::Batches(
            tenterhook::settings::BatchLimit::Count(1),
        )),
        ..epochs(2)
    })
    .fit(&mut logging(WAYS), &mut data(3, 1))
    .unwrap();
    let expected = [("mean", 2.0), ("sum", 6.0), ("min", 1.0), ("max", 3.0), ("last", 2.0)];
    for (name, value) in expected {
        assert!((report.metrics[name] - value).abs() < 1e-12, "{name} is {}", report.metrics[name]);
    }
}

#[test]
fn a_mean_is_weighted_by_the_size_of_the_batches() {
    use crate::line::{Batches, Line, points};
    let validate = vec![points(&[(1.0, 1.0)]), points(&[(1.0, 2.0), (1.0, 2.0), (1.0, 2.0)])];
    let mut batches = Batches { train: validate.clone(), validate };
    let report = trainer(epochs(1)).validate(&mut Line::new(0.25), &mut batches).unwrap();
    assert!((report.metrics["val/loss"] - (1.0 + 3.0 * 4.0) / 4.0).abs() < 1e-12, "{:?}", report.metrics);
}

#[test]
fn metrics_that_a_module_logs_at_epoch_end_are_visible_to_monitors() {
    let mut module = Lab::new(Toy::default(), &CallLog::default()).with_handler(move |place, cx| {
        if place == "on_train_epoch_end" {
            cx.log("score", cx.epoch() as f64);
        }
    });
    let mut trainer = trainer(epochs(3));
    let options = tenterhook::hooks::EarlyStoppingOptions {
        mode: Some(tenterhook::hooks::Mode::Max),
        stopping_threshold: Some(0.5),
        ..tenterhook::hooks::EarlyStoppingOptions::new("score")
    };
    trainer.add_hook(tenterhook::hooks::EarlyStopping::new(options).unwrap()).unwrap();
    let report = trainer.fit(&mut module, &mut data(1, 0)).unwrap();
    assert_eq!(report.progress.epochs_done, 2, "stopped by the value of the second epoch");
}

/// The values that a sanity check could change.
#[derive(Debug, PartialEq)]
struct Traces {
    seen: Vec<BTreeMap<String, f64>>,
    drawn: Vec<f64>,
    at_the_end: BTreeMap<String, f64>,
}

/// A run with or without a sanity check: the metrics seen and the numbers drawn from training on.
fn run(sanity_steps: i64) -> Traces {
    let mut trainer = trainer(Settings { num_sanity_val_steps: sanity_steps, ..epochs(2) });
    let (metrics, drawn) = (SharedVec::new(), SharedVec::new());
    let (seen, numbers) = (metrics.clone(), drawn.clone());
    trainer.add_hook(closure::on_fit_start("early", |cx| cx.log("early", cx.rng().uniform()))).unwrap();
    trainer
        .add_hook(closure::on_validation_batch_end("noisy", |cx| {
            for _ in 0..3 {
                cx.log("noise", cx.rng().uniform());
            }
        }))
        .unwrap();
    trainer
        .add_hook(closure::on_train_batch_start("seen", move |cx| seen.push(cx.metrics().to_map())))
        .unwrap();
    trainer
        .add_hook(closure::on_train_epoch_end("drawn", move |cx| numbers.push(cx.rng().uniform())))
        .unwrap();
    let report = trainer.fit(&mut Toy::default(), &mut data(2, 2)).unwrap();
    Traces { seen: metrics.take(), drawn: drawn.take(), at_the_end: report.metrics }
}

#[test]
fn a_sanity_check_leaves_no_trace_in_metrics_and_random_streams() {
    let with = run(2);
    assert_eq!(with, run(0));
    assert_eq!(
        with.seen[0].keys().collect::<Vec<_>>(),
        ["early"],
        "what was logged before it is still there"
    );
}

#[test]
fn a_hook_that_draws_in_the_sanity_check_draws_the_same_afterwards() {
    let drawn = |sanity_steps| {
        let mut trainer = trainer(Settings { num_sanity_val_steps: sanity_steps, ..epochs(1) });
        let drawn = SharedVec::new();
        let seen = drawn.clone();
        trainer
            .add_hook(closure::on_validation_start("dice", move |cx| {
                let number = cx.rng().uniform();
                if cx.phase != tenterhook::Phase::SanityCheck {
                    seen.push(number);
                }
            }))
            .unwrap();
        trainer.fit(&mut Toy::default(), &mut data(2, 1)).unwrap();
        drawn.take()
    };
    assert_eq!(drawn(1), drawn(0));
    assert_eq!(drawn(0), [RandomStream::new(0, "hook", "dice").uniform()]);
}

#[test]
fn a_value_belongs_to_the_current_step_or_else_to_the_last() {
    let every_batch = Some(ValInterval::Batches(BatchLimit::Count(1)));
    let settings = Settings { accumulate_grad_batches: 2, val_check_interval: every_batch, ..epochs(1) };
    let mut trainer = trainer(settings);
    let seen = SharedVec::new();
    let (batches, validations) = (seen.clone(), seen.clone());
    trainer
        .add_hook(closure::on_train_batch_end("batch", move |cx| {
            batches.push((cx.step, cx.metrics().step_of("index")));
        }))
        .unwrap();
    trainer
        .add_hook(closure::on_validation_end("validation", move |cx| {
            validations.push((cx.step, cx.metrics().step_of("val/loss")));
        }))
        .unwrap();
    let mut lab = Lab::new(Toy::default(), &CallLog::default()).with_handler(|place, cx| {
        if place == "training_step" {
            cx.log("index", cx.batch_index() as f64);
        }
    });
    trainer.fit(&mut lab, &mut data(3, 1)).unwrap();
    // Each batch and the validation after it. The last accumulation window is shorter.
    let of_steps = [(0, Some(1)), (0, Some(0)), (1, Some(1)), (1, Some(1)), (2, Some(2)), (2, Some(2))];
    assert_eq!(seen.take(), of_steps);
    let fresh = seen.clone();
    trainer
        .add_hook(closure::on_train_start("second", move |cx| {
            fresh.push((cx.step, cx.metrics().step_of("index")));
        }))
        .unwrap();
    trainer.fit(&mut lab, &mut data(3, 1)).unwrap();
    assert_eq!(seen.take()[0], (0, Some(0)), "another fit counts anew");
}
