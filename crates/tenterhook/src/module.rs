//! The module: the user's training program, as the loop sees it.
//!
//! An engine crate implements this trait for its own kind of module, so that users of that engine do not see
//! it. A program without an engine implements it directly, like [`crate::toy`].

mod report;

use std::any::Any;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook_core::plan::DeclaredMetric;
use tenterhook_core::tensor::ReadScalar;
use tenterhook_core::{BoxError, ClipRule, GradientsMut, LrChange, ModelView, TensorSource};

use crate::cx::Cx;
use crate::data::BatchData;
use crate::tensors::{Buffers, TensorMap};

/// The result of a module's methods.
pub type ModuleResult<T = ()> = Result<T, BoxError>;

/// The output of a training step.
#[derive(Clone, Debug, PartialEq)]
pub enum StepOutput<S> {
    /// The loss to minimize.
    Loss(S),
    /// No loss: no backward pass, no update, no scheduler step.
    NoLoss,
}

impl<S> From<S> for StepOutput<S> {
    fn from(loss: S) -> StepOutput<S> {
        StepOutput::Loss(loss)
    }
}

/// The unit of a scheduler's steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Interval {
    /// Optimizer steps.
    Step,
    /// Epochs.
    Epoch,
}

/// When a learning-rate scheduler steps.
#[derive(Clone, Debug, PartialEq)]
pub struct SchedulerPlan {
    /// The unit of its steps.
    pub interval: Interval,
    /// The number of units per step of the scheduler.
    pub frequency: u64,
    /// The metric that is passed to its steps, and that must be logged before.
    pub monitor: Option<String>,
    /// Whether a missing metric is an error.
    pub strict: bool,
}

impl SchedulerPlan {
    /// A scheduler that steps after each unit.
    #[must_use]
    pub fn every(interval: Interval) -> SchedulerPlan {
        SchedulerPlan { interval, frequency: 1, monitor: None, strict: true }
    }

    /// A scheduler that steps after each epoch with the value of a metric.
    #[must_use]
    pub fn on_plateau_of(metric: impl Into<String>) -> SchedulerPlan {
        SchedulerPlan { monitor: Some(metric.into()), ..SchedulerPlan::every(Interval::Epoch) }
    }
}

/// The optimizers and schedulers of a module, for the loop.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Optimization {
    /// The number of optimizers, over disjoint parameters.
    pub optimizers: usize,
    /// The schedulers, in the order in which they step.
    pub schedulers: Vec<SchedulerPlan>,
}

/// The total length of training, if known. Training may end earlier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Horizon {
    /// In optimizer steps. With manual optimization, only `max_steps` limits it.
    pub steps: Option<u64>,
    /// In epochs.
    pub epochs: Option<u64>,
}

impl Horizon {
    /// The length from the limits. `per_epoch` is the number of steps of an epoch.
    pub(crate) fn of(max_steps: Option<u64>, max_epochs: Option<u64>, per_epoch: Option<u64>) -> Horizon {
        let least = |a: Option<u64>, b: Option<u64>| [a, b].into_iter().flatten().min();
        let by_epochs = per_epoch.zip(max_epochs).map(|(steps, epochs)| steps.saturating_mul(epochs));
        let by_steps = max_steps.zip(per_epoch.filter(|steps| *steps > 0));
        Horizon {
            steps: least(max_steps, by_epochs),
            epochs: least(max_epochs, by_steps.map(|(max, steps)| max.div_ceil(steps))),
        }
    }

    /// The maximum number of steps of a scheduler. A scheduler with a `frequency` counts anew in each epoch,
    /// so it may step a little less often.
    #[must_use]
    pub fn of_scheduler(&self, plan: &SchedulerPlan) -> Option<u64> {
        let all = match plan.interval {
            Interval::Step => self.steps,
            Interval::Epoch => self.epochs,
        };
        all.map(|all| all / plan.frequency.max(1))
    }
}

/// The state of optimizers and schedulers, for checkpoints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OptimizerState {
    /// The tensors, such as moments, by full name.
    #[serde(skip)]
    pub tensors: TensorMap,
    /// Everything else: learning rates, counts, schedulers.
    pub rest: serde_json::Value,
}

/// The parts of a module to include in a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotParts {
    /// The weights.
    pub weights: bool,
    /// The state of optimizers and schedulers.
    pub optimizers: bool,
    /// The gradients of an open accumulation window, or those that are still needed.
    pub gradients: bool,
}

/// The data of a snapshot. Parts that were not requested are empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SnapshotData {
    /// The weights.
    pub weights: TensorMap,
    /// The state of optimizers and schedulers.
    pub optimizers: OptimizerState,
    /// The gradients.
    pub gradients: TensorMap,
}

