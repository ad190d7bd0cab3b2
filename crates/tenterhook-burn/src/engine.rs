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
use tenterhook::{BoxError, Cx, Entries, Failure, ModelView, OptimizerSource, Stage, TensorSource};

use crate::Optimizers;
use crate::algorithm::BurnEngine;
use crate::module::{BurnModule, Step};
use crate::params::{self, Live};
use crate::saved::Held;
use crate::scalar::Loss;
use crate::{gradients, saved, update};

/// A Burn model under the trainer. It stands for its model: `burn.forward(..)` is the model's.
pub struct Burn<M: BurnModule> {
    pub(crate) live: Live<M>,
    /// The model without autodiff, while an evaluation runs.
    evaluated: Option<M>,
    device: Device,
    pub(crate) optimizers: OptimizerSet<BurnEngine>,
    /// Makes the optimizers instead of the model.
    recipe: Option<Recipe>,
}

type Recipe = Box<dyn FnMut(Horizon) -> Result<Optimizers, BoxError>>;

impl<M: BurnModule> Burn<M> {
    /// A model for the trainer, on this device or its autodiff twin. Its parameters are initialised
    /// here if they are not yet, in their own order.
    #[must_use]
    pub fn new(model: M, device: &Device) -> Burn<M> {
        let device = device.clone().autodiff();
        // Forked, because a parameter that was merely moved would be the result of a computation.
        let model = model.fork(&device).train();
        let facts = params::facts(&model);
        let optimizers = OptimizerSet::new(BurnEngine::on(&device));
        Burn { live: Live::new(model, facts), evaluated: None, device, optimizers, recipe: None }
    }

    /// Takes the optimizers from here instead of from the model: from a configuration, say.
    #[must_use]
    pub fn with_optimizers(
        mut self,
        make: impl FnMut(Horizon) -> Result<Optimizers, BoxError> + 'static,
    ) -> Burn<M> {
        self.recipe = Some(Box::new(make));
        self
    }

    /// The device it computes on, with autodiff.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The model, back.
    #[must_use]
    pub fn into_model(self) -> M {
        match self.live.model {
            Some(model) => model,
            None => unreachable!("the model is only away within an optimizer's step"),
        }
    }

    /// Evaluates the weights that it has now, if it evaluates.
    fn swap_in(&mut self) {
        if self.evaluated.is_some() {
            self.evaluated = Some(self.valid());
        }
    }

    fn evaluated(&mut self) -> M {
        // Taken out so that the step can borrow the rest; cloning a model copies handles only.
        self.evaluated.clone().unwrap_or_else(|| self.valid())
    }
}

impl<M: BurnModule> Deref for Burn<M> {
    type Target = M;

    fn deref(&self) -> &M {
        match &self.live.model {
            Some(model) => model,
            None => unreachable!("the model is only away within an optimizer's step"),
        }
    }
}

impl<M: BurnModule> DerefMut for Burn<M> {
    fn deref_mut(&mut self) -> &mut M {
        match self.live.changing() {
            Some(model) => model,
            None => unreachable!("the model is only away within an optimizer's step"),
        }
    }
}

impl<M: BurnModule> ModelView for Burn<M> {
    fn params(&self) -> &dyn TensorSource {
        &self.live
    }
    fn optimizers(&self) -> &dyn OptimizerSource {
        &self.optimizers
    }
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
                    Step::Loss(loss) => StepOutput::Loss(loss.into()),
                    Step::NoLoss => StepOutput::NoLoss,
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
                let optimizers = match &mut self.recipe {
                    Some(make) => make(horizon)?,
                    None => BurnModule::configure_optimizers(&mut **self, horizon)?,
                };
                self.optimizers.configure(optimizers, &self.live.facts, horizon)
            }

            fn configure_model(&mut self) -> ModuleResult {
                BurnModule::configure_model(&mut **self)?;
                self.live.facts = params::facts(&**self);
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
                // A graph is consumed by its backward pass, so there is nothing to keep it for.
                let mut gradients =
                    if divide_by > 1.0 { (loss.clone() / divide_by).backward() } else { loss.backward() };
                if let Some(model) = &self.live.model {
                    gradients::add(model, &mut gradients, &mut self.optimizers);
                }
                Ok(())
            }

            fn optimizer_step(&mut self, optimizer: usize, keep_gradients: bool) -> ModuleResult {
                let Burn { live, optimizers, .. } = self;
                let mut followed = live.followed.take();
                live.model = live.changing().take().map(|model| {
                    update::step(model, optimizers, optimizer, keep_gradients, &mut followed)
                });
                live.followed.replace(followed);
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
                saved::weights(&self.live)?.read(&Buffers::default())
            }

            fn load_weights(&mut self, weights: &TensorMap) -> ModuleResult {
                saved::load_weights(&mut self.live, weights)?;
                self.swap_in();
                Ok(())
            }

            fn load_matching(&mut self, weights: &TensorMap) -> ModuleResult<LoadReport> {
                let report = saved::load_matching(&mut self.live, weights)?;
                self.swap_in();
                Ok(report)
            }

            fn optimizer_state(&self) -> ModuleResult<OptimizerState> {
                // With the model, the state of the parameter that was being updated is lost.
                self.live.present()?;
                self.optimizers.snapshot().read(&Buffers::default())
            }

            fn gradients_state(&self) -> ModuleResult<TensorMap> {
                gradients::held(&self.optimizers).read(&Buffers::default())
            }

            fn load_gradients(&mut self, gradients: &TensorMap) -> ModuleResult {
                gradients::load(&mut self.optimizers, gradients)
            }

            fn snapshot(&self, wanted: SnapshotParts) -> ModuleResult<Snapshot> {
                self.live.present()?;
                let weights = wanted.weights.then(|| saved::weights(&self.live)).transpose()?;
                let optimizers = wanted.optimizers.then(|| self.optimizers.snapshot());
                let gradients = wanted.gradients.then(|| gradients::held(&self.optimizers));
                Ok(Snapshot::new(move |buffers| {
                    let read = |held: Held| held.read(buffers);
                    // What training changes in place goes first: it is copied there if it is still shared by then.
                    let optimizers = optimizers.map(|held| held.read(buffers)).transpose()?.unwrap_or_default();
                    Ok(SnapshotData {
                        optimizers,
                        weights: weights.map(read).transpose()?.unwrap_or_default(),
                        gradients: gradients.map(read).transpose()?.unwrap_or_default(),
                    })
                }))
            }

            fn setup(&mut self, stage: Stage) -> ModuleResult {
                BurnModule::setup(&mut **self, stage)
            }

            fn teardown(&mut self, stage: Stage) -> ModuleResult {
                BurnModule::teardown(&mut **self, stage)
            }

            fn on_save_checkpoint(&mut self, entries: &Entries) -> ModuleResult {
                BurnModule::on_save_checkpoint(&mut **self, entries)
            }

            fn on_load_checkpoint(&mut self, entries: &Entries) -> ModuleResult {
                BurnModule::on_load_checkpoint(&mut **self, entries)
            }

            fn on_exception(&mut self, failure: &Failure) -> ModuleResult {
                BurnModule::on_exception(&mut **self, failure)
            }

            $(
                fn $handler(&mut self, cx: &mut Cx<'_, Self>) -> ModuleResult {
                    BurnModule::$handler(&mut **self, cx)
                }
            )*
        }
    };
}

tenterhook::for_each_module_handler!(implement_module);
