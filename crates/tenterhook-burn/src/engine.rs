//! The module that the trainer runs: a Burn model with its gradients, optimizers and schedules.

use std::ops::{Deref, DerefMut};

use burn::tensor::Device;
use tenterhook::module::{
    Horizon, LoadReport, Module, ModuleResult, Optimization, OptimizerState, Snapshot, SnapshotData,
    SnapshotParts, StepOutput,
};
use tenterhook::optim::OptimizerSet;
use tenterhook::plan::DeclaredMetric;
use tenterhook::tensors::{Buffers, TensorMap};
use tenterhook::{BoxError, CheckpointEntries, Cx, Failure, ModelView, OptimizerSource, Stage, TensorSource};

use crate::Optimizers;
use crate::algorithm::BurnEngine;
use crate::module::BurnModule;
use crate::params::{self, ModelParams};
use crate::scalar::Loss;
use crate::weights::{self, SharedTensors};
use crate::{gradients, update};

/// A Burn model as a module for the trainer. It derefs to the model, so `burn.forward(..)` calls the model's method.
pub struct Burn<M: BurnModule> {
    pub(crate) params: ModelParams<M>,
    /// The model without autodiff, during an evaluation.
    evaluated: Option<M>,
    device: Device,
    pub(crate) optimizers: OptimizerSet<BurnEngine>,
    /// Creates the optimizers instead of the model's `configure_optimizers`.
    optimizer_factory: Option<OptimizerFactory>,
}

type OptimizerFactory = Box<dyn FnMut(Horizon) -> Result<Optimizers, BoxError>>;

impl<M: BurnModule> Burn<M> {
    /// Moves a model to this device, with autodiff, and initialises parameters that are not initialised yet,
    /// in the model's order.
    #[must_use]
    pub fn new(model: M, device: &Device) -> Burn<M> {
        let device = device.clone().autodiff();
        // `fork`, because `to_device` would turn a parameter into the result of a computation, not a leaf of
        // the graph.
        let model = model.fork(&device).train();
        let facts = params::facts(&model);
        let optimizers = OptimizerSet::new(BurnEngine::on(&device));
        let params = ModelParams::new(model, facts);
        Burn { params, evaluated: None, device, optimizers, optimizer_factory: None }
    }

    /// Uses these optimizers, for example those of a configuration, instead of the model's `configure_optimizers`.
    #[must_use]
    pub fn with_optimizers(
        mut self,
        make: impl FnMut(Horizon) -> Result<Optimizers, BoxError> + 'static,
    ) -> Burn<M> {
        self.optimizer_factory = Some(Box::new(make));
        self
    }

    /// The device of the model, with autodiff.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the model.
    #[must_use]
    pub fn into_model(self) -> M {
        self.params.model.unwrap_or_else(|| taken_out())
    }

    /// Updates the evaluated model after the weights have changed.
    fn refresh_evaluated(&mut self) {
        if self.evaluated.is_some() {
            self.evaluated = Some(self.valid());
        }
    }

    /// Returns a clone, which copies handles only, so a step can also borrow the module.
    fn evaluated(&self) -> M {
        self.evaluated.clone().unwrap_or_else(|| self.valid())
    }
}

fn taken_out() -> ! {
    unreachable!("the model is only taken out within an optimizer step")
}

impl<M: BurnModule> Deref for Burn<M> {
    type Target = M;

    fn deref(&self) -> &M {
        self.params.model.as_ref().unwrap_or_else(|| taken_out())
    }
}

impl<M: BurnModule> DerefMut for Burn<M> {
    fn deref_mut(&mut self) -> &mut M {
        self.params.changing().as_mut().unwrap_or_else(|| taken_out())
    }
}

impl<M: BurnModule> ModelView for Burn<M> {
    fn params(&self) -> &dyn TensorSource {
        &self.params
    }
    fn optimizers(&self) -> &dyn OptimizerSource {
        &self.optimizers
    }
}

/// Forwards handlers to the model.
macro_rules! forward {
    ($($handler:ident($argument:ident: $Argument:ty);)*) => {
        $(
            fn $handler(&mut self, $argument: $Argument) -> ModuleResult {
                BurnModule::$handler(&mut **self, $argument)
            }
        )*
    };
}

