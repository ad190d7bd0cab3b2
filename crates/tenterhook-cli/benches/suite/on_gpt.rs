//! The cost of hook points and hooks in a training step of the built-in GPT, as ratios of instructions.

use tenterhook::prelude::*;
use tenterhook_burn::burn::{
    self,
    module::Module,
    tensor::{Device, Tensor},
};
use tenterhook_burn::{BurnCx, BurnGradients, BurnModule, MapGradient, Step};
use tenterhook_tasks::text::TextBatch;
use tenterhook_tasks::text::model::Gpt;

use crate::counts::instructions_per_step;
use crate::measure::{Effort, Result};
use crate::table::Line;
use crate::workload::{BuiltInGpt, Workload};

/// Model, hook, the model without hooks to compare with, the target, and a description.
const COUNTED: [(&str, &str, &str, f64, &str); 5] = [
    (
        "gpt",
        "trainer",
        "plain",
        1.002,
        "GPT with 29 hook points that no hook uses, relative to the GPT without hook points",
    ),
    ("gpt", "norms", "gpt", 1.03, "`gradient_monitor`, the norm of every gradient at every step, GPT"),
    ("gpt", "activations", "gpt", 1.15, "`activation_stats`, everything at every point and step, GPT"),
    (
        "gpt",
        "on_host",
        "gpt",
        1.05,
        "an update hook that multiplies every gradient by one in host memory, GPT",
    ),
    ("gpt", "natively", "gpt", 1.01, "the same on Burn's own tensors"),
];

/// Instructions of a training run of one step. One step is enough, since these hooks do the same in every step,
/// and callgrind takes half a minute for each.
fn first_step(model: &str, how: &str) -> Result<f64> {
    instructions_per_step(model, how, 0, 1)
}

pub fn measure(_: Effort) -> Result<Vec<Line>> {
    let [plain, points] = ["plain", "gpt"].map(|model| first_step(model, "trainer"));
    let (plain, points) = (plain?, points?);
    let line = |(model, how, against, target, what): (&str, &str, &str, f64, &str)| {
        let (base, count) = match against {
            "plain" => (plain, points),
            _ => (points, first_step(model, how)?),
        };
        Ok(Line::counted(format!("{what}, instructions"), "×", count / base, target))
    };
    COUNTED.into_iter().map(line).collect()
}

/// The built-in GPT without points.
pub struct PlainGpt;

#[derive(Module, Debug)]
pub struct Plain {
    gpt: Gpt,
}

impl BurnModule for Plain {
    type Batch = TextBatch;
    type Prediction = ();

    fn training_step(&mut self, batch: &TextBatch, _: &mut BurnCx<'_, Plain>) -> ModuleResult<Step> {
        Ok(BuiltInGpt::loss(&self.gpt, batch).into())
    }
}

impl Workload for PlainGpt {
    type Batch = TextBatch;
    type Model = Plain;
    const LR: f64 = BuiltInGpt::LR;

    fn model(device: &Device) -> Plain {
        Plain { gpt: BuiltInGpt::model(device) }
    }
    fn batches(device: &Device) -> Vec<TextBatch> {
        BuiltInGpt::batches(device)
    }
    fn loss(model: &Plain, batch: &TextBatch) -> Tensor<1> {
        BuiltInGpt::loss(&model.gpt, batch)
    }
}

/// Multiplies every gradient by one, in host memory.
pub struct OnHost;

#[hook]
impl UpdateHook for OnHost {
    fn update(&mut self, gradients: &mut Gradients, _cx: &Update) -> HookResult {
        gradients.each(|gradient| {
            gradient.edit(|values| values.iter_mut().for_each(|value| *value *= std::hint::black_box(1.0)));
            Ok(())
        })
    }
}

/// Multiplies every gradient by one, on Burn's device.
pub struct Natively;

impl MapGradient for Natively {
    fn map<const D: usize>(&mut self, _name: &str, gradient: Tensor<D>) -> Tensor<D> {
        gradient * 1.0
    }
}

#[hook]
impl UpdateHook for Natively {
    fn update(&mut self, gradients: &mut Gradients, _cx: &Update) -> HookResult {
        Ok(gradients.map_burn(self)?)
    }
}
