//! A panic of Burn becomes an error with its place, and the model survives.

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use tenterhook::{ModuleResult, Origin, RunError, Stage};
use tenterhook_burn::{BurnCx, BurnModule, Step};

use crate::lab::{Bench, Numbers, epochs, numbers, sgd, to_train_on, trainer, weights};

/// A model that adds tensors of different shapes in its second epoch.
#[derive(Module, Debug)]
struct Fragile {
    weight: Param<Tensor<1>>,
    #[module(skip)]
    torn_down_with: Option<Vec<f32>>,
}

impl Fragile {
    fn new(device: &Device) -> Fragile {
        Fragile { weight: Param::from_data([4.0_f32, 4.0], device), torn_down_with: None }
    }
}

impl BurnModule for Fragile {
    type Batch = Numbers;
    type Prediction = ();

    fn training_step(&mut self, _: &Numbers, cx: &mut BurnCx<'_, Fragile>) -> ModuleResult<Step> {
        let other = if cx.epoch() == 1 { 3 } else { 2 };
        Ok((self.weight.val() + Tensor::zeros([other], &self.weight.device())).sum().into())
    }

    fn teardown(&mut self, _: Stage) -> ModuleResult {
        self.torn_down_with = Some(self.weight.val().into_data().iter::<f32>().collect());
        Ok(())
    }
}

#[test]
fn a_panic_in_a_training_step_is_an_error_with_its_place_and_the_model_is_still_there() {
    let bench = Bench::new();
    let device = bench.device.clone().autodiff();
    let mut module = bench.burn(Fragile::new(&device)).with_optimizers(|_| Ok(sgd(1.0).into()));
    let batches = [Numbers([0.0; 2], [0.0]); 2];
    let error = trainer(epochs(3)).fit(&mut module, &mut to_train_on(&batches)).unwrap_err();
    assert!(error.to_string().starts_with("module panicked in training_step (epoch 2, step 2): "), "{error}");
    let RunError::Failed { failure, later, .. } = error else { panic!("{error}") };
    assert_eq!((failure.origin, failure.place, failure.panicked), (Origin::Module, "training_step", true));
    assert!(later.is_empty(), "{later:?}");
    assert_eq!(module.torn_down_with, Some(vec![2.0, 2.0]), "4 after two steps");
    assert_eq!(weights(&module).f32("weight", &[2]).unwrap(), [2.0, 2.0]);
}

#[test]
fn an_error_of_the_optimizer_factory_names_its_place() {
    let bench = Bench::new();
    let mut slope = bench.slope().with_optimizers(|_| Err("no optimizer today".into()));
    let error = trainer(epochs(1)).fit(&mut slope, &mut numbers(&[])).unwrap_err().to_string();
    assert!(error.contains("configure_optimizers") && error.contains("no optimizer today"), "{error}");
}
