//! A toy module, the linear model `y = w·x + b` in plain numbers, for examples and tests of hooks. It needs
//! no tensor engine.

// Settings are 64-bit, the toy's numbers 32-bit.
#![allow(clippy::cast_possible_truncation)]

mod data;
mod task;
#[cfg(test)]
mod tests;

use tenterhook_core::plan::DeclaredMetric;
use tenterhook_core::tensor::ReadScalar;
use tenterhook_core::{
    ClipRule, GradientsMut, LrChange, ModelView, NamedTensors, OptimizerSource, ParamGroup, Phase,
    TensorSource,
};

pub use data::{ToyBatch, ToyData};
pub use task::{ToyOptimizerOptions, ToyOptions, ToyTask};

use crate::cx::Cx;
use crate::module::{
    Horizon, LoadReport, Module, ModuleResult, Optimization, OptimizerState, SchedulerPlan, StepOutput,
};
use crate::tensors::TensorMap;

/// The loss of the toy, with its gradient.
#[derive(Clone, Debug)]
pub struct ToyLoss {
    value: f64,
    /// The gradient of `weight` and that of `bias`.
    gradient: [Vec<f32>; 2],
}

impl ReadScalar for ToyLoss {
    fn read(&self) -> f64 {
        self.value
    }
}

impl From<f64> for ToyLoss {
    /// A constant.
    fn from(value: f64) -> ToyLoss {
        ToyLoss { value, gradient: Default::default() }
    }
}

/// A linear model, trained by gradient descent.
#[derive(Clone, Debug)]
pub struct Toy {
    /// `weight` and `bias`, each of which can have its own optimizer.
    params: NamedTensors,
    gradients: NamedTensors,
    /// The gradients of each optimizer, if there are two.
    apart: Vec<NamedTensors>,
    optimizers: ToyOptimizers,
    schedulers: Vec<SchedulerPlan>,
}

#[derive(Clone, Debug)]
struct ToyOptimizers {
    lrs: Vec<f64>,
    no_state: NamedTensors,
}

impl Default for Toy {
    fn default() -> Toy {
        Toy::new(1)
    }
}

impl Toy {
    /// A toy with one optimizer, or with two: for the weights and for the bias.
    #[must_use]
    pub fn new(optimizers: usize) -> Toy {
        let params = NamedTensors::from([("weight", vec![0.0; 2]), ("bias", vec![0.0])]);
        let apart = if optimizers == 2 {
            vec![NamedTensors::from([("weight", vec![0.0; 2])]), NamedTensors::from([("bias", vec![0.0])])]
        } else {
            Vec::new()
        };
        let optimizers =
            ToyOptimizers { lrs: vec![0.1; optimizers.clamp(1, 2)], no_state: NamedTensors::default() };
        Toy { gradients: params.clone(), params, apart, optimizers, schedulers: Vec::new() }
    }

    /// Sets the learning rate. The default is 0.1.
    #[must_use]
    pub fn with_lr(mut self, lr: f64) -> Toy {
        self.optimizers.lrs.fill(lr);
        self
    }

    /// Adds a scheduler that multiplies the learning rates by 0.9.
    #[must_use]
    pub fn with_scheduler(mut self, scheduler: SchedulerPlan) -> Toy {
        self.schedulers.push(scheduler);
        self
    }

    /// The values of a parameter: `weight` or `bias`.
    #[must_use]
    pub fn param(&self, name: &str) -> &[f32] {
        self.params.get(name).unwrap_or_default()
    }

    /// The mean squared error on a batch, and its gradient.
    #[must_use]
    pub fn loss(&self, batch: &ToyBatch) -> ToyLoss {
        let (weight, bias) = (self.param("weight"), self.param("bias")[0]);
        let mut loss = ToyLoss { value: 0.0, gradient: [vec![0.0; 2], vec![0.0]] };
        let scale = 1.0 / batch.samples.len().max(1) as f32;
        for ([x0, x1], y) in &batch.samples {
            let error = weight[0] * x0 + weight[1] * x1 + bias - y;
            loss.value += f64::from(error * error * scale);
            loss.gradient[0][0] += 2.0 * error * x0 * scale;
            loss.gradient[0][1] += 2.0 * error * x1 * scale;
            loss.gradient[1][0] += 2.0 * error * scale;
        }
        loss
    }

    fn predict(&self, batch: &ToyBatch) -> Vec<f32> {
        let (weight, bias) = (self.param("weight"), self.param("bias")[0]);
        batch.samples.iter().map(|([x0, x1], _)| weight[0] * x0 + weight[1] * x1 + bias).collect()
    }