macro_rules! implement_module {
    ($($handler:ident)*) => {
        impl<M: BurnModule> Module for Burn<M> {
            type Batch = M::Batch;
            type Scalar = Loss;
            type Prediction = M::Prediction;

            fn training_step(
                &mut self,
                batch: &M::Batch,
                cx: &mut Cx<'_, Self>,
            ) -> ModuleResult<StepOutput<Loss>> {
                if !BurnModule::automatic_optimization(&**self) {
                    M::manual_step(self, batch, cx)?;
                    return Ok(StepOutput::NoLoss);
                }
                Ok(match BurnModule::training_step(&mut **self, batch, cx)? {
                    StepOutput::Loss(loss) => StepOutput::Loss(loss.into()),
                    StepOutput::NoLoss => StepOutput::NoLoss,
                })
            }

            fn validation_step(&mut self, batch: &M::Batch, cx: &mut Cx<'_, Self>) -> ModuleResult {
                BurnModule::validation_step(&self.evaluated(), batch, cx)
            }

            fn test_step(&mut self, batch: &M::Batch, cx: &mut Cx<'_, Self>) -> ModuleResult {
                BurnModule::test_step(&self.evaluated(), batch, cx)
            }

            fn predict_step(&mut self, batch: &M::Batch, cx: &mut Cx<'_, Self>) -> ModuleResult<M::Prediction> {
                BurnModule::predict_step(&self.evaluated(), batch, cx)
            }

            fn configure_optimizers(&mut self, horizon: Horizon) -> ModuleResult<Optimization> {
                let optimizers = match &mut self.optimizer_factory {
                    Some(make) => make(horizon)?,
                    None => BurnModule::configure_optimizers(&mut **self, horizon)?,
                };
                self.optimizers.configure(optimizers, &self.params.facts, horizon)
            }

            fn configure_model(&mut self) -> ModuleResult {
                BurnModule::configure_model(&mut **self)?;
                self.params.facts = params::facts(&**self);
                Ok(())
            }

            fn automatic_optimization(&self) -> bool {
                BurnModule::automatic_optimization(&**self)
            }

            fn engine(&self) -> Option<String> {
                Some(format!("burn {}", crate::BURN_VERSION))
            }

            fn metrics(&self) -> Option<Vec<DeclaredMetric>> {
                BurnModule::metrics(&**self)
            }

            fn backward(&mut self, loss: &Loss, divide_by: f64) -> ModuleResult {
                let loss = loss.tensor().ok_or("this loss does not depend on the model")?;
                let mut gradients =
                    if divide_by > 1.0 { (loss.clone() / divide_by).backward() } else { loss.backward() };
                if let Some(model) = &self.params.model {
                    gradients::add(model, &mut gradients, &mut self.optimizers);
                }
                Ok(())
            }

            fn optimizer_step(&mut self, optimizer: usize, keep_gradients: bool) -> ModuleResult {
                let Burn { params, optimizers, .. } = self;
                let mut tracked = params.tracked.take();
                params.model = params.changing().take().map(|model| {
                    update::step(model, optimizers, optimizer, keep_gradients, &mut tracked)
                });
                params.tracked.replace(tracked);
                Ok(())
            }

            fn grad_norm(&self, optimizer: usize) -> Loss {
                self.optimizers.parts()[optimizer].norm()
            }

            tenterhook::optimizer_set_methods! { optimizers without saving }

            fn detach(loss: Loss) -> Loss {
                loss.detached()
            }

            fn reseed(&mut self, seed: u64) {
                self.device.seed(seed);
            }

            fn eval_mode(&mut self) {
                self.evaluated = Some(self.valid());
            }

            fn train_mode(&mut self) {
                self.evaluated = None;
            }

            fn weights(&self) -> ModuleResult<TensorMap> {
                weights::weights(&self.params)?.read(&Buffers::default())
            }

            fn load_weights(&mut self, weights: &TensorMap) -> ModuleResult {
                weights::load_weights(&mut self.params, weights)?;
                self.refresh_evaluated();
                Ok(())
            }

            fn load_matching(&mut self, weights: &TensorMap) -> ModuleResult<LoadReport> {
                let report = weights::load_matching(&mut self.params, weights)?;
                self.refresh_evaluated();
                Ok(report)
            }

            fn optimizer_state(&self) -> ModuleResult<OptimizerState> {
                // If an update lost the model, it also lost the state of the current parameter.
                self.params.present()?;
                self.optimizers.snapshot().read(&Buffers::default())
            }

            fn gradients_state(&self) -> ModuleResult<TensorMap> {
                gradients::shared(&self.optimizers).read(&Buffers::default())
            }

            fn load_gradients(&mut self, gradients: &TensorMap) -> ModuleResult {
                gradients::load(&mut self.optimizers, gradients)
            }

            fn snapshot(&self, wanted: SnapshotParts) -> ModuleResult<Snapshot> {
                self.params.present()?;
                let weights = wanted.weights.then(|| weights::weights(&self.params)).transpose()?;
                let optimizers = wanted.optimizers.then(|| self.optimizers.snapshot());
                let gradients = wanted.gradients.then(|| gradients::shared(&self.optimizers));
                Ok(Snapshot::new(move |buffers| {
                    let read = |shared: SharedTensors| shared.read(buffers);
                    // Optimizers are read first: training changes their state in place, and must copy it
                    // while it is shared.
                    let optimizers = optimizers.map(|shared| shared.read(buffers)).transpose()?.unwrap_or_default();
                    Ok(SnapshotData {
                        optimizers,
                        weights: weights.map(read).transpose()?.unwrap_or_default(),
                        gradients: gradients.map(read).transpose()?.unwrap_or_default(),
                    })
                }))
            }

            forward! {
                setup(stage: Stage);
                teardown(stage: Stage);
                on_save_checkpoint(entries: &CheckpointEntries);
                on_load_checkpoint(entries: &CheckpointEntries);
                on_exception(failure: &Failure);
                $($handler(cx: &mut Cx<'_, Self>);)*
            }
        }
    };
}

tenterhook::for_each_module_handler!(implement_module);