impl SnapshotData {
    /// Copies the wanted parts of a module.
    pub fn of<M: Module>(module: &M, wanted: SnapshotParts) -> ModuleResult<SnapshotData> {
        let (weights, optimizers, gradients) = (wanted.weights, wanted.optimizers, wanted.gradients);
        Ok(SnapshotData {
            weights: weights.then(|| module.weights()).transpose()?.unwrap_or_default(),
            optimizers: optimizers.then(|| module.optimizer_state()).transpose()?.unwrap_or_default(),
            gradients: gradients.then(|| module.gradients_state()).transpose()?.unwrap_or_default(),
        })
    }
}

/// A snapshot of a module. Taking it should copy nothing; the data is read later, on the thread that writes
/// the checkpoint, while training continues.
pub struct Snapshot(Box<Read>);

type Read = dyn FnOnce(&Buffers) -> ModuleResult<SnapshotData> + Send;

impl Snapshot {
    /// A snapshot whose data is read by this function, which can make copies in the buffers. Later training
    /// must not change the data.
    pub fn new(read: impl FnOnce(&Buffers) -> ModuleResult<SnapshotData> + Send + 'static) -> Snapshot {
        Snapshot(Box::new(read))
    }

    /// Reads the data.
    pub fn read(self, buffers: &Buffers) -> ModuleResult<SnapshotData> {
        (self.0)(buffers)
    }
}

/// The result of loading the weights that match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LoadReport {
    /// The parameters that were loaded.
    pub loaded: Vec<String>,
    /// The parameters without weights, which are unchanged.
    pub missing: Vec<String>,
    /// The weights without a parameter.
    pub unexpected: Vec<String>,
    /// The parameters whose weights have another shape, with both shapes. They are unchanged.
    pub mismatched: Vec<String>,
}

#[doc(hidden)]
#[macro_export]
macro_rules! for_each_module_handler {
    ($then:ident) => {
        $crate::for_each_handler_of! { module $then }
    };
}

/// The handlers of [`Module`] that get no context, with their defaults; also for the traits of engines.
#[doc(hidden)]
#[macro_export]
macro_rules! module_lifecycle {
    () => {
        /// Builds the parts of the model that are too large to build earlier. Called after `setup` and before
        /// weights are restored.
        fn configure_model(&mut self) -> $crate::ModuleResult {
            Ok(())
        }

        /// Called before everything else.
        fn setup(&mut self, _stage: $crate::Stage) -> $crate::ModuleResult {
            Ok(())
        }

        /// Called after everything else, exactly once.
        fn teardown(&mut self, _stage: $crate::Stage) -> $crate::ModuleResult {
            Ok(())
        }

        /// May add entries to a checkpoint, after the hooks.
        fn on_save_checkpoint(&mut self, _entries: &$crate::CheckpointEntries) -> $crate::ModuleResult {
            Ok(())
        }

        /// May read entries of a checkpoint, before its weights are loaded.
        fn on_load_checkpoint(&mut self, _entries: &$crate::CheckpointEntries) -> $crate::ModuleResult {
            Ok(())
        }

        /// Called when the run has failed.
        fn on_exception(&mut self, _failure: &$crate::Failure) -> $crate::ModuleResult {
            Ok(())
        }
    };
}

