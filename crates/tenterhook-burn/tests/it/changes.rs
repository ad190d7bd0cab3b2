//! Tracking parameters: hooks receive the norms of their updates.

use burn::optim::{AdamWConfig, SgdConfig};
use tenterhook::tensor::{TrackedUpdate, UpdateNorms, norm};
use tenterhook::{ModelView as _, Module as _, Tensors};
use tenterhook_burn::{Burn, Optimizer, Optimizers};

use crate::lab::{Bench, Net, Pairs, epochs, trainer};

/// A module with optimizer state and gradients.
fn ready(bench: &Bench, optimizers: fn() -> Optimizers) -> Burn<Net> {
    let mut module = bench.burn(bench.net(1)).with_optimizers(move |_| Ok(optimizers()));
    trainer(epochs(1)).fit(&mut module, &mut bench.pairs()).unwrap();
    let loss = module.loss(&Pairs::new(&[1, 2, 3], &bench.device));
    module.backward(&loss.into(), 1.0).unwrap();
    module
}

fn track(module: &Burn<Net>) -> Vec<TrackedUpdate> {
    Tensors::new(module.params()).iter().map(|param| param.track_update()).collect()
}

fn changes(module: &Burn<Net>, tracked: &[TrackedUpdate]) -> Vec<Option<UpdateNorms>> {
    Tensors::new(module.params())
        .iter()
        .zip(tracked)
        .map(|(param, tracked)| param.update_norms(tracked))
        .collect()
}

fn values(module: &Burn<Net>) -> Vec<Vec<f32>> {
    Tensors::new(module.params()).iter().map(|param| param.to_vec()).collect()
}

#[test]
fn the_change_of_a_tracked_parameter_is_that_of_the_next_update_only() {
    for algorithm in [
        || Optimizer::new("adamw", AdamWConfig::new().build(), 0.01).into(),
        || Optimizer::new("sgd", SgdConfig::new().build(), 0.01).into(),
    ] {
        let bench = Bench::new();
        let mut module = ready(&bench, algorithm);
        let (before, tracked, by_another) = (values(&module), track(&module), track(&module));
        assert!(changes(&module, &tracked).iter().all(Option::is_none), "there is no update yet");
        module.optimizer_step(0, true).unwrap();
        let after = values(&module);
        let first = changes(&module, &tracked);
        assert_eq!(changes(&module, &by_another), first, "all hooks get the same change");
        module.optimizer_step(0, true).unwrap();
        assert_ne!(values(&module), after);
        assert_eq!(changes(&module, &tracked), first, "of the first update alone");
        for ((before, after), change) in before.iter().zip(&after).zip(first) {
            let difference: Vec<_> = before.iter().zip(after).map(|(before, after)| after - before).collect();
            let UpdateNorms { before: from, update: by } = change.unwrap();
            assert!(by > 0.0 && (by - norm(&difference)).abs() <= 1e-5 * by, "{by} of {difference:?}");
            assert!((from - norm(before)).abs() <= 1e-5 * from, "{from} of {before:?}");
        }
    }
}

#[test]
fn the_change_without_a_gradient_is_zero_and_that_of_another_optimizer_comes_later() {
    let bench = Bench::new();
    let mut module = ready(&bench, || {
        let sgd = |name: &str| Optimizer::new(name, SgdConfig::new().build(), 0.01);
        Optimizers::one(sgd("biases").only(["**.bias"])).and(sgd("weights").only(["**.weight"]))
    });
    let tracked = track(&module);
    module.optimizer_step(0, false).unwrap();
    let names: Vec<_> = Tensors::new(module.params()).iter().map(|param| param.name().to_owned()).collect();
    for (name, change) in names.iter().zip(changes(&module, &tracked)) {
        assert_eq!(change.is_some(), name.ends_with("bias"), "{name}");
    }
    module.optimizer_zero_grad(1).unwrap();
    module.optimizer_step(1, false).unwrap();
    for (name, change) in names.iter().zip(changes(&module, &tracked)) {
        assert_eq!(
            change.unwrap().update > 0.0,
            name.ends_with("bias"),
            "{name}: an update without gradients moves nothing"
        );
    }
}
