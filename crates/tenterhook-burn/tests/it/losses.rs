//! Detached losses.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tenterhook::module::Horizon;
use tenterhook::tensor::ReadScalar;
use tenterhook::{DataModule, Module, Split};
use tenterhook_burn::{Burn, Loss};

use crate::lab::{Bench, Net, sgd};

#[test]
fn a_detached_loss_keeps_its_value_and_drops_its_graph() {
    let bench = Bench::new();
    let mut module = bench.burn(bench.net(1)).with_optimizers(|_| Ok(sgd(0.1).into()));
    Module::configure_optimizers(&mut module, Horizon::default()).unwrap();
    let mut loader = bench.pairs().loaders(Split::Train).unwrap().remove(0);
    loader.seek(0, 0, false).unwrap();
    let batch = loader.next().unwrap().unwrap();

    let loss = Loss::from(module.loss(&batch));
    let detached = <Burn<Net> as Module>::detach(loss.clone());
    assert_eq!(detached.read().to_bits(), loss.read().to_bits());
    // Checked first, because a graph can be used only once.
    let propagated = catch_unwind(AssertUnwindSafe(|| Module::backward(&mut module, &detached, 1.0)));
    assert!(!matches!(propagated, Ok(Ok(()))), "there is a graph left");
    Module::backward(&mut module, &loss, 1.0).unwrap();
    assert!(module.grad_norm(0).read() > 0.0);
}

#[test]
fn losses_read_at_once_have_the_values_of_each() {
    let bench = Bench::new();
    let module = bench.burn(bench.net(1));
    let mut loader = bench.pairs().loaders(Split::Train).unwrap().remove(0);
    loader.seek(0, 0, false).unwrap();
    let mut losses = Vec::new();
    while let Some(batch) = loader.next().unwrap() {
        losses.push(Loss::from(module.loss(&batch)));
    }
    let all: Vec<_> = losses.iter().collect();
    let one_by_one: Vec<_> = losses.iter().map(ReadScalar::read).collect();
    assert_eq!(Loss::read_all(&all), one_by_one);
    assert_eq!(Loss::read_all(&all[..1]), one_by_one[..1]);
    assert!(Loss::read_all(&[]).is_empty());
}