macro_rules! define_module {
    ($($handler:ident)*) => {
        /// The user's training program: model, steps, optimizers, and optional lifecycle handlers.
        ///
        /// At each event, hooks run before the module, except for monitors at `on_train_epoch_end`, which run
        /// after it.
        pub trait Module: ModelView + Sized {
            /// The type of batches.
            type Batch: BatchData;
            /// The type of losses and norms, which may be computed lazily.
            type Scalar: ReadScalar + Clone;
            /// The output of `predict_step`.
            type Prediction: Any;

            /// Computes the loss of a batch. Without [`Module::automatic_optimization`] it also steps the
            /// optimizers.
            fn training_step(
                &mut self,
                batch: &Self::Batch,
                cx: &mut Cx<'_, Self>,
            ) -> ModuleResult<StepOutput<Self::Scalar>>;

            /// Evaluates a batch. Metrics are logged with `cx.log`.
            fn validation_step(&mut self, _batch: &Self::Batch, _cx: &mut Cx<'_, Self>) -> ModuleResult {
                Err("this module has no validation_step".into())
            }

            /// Evaluates a batch of the test set.
            fn test_step(&mut self, _batch: &Self::Batch, _cx: &mut Cx<'_, Self>) -> ModuleResult {
                Err("this module has no test_step".into())
            }

            /// Predicts a batch.
            fn predict_step(&mut self, _batch: &Self::Batch, _cx: &mut Cx<'_, Self>) -> ModuleResult<Self::Prediction> {
                Err("this module has no predict_step".into())
            }

            /// Creates the optimizers and schedulers for a training run of this length.
            fn configure_optimizers(&mut self, horizon: Horizon) -> ModuleResult<Optimization>;

            /// Whether the loop calls backward and optimizer steps. If false, the module calls
            /// [`Cx::backward`] and [`Cx::optimizer_step`], as GANs do.
            fn automatic_optimization(&self) -> bool {
                true
            }

            /// The engine and its version, such as `burn 0.22.1`, for `run.json`.
            fn engine(&self) -> Option<String> {
                None
            }

            /// The metrics that it logs, if known. Then the plan can refuse monitors of other metrics.
            fn metrics(&self) -> Option<Vec<DeclaredMetric>> {
                None
            }

            /// Clears the gradients of one optimizer.
            fn optimizer_zero_grad(&mut self, optimizer: usize) -> ModuleResult;

            /// Adds the gradients of `loss / divide_by`.
            fn backward(&mut self, loss: &Self::Scalar, divide_by: f64) -> ModuleResult;

            /// The names of one optimizer's trained parameters without a gradient in this window. Called
            /// before its first step.
            fn without_gradient(&self, _optimizer: usize) -> Vec<String> {
                Vec::new()
            }

            /// Clips the gradients of one optimizer.
            fn clip_gradients(&mut self, optimizer: usize, rule: ClipRule) -> ModuleResult;

            /// Updates the weights. Unless `keep_gradients` is set, the gradients may be consumed.
            fn optimizer_step(&mut self, optimizer: usize, keep_gradients: bool) -> ModuleResult;

            /// Steps a scheduler of [`Optimization::schedulers`], with the value of its metric if it monitors
            /// one.
            fn lr_scheduler_step(&mut self, scheduler: usize, metric: Option<f64>) -> ModuleResult;

            /// The gradients of one optimizer's parameters, or of all.
            fn gradients(&self, optimizer: Option<usize>) -> &dyn TensorSource;

            /// The mutable gradients of one optimizer's parameters.
            fn gradients_mut(&mut self, optimizer: usize) -> &mut dyn GradientsMut;

            /// The norm of one optimizer's gradients, which may be computed lazily.
            fn grad_norm(&self, optimizer: usize) -> Self::Scalar;

            /// The learning rate of an optimizer's first group.
            fn lr(&self, optimizer: usize) -> f64;

            /// Changes the learning rates of one optimizer.
            fn change_lr(&mut self, optimizer: usize, change: LrChange) -> ModuleResult;

            /// Detaches a loss from the computation graph.
            fn detach(loss: Self::Scalar) -> Self::Scalar {
                loss
            }

            /// Seeds the engine. Called before each step, after all hooks have run.
            fn reseed(&mut self, _seed: u64) {}

            /// Sets the seed of the run and whether to use deterministic algorithms only. Called first.
            fn prepare(&mut self, _seed: u64, _deterministic: bool) {}

            /// Switches to evaluation mode, for example without dropout.
            fn eval_mode(&mut self) {}

            /// Switches to training mode.
            fn train_mode(&mut self) {}

            /// The weights, for a checkpoint.
            fn weights(&self) -> ModuleResult<TensorMap>;

            /// Loads weights from a checkpoint. Called before the strategy's set-up and the optimizers.
            fn load_weights(&mut self, weights: &TensorMap) -> ModuleResult;

            /// The state of optimizers and schedulers, for a checkpoint.
            fn optimizer_state(&self) -> ModuleResult<OptimizerState>;

            /// Loads the state of optimizers and schedulers from a checkpoint. Called after `on_fit_start`.
            fn load_optimizer_state(&mut self, state: &OptimizerState) -> ModuleResult;

            /// A snapshot for a checkpoint that is written while training continues. The default copies
            /// everything; an engine with shared tensors copies nothing.
            fn snapshot(&self, wanted: SnapshotParts) -> ModuleResult<Snapshot> {
                let saved = SnapshotData::of(self, wanted)?;
                Ok(Snapshot::new(move |_| Ok(saved)))
            }

            /// Whether gradients can be saved and loaded, which checkpoints within an accumulation window
            /// need.
            fn saves_gradients(&self) -> bool {
                false
            }

            /// The present gradients by parameter name, for a checkpoint within an accumulation window.
            /// Called only if [`Module::saves_gradients`] is true.
            fn gradients_state(&self) -> ModuleResult<TensorMap> {
                Ok(TensorMap::default())
            }

            /// Loads the gradients of a checkpoint and removes all others. Called right before training
            /// resumes.
            fn load_gradients(&mut self, _gradients: &TensorMap) -> ModuleResult {
                Err("this module cannot load gradients; implement `gradients_state` and `load_gradients`".into())
            }

            /// Loads the weights whose names and shapes match, for fine-tuning, and reports which. Called
            /// instead of [`Module::load_weights`].
            fn load_matching(&mut self, _weights: &TensorMap) -> ModuleResult<LoadReport> {
                Err("this module cannot load a part of its weights; implement `load_matching`".into())
            }

            module_lifecycle! {}

            $(
                /// See the event of this name.
                fn $handler(&mut self, _cx: &mut Cx<'_, Self>) -> ModuleResult {
                    Ok(())
                }
            )*
        }
    };
}

for_each_module_handler!(define_module);