    /// Shows the activations `linear.product`, before the bias, and `prediction`.
    fn show(&self, batch: &ToyBatch, cx: &mut Cx<'_, Self>) {
        let bias = self.param("bias")[0];
        cx.scope("linear", |cx| {
            let product = || self.predict(batch).iter().map(|value| value - bias).collect::<Vec<_>>();
            cx.show("product", |name| NamedTensors::from([(name, product())]));
        });
        cx.show("prediction", |name| NamedTensors::from([(name, self.predict(batch))]));
    }

    fn owned_by(&self, optimizer: usize) -> std::ops::Range<usize> {
        if self.apart.is_empty() { 0..2 } else { optimizer..optimizer + 1 }
    }

    /// Copies the gradients to those of each optimizer.
    fn sync_apart(&mut self) {
        for (index, part) in self.apart.iter_mut().enumerate() {
            part.replace(0, self.gradients.at(index));
        }
    }

    /// Copies the gradients of each optimizer, which hooks may have changed, to the gradients.
    fn gather(&mut self) {
        for (index, part) in self.apart.iter().enumerate() {
            self.gradients.replace(index, part.at(0));
        }
    }

    /// Name and shape of each parameter.
    fn shapes(&self) -> impl Iterator<Item = (&str, &[usize])> {
        self.params.iter().map(|(name, shape, _)| (name, shape))
    }
}

impl ModelView for Toy {
    fn params(&self) -> &dyn TensorSource {
        &self.params
    }
    fn optimizers(&self) -> &dyn OptimizerSource {
        &self.optimizers
    }
}

impl OptimizerSource for ToyOptimizers {
    fn count(&self) -> usize {
        self.lrs.len()
    }
    fn name(&self, _: usize) -> &'static str {
        "sgd"
    }
    fn groups(&self, index: usize) -> Vec<ParamGroup> {
        let lr = self.lrs[index];
        vec![ParamGroup { name: "all".into(), lr, momentum: None, weight_decay: None }]
    }
    fn state(&self, _: usize) -> &dyn TensorSource {
        &self.no_state
    }
}

impl Module for Toy {
    type Batch = ToyBatch;
    type Scalar = ToyLoss;
    type Prediction = Vec<f32>;

    fn training_step(
        &mut self,
        batch: &ToyBatch,
        cx: &mut Cx<'_, Self>,
    ) -> ModuleResult<StepOutput<ToyLoss>> {
        self.show(batch, cx);
        Ok(StepOutput::Loss(self.loss(batch)))
    }

    fn validation_step(&mut self, batch: &ToyBatch, cx: &mut Cx<'_, Self>) -> ModuleResult {
        self.show(batch, cx);
        cx.show_output("prediction", |name| NamedTensors::from([(name, self.predict(batch))]));
        cx.log("val/loss", self.loss(batch).value);
        Ok(())
    }

    fn test_step(&mut self, batch: &ToyBatch, cx: &mut Cx<'_, Self>) -> ModuleResult {
        self.show(batch, cx);
        cx.show_output("prediction", |name| NamedTensors::from([(name, self.predict(batch))]));
        cx.log("test/loss", self.loss(batch).value);
        Ok(())
    }

    fn predict_step(&mut self, batch: &ToyBatch, cx: &mut Cx<'_, Self>) -> ModuleResult<Vec<f32>> {
        self.show(batch, cx);
        Ok(self.predict(batch))
    }

    fn configure_optimizers(&mut self, _: Horizon) -> ModuleResult<Optimization> {
        Ok(Optimization { optimizers: self.optimizers.lrs.len(), schedulers: self.schedulers.clone() })
    }

    fn engine(&self) -> Option<String> {
        Some("toy".to_owned())
    }

    fn metrics(&self) -> Option<Vec<DeclaredMetric>> {
        Some(vec![
            DeclaredMetric::new("val/loss", Phase::Validate),
            DeclaredMetric::new("test/loss", Phase::Test),
        ])
    }

    fn optimizer_zero_grad(&mut self, optimizer: usize) -> ModuleResult {
        self.gather();
        for index in self.owned_by(optimizer) {
            let zeros = vec![0.0; self.params.at(index).len()];
            self.gradients.replace(index, &zeros);
        }
        self.sync_apart();
        Ok(())
    }

    fn backward(&mut self, loss: &ToyLoss, divide_by: f64) -> ModuleResult {
        self.gather();
        for (index, gradient) in loss.gradient.iter().enumerate() {
            self.gradients.edit(index, &mut |values| {
                for (value, added) in values.iter_mut().zip(gradient) {
                    *value += added / divide_by as f32;
                }
            });
        }
        self.sync_apart();
        Ok(())
    }

    fn clip_gradients(&mut self, optimizer: usize, rule: ClipRule) -> ModuleResult {
        let gradients = self.gradients_mut(optimizer);
        let all: Vec<_> = (0..gradients.view().count()).collect();
        gradients.clip(&all, rule);
        Ok(())
    }

