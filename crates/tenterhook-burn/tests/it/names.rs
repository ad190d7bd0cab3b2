//! Parameters, gradients and optimizer state as hooks see them, by name.

use burn::module::{Module, Param};
use burn::optim::AdamWConfig;
use burn::tensor::{Device, Tensor};
use tenterhook::{HookExt, ModuleResult, RunNotice, Tensors, closure};
use tenterhook_burn::{BurnCx, BurnModule, Optimizer, Step};

use crate::lab::{Bench, Numbers, SharedVec, epochs, numbers, sgd, to_train_on, trainer, weights};

fn shapes(tensors: &Tensors<'_>) -> Vec<(String, Vec<usize>)> {
    tensors.iter().map(|tensor| (tensor.name().to_owned(), tensor.shape().to_vec())).collect()
}

#[test]
fn parameters_and_gradients_have_the_names_and_shapes_of_the_model() {
    let bench = Bench::new();
    let mut module = bench.burn(bench.net(1)).with_optimizers(|_| Ok(sgd(0.1).into()));
    let seen = SharedVec::new();
    let see = seen.clone();
    let mut trainer = trainer(epochs(1));
    let look = closure::on_after_backward("look", move |cx| {
        see.push((shapes(&cx.params()), shapes(&cx.gradients)));
    });
    trainer.add_hook(look.once()).unwrap();
    trainer.fit(&mut module, &mut bench.pairs()).unwrap();
    let of_net = [
        ("fc1.weight".to_owned(), vec![3, 8]),
        ("fc1.bias".to_owned(), vec![8]),
        ("fc2.weight".to_owned(), vec![8, 2]),
        ("fc2.bias".to_owned(), vec![2]),
    ];
    assert_eq!(seen.take(), [(of_net.to_vec(), of_net.to_vec())]);
}

#[test]
fn values_of_parameters_and_gradients_are_current() {
    let bench = Bench::new();
    let mut slope = bench.slope().with_optimizers(|_| Ok(sgd(1.0).into()));
    let seen = SharedVec::new();
    let (before, after) = (seen.clone(), seen.clone());
    let mut trainer = trainer(epochs(1));
    let values = |tensors: &Tensors<'_>| tensors.iter().map(|tensor| tensor.to_vec()).collect::<Vec<_>>();
    let look = closure::on_before_optimizer_step("before", move |cx| {
        before.push([values(&cx.params()), values(&cx.gradients)].concat());
    });
    trainer.add_hook(look).unwrap();
    trainer.add_hook(closure::on_step_end("after", move |cx| after.push(values(&cx.params())))).unwrap();
    trainer.fit(&mut slope, &mut numbers(&[Numbers([1.0, 2.0], [3.0])])).unwrap();
    let before = vec![vec![0.0, 0.0], vec![0.0], vec![1.0, 2.0], vec![3.0]];
    assert_eq!(seen.take(), [before, vec![vec![-1.0, -2.0], vec![-3.0]]]);
}

#[test]
fn hooks_see_the_state_of_an_optimizer_by_parameter() {
    let bench = Bench::new();
    let mut slope = bench.slope().with_optimizers(|_| {
        Ok(Optimizer::new("adamw", AdamWConfig::new().with_beta_1(0.5).build(), 0.1).into())
    });
    let seen = SharedVec::new();
    let see = seen.clone();
    let mut trainer = trainer(epochs(1));
    let look = closure::on_step_end("look", move |cx| {
        let state = Tensors::new(cx.optimizers().state(0));
        for tensor in state.iter().filter(|tensor| tensor.name().starts_with("inner.bias")) {
            see.push((tensor.shape().to_vec(), tensor.to_vec()));
        }
    });
    trainer.add_hook(look).unwrap();
    trainer.fit(&mut slope, &mut numbers(&[Numbers([1.0, 2.0], [4.0])])).unwrap();
    let seen = seen.take();
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert!(seen.contains(&(vec![1], vec![2.0])), "half of the gradient is its first moment: {seen:?}");
}

/// A model with an unused parameter.
#[derive(Module, Debug)]
struct Forgetful {
    used: Param<Tensor<1>>,
    forgotten: Param<Tensor<1>>,
}

impl Forgetful {
    fn new(device: &Device) -> Forgetful {
        let param = || Param::from_data([1.0_f32], device);
        Forgetful { used: param(), forgotten: param() }
    }
}

impl BurnModule for Forgetful {
    type Batch = Numbers;
    type Prediction = ();

    fn training_step(&mut self, _: &Numbers, _: &mut BurnCx<'_, Forgetful>) -> ModuleResult<Step> {
        Ok(self.used.val().sum().into())
    }
}

#[test]
fn a_parameter_without_a_gradient_is_reported_by_name_and_unchanged() {
    let bench = Bench::new();
    let device = bench.device.clone().autodiff();
    let mut module = bench.burn(Forgetful::new(&device)).with_optimizers(|_| Ok(sgd(0.5).into()));
    let report = trainer(epochs(2)).fit(&mut module, &mut to_train_on(&[Numbers([0.0; 2], [0.0])])).unwrap();
    let missing: Vec<_> = report
        .notices
        .iter()
        .filter_map(|notice| match notice {
            RunNotice::NoGradient { parameters } => Some(parameters.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(missing, [["forgotten"]], "exactly one report");
    let weights = weights(&module);
    assert_eq!(weights.f32("used", &[1]).unwrap(), [0.0]);
    assert_eq!(weights.f32("forgotten", &[1]).unwrap(), [1.0]);
}
