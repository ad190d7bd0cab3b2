//! Losses are lazy: when they are read, and when `train/loss` is logged.

use tenterhook::hooks::{Checkpoint, CheckpointOptions, EarlyStopping, EarlyStoppingOptions};
use tenterhook::{HookResult, Observer, Settings, StepEnd, TrainBatchEnd, Trainer, closure, hook};

use crate::call_log::SharedVec;
use crate::lab::{epochs, trainer};
use crate::line::{Batches, Line, Points, points};

fn six() -> Vec<Points> {
    vec![points(&[(1.0, 1.0)]); 6]
}

/// `train/loss` after every batch of one epoch of six batches, and the module, which counts loss reads.
fn logged(mut trainer: Trainer) -> (Vec<Option<f64>>, Line) {
    let seen = SharedVec::new();
    let metrics = seen.clone();
    trainer
        .add_hook(closure::on_train_batch_end("seen", move |cx| {
            metrics.push(cx.metrics().to_map().get("train/loss").copied());
        }))
        .unwrap();
    let mut line = Line::new(0.25);
    trainer.fit(&mut line, &mut Batches::of(six())).unwrap();
    (seen.take(), line)
}

fn every(steps: u64) -> Settings {
    Settings { log_every_n_steps: steps, ..epochs(1) }
}

/// The losses of the six batches: `w` is halfway to 1 after each.
const LOSSES: [f64; 6] = [1.0, 0.25, 0.0625, 0.015_625, 0.003_906_25, 0.000_976_562_5];

#[test]
fn the_loss_is_logged_every_n_steps() {
    let (seen, _) = logged(trainer(every(2)));
    let [_, second, _, fourth, _, sixth] = LOSSES.map(Some);
    assert_eq!(seen, [None, second, second, fourth, fourth, sixth]);
}

#[test]
fn at_the_end_of_an_epoch_the_mean_of_its_losses_is_logged() {
    for steps in [0, 4, 50] {
        let mut line = Line::new(0.25);
        let report = trainer(every(steps)).fit(&mut line, &mut Batches::of(six())).unwrap();
        assert!((report.metrics["train/loss"] - LOSSES.iter().sum::<f64>() / 6.0).abs() < 1e-12);
    }
}

#[test]
fn a_loss_is_read_lazily_and_once() {
    let reads = SharedVec::new();
    let mut trainer = trainer(every(50));
    let mut line = Line::new(0.25);
    let reads_so_far = line.loss_counter();
    let (end, counter) = (reads.clone(), reads_so_far.clone());
    trainer.add_hook(closure::on_train_epoch_end("unread", move |_| end.push(counter.count()))).unwrap();
    let (batch, counter) = (reads.clone(), reads_so_far);
    trainer.add_hook(closure::on_train_batch_end("batch", move |_| batch.push(counter.count()))).unwrap();
    trainer.fit(&mut line, &mut Batches::of(six())).unwrap();
    assert_eq!(reads.take(), [0, 0, 0, 0, 0, 0, 6], "all at once when the epoch ends");
    assert_eq!(line.norm_reads(), 0);
}

#[test]
fn a_loss_is_read_once_for_any_number_of_hooks() {
    let mut trainer = trainer(every(1));
    for name in ["a", "b", "c"] {
        trainer
            .add_hook(closure::on_step_end(name, |cx| {
                assert!(cx.loss.value() >= 0.0 && cx.latest_loss().is_some() && cx.average_loss().is_some());
            }))
            .unwrap();
        trainer
            .add_hook(closure::on_before_backward(format!("{name}_too"), |cx| {
                assert!(cx.loss.value() >= 0.0);
            }))
            .unwrap();
    }
    let mut line = Line::new(0.25);
    trainer.fit(&mut line, &mut Batches::of(six())).unwrap();
    assert_eq!(line.loss_reads(), 6);
}

#[test]
fn the_average_is_that_of_the_epoch_so_far() {
    let mut trainer = trainer(Settings { log_every_n_steps: 3, ..epochs(2) });
    let seen = SharedVec::new();
    let averages = seen.clone();
    trainer
        .add_hook(closure::on_step_end("average", move |cx| {
            averages.push((cx.latest_loss(), cx.average_loss()));
        }))
        .unwrap();
    trainer
        .fit(&mut Line::new(0.0), &mut Batches::of(vec![points(&[(1.0, 1.0)]), points(&[(1.0, 3.0)])]))
        .unwrap();
    let epoch = [(Some(1.0), Some(1.0)), (Some(9.0), Some(5.0))];
    assert_eq!(seen.take(), [epoch, epoch].concat());
}

struct Judge;

#[hook(reads = ["train/loss"])]
impl Observer for Judge {
    fn on_step_end(&mut self, cx: &StepEnd) -> HookResult {
        assert!((cx.metrics().get("train/loss").unwrap() - cx.loss.value()).abs() < f64::EPSILON);
        Ok(())
    }
}

#[test]
fn a_hook_that_declares_that_it_reads_the_loss_gets_the_current_one_at_every_step() {
    let mut trainer = trainer(every(50));
    trainer.add_hook(Judge).unwrap();
    assert_eq!(logged(trainer).0, LOSSES.map(Some));
}

#[test]
fn it_does_so_also_when_it_joins_or_leaves_while_training_runs() {
    let mut joins = trainer(every(50));
    joins
        .add_hook(closure::on_train_batch_end("add", |cx: &TrainBatchEnd<'_>| {
            if cx.step == 3 {
                cx.hooks().add(Judge);
            }
            if cx.step == 5 {
                cx.hooks().disable("judge");
            }
        }))
        .unwrap();
    let (seen, _) = logged(joins);
    let [_, _, _, fourth, fifth, _] = LOSSES.map(Some);
    assert_eq!(seen, [None, None, None, fourth, fifth, fifth]);
}

#[test]
fn a_monitor_receives_every_loss_only_if_it_compares_losses_of_steps() {
    let directory = tempfile::tempdir().unwrap();
    let checkpoint = |every_n_train_steps| {
        let options = CheckpointOptions {
            monitor: Some("train/loss".into()),
            every_n_train_steps,
            ..CheckpointOptions::default()
        };
        let mut trainer = trainer(every(50)).with_checkpoints_in(directory.path());
        trainer.add_hook(Checkpoint::new(options).unwrap()).unwrap();
        trainer
    };
    assert_eq!(logged(checkpoint(Some(1))).0, LOSSES.map(Some));
    assert_eq!(logged(checkpoint(None)).0, [None; 6]);
    let mut stopping = trainer(every(50));
    stopping.add_hook(EarlyStopping::new(EarlyStoppingOptions::new("train/loss")).unwrap()).unwrap();
    assert_eq!(logged(stopping).0, [None; 6]);
}
