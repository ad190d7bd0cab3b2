//! A module that does nothing, to measure the trainer alone.

use tenterhook::module::{Horizon, Optimization, OptimizerState};
use tenterhook::prelude::*;
use tenterhook::tensors::TensorMap;
use tenterhook::{GradientsMut, Module, OptimizerSource};
use tenterhook::{LrChange, ModelView, NamedTensors, ParamGroup, TensorSource};

use crate::measure::Result;
use crate::workload::{Given, Source, Span};

/// A module without tensors and optimizer state, whose loss is 1.
#[derive(Default)]
pub struct Nothing {
    none: NamedTensors,
}

/// An empty batch.
#[derive(Clone)]
pub struct Empty;

impl BatchData for Empty {
    fn size(&self) -> usize {
        1
    }
}

impl ModelView for Nothing {
    fn params(&self) -> &dyn TensorSource {
        &self.none
    }
    fn optimizers(&self) -> &dyn OptimizerSource {
        self
    }
}

impl OptimizerSource for Nothing {
    fn count(&self) -> usize {
        1
    }
    fn name(&self, _: usize) -> &'static str {
        "nothing"
    }
    fn groups(&self, _: usize) -> Vec<ParamGroup> {
        vec![ParamGroup { name: "all".into(), lr: 1.0, momentum: None, weight_decay: None }]
    }
    fn state(&self, _: usize) -> &dyn TensorSource {
        &self.none
    }
}

impl Module for Nothing {
    type Batch = Empty;
    type Scalar = f64;
    type Prediction = ();

    fn training_step(&mut self, _: &Empty, _: &mut Cx<'_, Self>) -> ModuleResult<StepOutput<f64>> {
        Ok(StepOutput::Loss(std::hint::black_box(1.0)))
    }
    fn configure_optimizers(&mut self, _: Horizon) -> ModuleResult<Optimization> {
        Ok(Optimization { optimizers: 1, schedulers: Vec::new() })
    }
    fn optimizer_zero_grad(&mut self, _: usize) -> ModuleResult {
        Ok(())
    }
    fn backward(&mut self, _: &f64, _: f64) -> ModuleResult {
        Ok(())
    }
    fn clip_gradients(&mut self, _: usize, _: ClipRule) -> ModuleResult {
        Ok(())
    }
    fn optimizer_step(&mut self, _: usize, _: bool) -> ModuleResult {
        Ok(())
    }
    fn lr_scheduler_step(&mut self, _: usize, _: Option<f64>) -> ModuleResult {
        Ok(())
    }
    fn gradients(&self, _: Option<usize>) -> &dyn TensorSource {
        &self.none
    }
    fn gradients_mut(&mut self, _: usize) -> &mut dyn GradientsMut {
        &mut self.none
    }
    fn grad_norm(&self, _: usize) -> f64 {
        0.0
    }
    fn lr(&self, _: usize) -> f64 {
        1.0
    }
    fn change_lr(&mut self, _: usize, _: LrChange) -> ModuleResult {
        Ok(())
    }
    fn weights(&self) -> ModuleResult<TensorMap> {
        Ok(TensorMap::default())
    }
    fn load_weights(&mut self, _: &TensorMap) -> ModuleResult {
        Ok(())
    }
    fn optimizer_state(&self) -> ModuleResult<OptimizerState> {
        Ok(OptimizerState::default())
    }
    fn load_optimizer_state(&mut self, _: &OptimizerState) -> ModuleResult {
        Ok(())
    }
}

/// Trains, and returns the seconds per step.
pub fn train(span: Span, trainer: &mut Trainer) -> Result<f64> {
    let (source, watch) = Source::new(vec![Empty], span);
    trainer.fit(&mut Nothing::default(), &mut Given::new(source))?;
    Ok(watch.seconds_per_step(span))
}
