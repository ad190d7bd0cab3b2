//! The results of a batch that hooks receive: in evaluations, and by the plain name `loss`.

use tenterhook::toy::{Toy, ToyData};
use tenterhook::{Key, Settings, closure};

use crate::call_log::SharedVec;
use crate::lab::{data, epochs, trainer};

/// The loss, the logged metrics, and the names of the outputs with their number of values.
type Batch = (Option<f64>, Vec<String>, Vec<(String, usize)>);

macro_rules! batch {
    ($cx:expr) => {{
        let outputs = $cx.outputs.iter().map(|output| (output.name().to_owned(), output.to_vec().len()));
        ($cx.loss, $cx.batch_metrics.keys().cloned().collect(), outputs.collect()) as Batch
    }};
}

#[test]
fn the_end_of_an_evaluation_batch_has_its_loss_its_metrics_and_its_outputs() {
    let (validated, tested, predicted) = (SharedVec::new(), SharedVec::new(), SharedVec::new());
    let (v, t, p) = (validated.clone(), tested.clone(), predicted.clone());
    let mut trainer = trainer(epochs(1));
    trainer.add_hook(closure::on_validation_batch_end("v", move |cx| v.push(batch!(cx)))).unwrap();
    // A metric that a hook logs in the same loop is not one of the step.
    trainer.add_hook(closure::on_validation_batch_start("w", |cx| cx.log("val/own", 1.0))).unwrap();
    trainer.add_hook(closure::on_test_batch_end("t", move |cx| t.push(batch!(cx)))).unwrap();
    trainer.add_hook(closure::on_predict_batch_end("p", move |cx| p.push(batch!(cx)))).unwrap();
    let mut toy = Toy::default();
    let mut data = ToyData { test: vec![1], predict: vec![1], ..data(1, 3) };
    let report = trainer.validate(&mut toy, &mut data).unwrap();
    let batches = validated.take();
    let mean = batches.iter().filter_map(|(loss, ..)| *loss).sum::<f64>() / 3.0;
    assert!((mean - report.metrics["val/loss"]).abs() < 1e-12);
    let (loss, metrics, outputs) = &batches[0];
    assert!(loss.is_some() && *metrics == ["val/loss"], "{metrics:?}");
    assert!(matches!(&outputs[..], [(name, values)] if name == "prediction" && *values > 0), "{outputs:?}");

    trainer.test(&mut toy, &mut data).unwrap();
    let (loss, metrics, outputs) = tested.take().remove(0);
    assert!(loss.is_some() && metrics == ["test/loss"] && outputs[0].0 == "prediction");
    trainer.predict(&mut toy, &mut data).unwrap();
    assert_eq!(predicted.take(), [(None, vec![], vec![])], "the toy gives its prediction itself");
}

#[test]
fn the_loss_is_available_in_every_step_under_its_plain_name() {
    let seen = SharedVec::new();
    let steps = seen.clone();
    // The loss is logged only every 50 steps.
    let mut trainer = trainer(Settings { log_every_n_steps: 50, ..epochs(1) });
    let look = closure::on_step_end("look", move |cx| {
        let metrics = cx.metrics();
        steps.push((cx.loss.value(), metrics.get("loss"), metrics.get("train/loss"), metrics.to_string()));
    });
    trainer.add_hook(look).unwrap();
    trainer.fit(&mut Toy::default(), &mut data(3, 0)).unwrap();
    let seen = seen.take();
    assert_eq!(seen.len(), 3);
    for (loss, plain, full, logged) in seen {
        assert_eq!((plain, full), (Some(loss), Some(loss)));
        assert!(!logged.contains("loss"), "asking logs nothing: {logged}");
    }
}

#[test]
fn a_program_presets_the_board_and_reads_it_after_the_run() {
    const FOLD: Key<u32> = Key::new("fold");
    let mut trainer = trainer(epochs(1));
    trainer.board().put(FOLD, 3);
    let double = closure::on_train_end("double", |cx| {
        cx.log("fold", f64::from(cx.board().get(FOLD).unwrap_or_default()));
    });
    trainer.add_hook(double).unwrap();
    let report = trainer.fit(&mut Toy::default(), &mut data(1, 0)).unwrap();
    assert_eq!((report.metrics["fold"].to_bits(), trainer.board().get(FOLD)), (3f64.to_bits(), Some(3)));
}
