//! Observers change nothing.

use tenterhook::toy::Toy;
use tenterhook::{Settings, closure};

use crate::lab::{bits, data, trainer};

fn settings() -> Settings {
    Settings {
        max_epochs: Some(3),
        accumulate_grad_batches: 2,
        gradient_clip_val: Some(0.5),
        log_every_n_steps: 1,
        ..Settings::default()
    }
}

#[test]
fn with_observers_training_comes_to_the_same_bits_as_without() {
    let mut alone = Toy::new(2);
    let undisturbed = trainer(settings()).fit(&mut alone, &mut data(5, 2)).unwrap();

    let mut trainer = trainer(settings());
    trainer
        .add_hook(closure::on_after_backward("logging", |cx| {
            cx.log("norm", cx.gradients.norm());
            cx.log("loss_seen", cx.loss.value());
        }))
        .unwrap();
    trainer
        .add_hook(closure::on_before_forward("drawing", |cx| {
            cx.log("drawn", cx.rng().uniform());
        }))
        .unwrap();
    trainer
        .add_hook(closure::on_step_end("reading", |cx| {
            let values: Vec<_> = cx.params().iter().flat_map(|param| param.to_vec()).collect();
            assert_eq!(values.len(), 3);
            cx.log("mean", cx.params().iter().map(|param| param.stats().mean).sum());
        }))
        .unwrap();
    let mut observed = Toy::new(2);
    let report = trainer.fit(&mut observed, &mut data(5, 2)).unwrap();
    assert_eq!(bits(&observed), bits(&alone));
    assert_eq!(report.progress, undisturbed.progress);
    for (name, value) in &undisturbed.metrics {
        assert_eq!(report.metrics[name].to_bits(), value.to_bits(), "{name}");
    }
    assert!(report.metrics.contains_key("drawn") && report.metrics.contains_key("mean"));
}