    fn optimizer_step(&mut self, optimizer: usize, _keep_gradients: bool) -> ModuleResult {
        let lr = self.optimizers.lrs[optimizer] as f32;
        for (at, index) in self.owned_by(optimizer).enumerate() {
            let gradient =
                if self.apart.is_empty() { self.gradients.at(index) } else { self.apart[optimizer].at(at) };
            self.params.edit(index, &mut |values| {
                for (value, gradient) in values.iter_mut().zip(gradient) {
                    *value -= lr * gradient;
                }
            });
        }
        Ok(())
    }

    fn lr_scheduler_step(&mut self, _scheduler: usize, _metric: Option<f64>) -> ModuleResult {
        self.optimizers.lrs.iter_mut().for_each(|lr| *lr *= 0.9);
        Ok(())
    }

    fn gradients(&self, optimizer: Option<usize>) -> &dyn TensorSource {
        optimizer.and_then(|optimizer| self.apart.get(optimizer)).unwrap_or(&self.gradients)
    }

    fn gradients_mut(&mut self, optimizer: usize) -> &mut dyn GradientsMut {
        if self.apart.is_empty() { &mut self.gradients } else { &mut self.apart[optimizer] }
    }

    fn grad_norm(&self, optimizer: usize) -> ToyLoss {
        let gradients = self.gradients(Some(optimizer));
        let squares = (0..gradients.count()).map(|index| gradients.norm(index).powi(2));
        ToyLoss::from(squares.sum::<f64>().sqrt())
    }

    fn lr(&self, optimizer: usize) -> f64 {
        self.optimizers.lrs[optimizer]
    }

    fn change_lr(&mut self, optimizer: usize, change: LrChange) -> ModuleResult {
        let lr = self.optimizers.lrs.get_mut(optimizer).ok_or("there is no such optimizer")?;
        *lr = match change {
            LrChange::Set(value) => value,
            LrChange::Scale(factor) => *lr * factor,
        };
        Ok(())
    }

    fn weights(&self) -> ModuleResult<TensorMap> {
        let mut weights = TensorMap::default();
        for name in ["weight", "bias"] {
            let values = self.param(name);
            weights.insert_f32(name, [values.len()], values);
        }
        Ok(weights)
    }

    fn load_weights(&mut self, weights: &TensorMap) -> ModuleResult {
        for (index, name) in ["weight", "bias"].into_iter().enumerate() {
            let values = weights.f32(name, &[self.params.at(index).len()])?;
            self.params.edit(index, &mut |into| into.copy_from_slice(&values));
        }
        Ok(())
    }

    fn optimizer_state(&self) -> ModuleResult<OptimizerState> {
        let rest = serde_json::json!(self.optimizers.lrs);
        Ok(OptimizerState { tensors: TensorMap::default(), rest })
    }

    fn load_optimizer_state(&mut self, state: &OptimizerState) -> ModuleResult {
        let lrs: Vec<f64> = serde_json::from_value(state.rest.clone())?;
        let (there, here) = (lrs.len(), self.optimizers.lrs.len());
        if there != here {
            return Err(format!("the state is of {there} optimizers, and there are {here}").into());
        }
        self.optimizers.lrs = lrs;
        Ok(())
    }

    fn saves_gradients(&self) -> bool {
        true
    }
    fn gradients_state(&self) -> ModuleResult<TensorMap> {
        let mut there = TensorMap::default();
        let parts = if self.apart.is_empty() { std::slice::from_ref(&self.gradients) } else { &self.apart };
        for part in parts {
            let present = part.iter().enumerate().filter(|(index, _)| part.is_present(*index));
            for (_, (name, shape, values)) in present {
                there.insert_f32(name, shape, values);
            }
        }
        Ok(there)
    }

    fn load_gradients(&mut self, gradients: &TensorMap) -> ModuleResult {
        let report = LoadReport::of(self.shapes(), gradients);
        if let Some(wrong) = report.mismatched.iter().chain(&report.unexpected).next() {
            return Err(format!("these gradients are not of the toy: {wrong}").into());
        }
        for index in 0..self.gradients.count() {
            let (name, shape) = (self.gradients.name(index), self.gradients.shape(index));
            let values = gradients.get(name).is_ok().then(|| gradients.f32(name, shape)).transpose()?;
            self.gradients.replace(index, &values.unwrap_or_default());
        }
        self.sync_apart();
        Ok(())
    }

    fn load_matching(&mut self, weights: &TensorMap) -> ModuleResult<LoadReport> {
        let report = LoadReport::of(self.shapes(), weights);
        for name in &report.loaded {
            let index = usize::from(name == "bias");
            let values = weights.f32(name, self.params.shape(index))?;
            self.params.replace(index, &values);
        }
        Ok(report)
    }
}
