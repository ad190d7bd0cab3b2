//! Validation has no dropout and does not change training.

use tenterhook::settings::{BatchLimit, ValInterval};
use tenterhook::{DataModule, Settings, Split, TensorMap};

use crate::lab::{Bench, epochs, sgd, trainer, weights};
use burn::module::Module;

#[test]
fn validation_has_no_dropout_whatever_the_seed() {
    let bench = Bench::new();
    let mut module = bench.burn(bench.net(1));
    let losses: Vec<f64> = (0..3)
        .map(|seed| {
            let mut trainer = trainer(Settings { seed, ..epochs(1) });
            trainer.validate(&mut module, &mut bench.pairs()).unwrap().metrics["val/loss"]
        })
        .collect();
    assert_eq!(losses, [losses[0]; 3]);

    let plain = bench.net(1).valid();
    let mut loader = bench.pairs().loaders(Split::Validate).unwrap().remove(0);
    loader.seek(0, 0, false).unwrap();
    let mut by_hand = Vec::new();
    while let Some(batch) = loader.next().unwrap() {
        by_hand.push(plain.loss(&batch).into_scalar::<f64>());
    }
    let mean = by_hand.iter().sum::<f64>() / by_hand.len() as f64;
    assert!((mean - losses[0]).abs() < 1e-12, "{mean} by hand, {} by the trainer", losses[0]);
}

#[test]
fn validation_leaves_no_trace_in_training() {
    let bench = Bench::new();
    let trained = |settings: Settings| -> TensorMap {
        let mut module = bench.burn(bench.net(1)).with_optimizers(|_| Ok(sgd(0.1).into()));
        trainer(settings).fit(&mut module, &mut bench.pairs()).unwrap();
        weights(&module)
    };
    let without = trained(Settings { limit_val_batches: Some(BatchLimit::Count(0)), ..epochs(2) });
    let often = Some(ValInterval::Batches(BatchLimit::Count(1)));
    let with = trained(Settings { val_check_interval: often, num_sanity_val_steps: 2, ..epochs(2) });
    assert_eq!(with, without);
}

#[test]
fn dropout_is_active_again_after_a_validation() {
    let bench = Bench::new();
    let trained = |seed| {
        let mut module = bench.burn(bench.net(1)).with_optimizers(|_| Ok(sgd(0.1).into()));
        // One validation before the first step; the seed affects the weights through dropout only.
        let settings = Settings { seed, num_sanity_val_steps: 1, max_steps: 1, ..epochs(1) };
        trainer(settings).fit(&mut module, &mut bench.pairs()).unwrap();
        weights(&module)
    };
    assert_ne!(trained(1), trained(2));
}

#[test]
fn hooks_see_the_outputs_of_a_batch() {
    let bench = Bench::new();
    let mut module = bench.burn(bench.net(1));
    let mut trainer = trainer(epochs(1));
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let outputs = seen.clone();
    let look = tenterhook::closure::on_validation_batch_end("look", move |cx| {
        let prediction = cx.outputs.by_name("prediction").map(|output| output.to_vec());
        outputs.lock().unwrap().push((cx.loss, prediction));
    });
    trainer.add_hook(look).unwrap();
    trainer.validate(&mut module, &mut bench.pairs()).unwrap();
    let plain = bench.net(1).valid();
    let mut loader = bench.pairs().loaders(Split::Validate).unwrap().remove(0);
    loader.seek(0, 0, false).unwrap();
    for (loss, prediction) in seen.lock().unwrap().drain(..) {
        let batch = loader.next().unwrap().unwrap();
        assert_eq!(loss, Some(plain.loss(&batch).into_scalar::<f64>()));
        let by_hand: Vec<f32> = plain.forward(batch.x.clone()).into_data().iter::<f32>().collect();
        assert_eq!(prediction, Some(by_hand));
    }
    assert!(loader.next().unwrap().is_none(), "one for each batch");
}
