//! Hook points: forward hooks receive activations by name; without them they cost nothing.

use std::fmt::{self, Display};

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use tenterhook::{Activation, HookResult, HookSpec, ModuleResult, Observer, Phase, hook};
use tenterhook_burn::{BurnCx, BurnModule, HookPoints, Step};

use crate::lab::{Bench, Numbers, SharedVec, epochs, numbers, sgd, trainer};

/// Doubles its input. The hook point has one name in training and another in validation.
#[derive(Module, Debug)]
struct Pointed {
    weight: Param<Tensor<1>>,
    #[module(skip)]
    panicking_name: bool,
}

/// A name that panics when it is formatted.
struct PanickingName;

impl Display for PanickingName {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("the name was formatted")
    }
}

impl Pointed {
    fn new(panicking_name: bool, device: &Device) -> Pointed {
        Pointed { weight: Param::from_data([2.0_f32, 2.0], device), panicking_name }
    }

    fn forward(&self, batch: &Numbers, points: &mut impl HookPoints) -> Tensor<1> {
        let input = Tensor::from_data(batch.0, &self.weight.device());
        let doubled = self.weight.val() * input;
        if self.panicking_name {
            points.point(PanickingName, &doubled);
        } else {
            points.point(format_args!("layers.{}", 0), &doubled);
            points.point("rows", &doubled.clone().reshape([1, 2]));
        }
        doubled.sum()
    }
}

impl BurnModule for Pointed {
    type Batch = Numbers;
    type Prediction = ();

    fn training_step(&mut self, batch: &Numbers, cx: &mut BurnCx<'_, Pointed>) -> ModuleResult<Step> {
        Ok(self.forward(batch, cx).into())
    }

    fn validation_step(&self, batch: &Numbers, cx: &mut BurnCx<'_, Pointed>) -> ModuleResult {
        self.forward(batch, cx);
        Ok(())
    }
}

type RecordedPoint = (Phase, String, Vec<usize>, Vec<f32>);

struct RecordPoints(SharedVec<RecordedPoint>);

#[hook]
impl Observer for RecordPoints {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        spec.name("record_points")
    }

    fn on_activation(&mut self, activation: &Activation) -> HookResult {
        for tensor in activation.values.iter() {
            assert_eq!(tensor.name(), activation.point);
            let (phase, name) = (activation.phase, activation.point.to_owned());
            self.0.push((phase, name, tensor.shape().to_vec(), tensor.to_vec()));
        }
        Ok(())
    }
}

/// One epoch of one batch, with or without a forward hook: the recorded points, or the error.
fn recorded(panicking_name: bool, with_hook: bool) -> Result<Vec<RecordedPoint>, String> {
    let bench = Bench::new();
    let pointed = Pointed::new(panicking_name, &bench.device.clone().autodiff());
    let mut module = bench.burn(pointed).with_optimizers(|_| Ok(sgd(0.0).into()));
    let seen = SharedVec::new();
    let mut trainer = trainer(epochs(1));
    if with_hook {
        trainer.add_hook(RecordPoints(seen.clone())).unwrap();
    }
    let run = trainer.fit(&mut module, &mut numbers(&[Numbers([1.0, -3.0], [0.0])]));
    run.map(|_| seen.take()).map_err(|error| error.to_string())
}

#[test]
fn a_forward_hook_receives_every_point_with_its_shape_and_values() {
    let of = |phase| {
        let values = vec![2.0, -6.0];
        [
            (phase, "layers.0".to_owned(), vec![2], values.clone()),
            (phase, "rows".to_owned(), vec![1, 2], values),
        ]
    };
    assert_eq!(recorded(false, true).unwrap(), [of(Phase::Train), of(Phase::Validate)].concat());
}

#[test]
fn without_forward_hooks_the_name_is_not_formatted() {
    assert_eq!(recorded(true, false), Ok(Vec::new()));
    let error = recorded(true, true).unwrap_err();
    assert!(error.contains("the name was formatted"), "{error}");
}

#[test]
fn a_forward_pass_outside_of_a_run_reports_no_points() {
    let bench = Bench::new();
    let pointed = Pointed::new(true, &bench.device);
    let sum: f32 = pointed.forward(&Numbers([1.0, 1.0], [0.0]), &mut ()).into_scalar();
    assert!((sum - 4.0).abs() < f32::EPSILON);
}
