//! The module: the user's training program, as the loop sees it.
//!
//! An engine crate implements this trait once for its own kind of module; a user of that engine
//! never sees it. Whoever computes with plain numbers implements it himself, as [`crate::toy`] does.

mod report;

use std::any::Any;

use serde::{Deserialize, Serialize};
use tenterhook_core::plan::DeclaredMetric;
use tenterhook_core::tensor::ReadScalar;
use tenterhook_core::{BoxError, ClipRule, GradientsMut, Lr, ModelView, TensorSource};

use crate::cx::Cx;
use crate::data::BatchData;
use crate::tensors::{Buffers, TensorMap};

/// What a module's handlers and actions return.
pub type ModuleResult<T = ()> = Result<T, BoxError>;

/// What a training step yields.
#[derive(Clone, Debug, PartialEq)]
pub enum StepOutput<S> {
    /// A loss to train on.
    Loss(S),
    /// Nothing to train on: no backward, no update, no scheduler step.
    NoLoss,
}

impl<S> From<S> for StepOutput<S> {
    fn from(loss: S) -> StepOutput<S> {
        StepOutput::Loss(loss)
    }
}

/// When a scheduler steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interval {
    /// After optimizer steps.
    Step,
    /// After epochs.
    Epoch,
}

/// A learning-rate scheduler, as far as the loop must know it.
#[derive(Clone, Debug, PartialEq)]
pub struct SchedulerPlan {
    /// When it steps.
    pub interval: Interval,
    /// On every how many of these.
    pub frequency: u64,
    /// It steps on a plateau of this metric, which must have been logged by then.
    pub plateau_of: Option<String>,
    /// Whether a missing metric is an error.
    pub strict: bool,
}

impl SchedulerPlan {
    /// A scheduler that steps after every one of these.
    #[must_use]
    pub fn every(interval: Interval) -> SchedulerPlan {
        SchedulerPlan { interval, frequency: 1, plateau_of: None, strict: true }
    }

    /// A scheduler that judges a metric after every epoch.
    #[must_use]
    pub fn on_plateau_of(metric: impl Into<String>) -> SchedulerPlan {
        SchedulerPlan { plateau_of: Some(metric.into()), ..SchedulerPlan::every(Interval::Epoch) }
    }
}

/// The optimizers and schedulers of a module, as far as the loop must know them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Optimization {
    /// How many optimizers there are, over disjoint parameters.
    pub optimizers: usize,
    /// The schedulers, in the order in which they step.
    pub schedulers: Vec<SchedulerPlan>,
}

/// How long training will be from its very beginning, as far as that is known. It may end earlier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Horizon {
    /// In optimizer steps. With manual optimization only `max_steps` can say.
    pub steps: Option<u64>,
    /// In epochs.
    pub epochs: Option<u64>,
}

impl Horizon {
    /// What these limits come to. `per_epoch` is the steps of an epoch.
    pub(crate) fn of(max_steps: Option<u64>, max_epochs: Option<u64>, per_epoch: Option<u64>) -> Horizon {
        let least = |a: Option<u64>, b: Option<u64>| [a, b].into_iter().flatten().min();
        let by_epochs = per_epoch.zip(max_epochs).map(|(steps, epochs)| steps.saturating_mul(epochs));
        let by_steps = max_steps.zip(per_epoch.filter(|steps| *steps > 0));
        Horizon {
            steps: least(max_steps, by_epochs),
            epochs: least(max_epochs, by_steps.map(|(max, steps)| max.div_ceil(steps))),
        }
    }

    /// How often a scheduler will step at the most. One that steps on every so many batches begins to
    /// count anew in every epoch, so it may step a little less often.
    #[must_use]
    pub fn of_scheduler(&self, plan: &SchedulerPlan) -> Option<u64> {
        let all = match plan.interval {
            Interval::Step => self.steps,
            Interval::Epoch => self.epochs,
        };
        all.map(|all| all / plan.frequency.max(1))
    }
}

/// The state of optimizers and schedulers, as a checkpoint holds it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OptimizerState {
    /// What is as large as the weights: moments and the like, by parameter.
    #[serde(skip)]
    pub tensors: TensorMap,
    /// Everything else: learning rates, counts, schedulers.
    pub rest: serde_json::Value,
}

/// Which parts of a module a checkpoint wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The weights.
    pub weights: bool,
    /// The state of optimizers and schedulers.
    pub optimizers: bool,
    /// The gradients of an accumulation window that has not ended, or that somebody will still look at.
    pub gradients: bool,
}

/// The tensors and numbers of a module as a checkpoint holds them; what was not wanted is empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Saved {
    /// The weights.
    pub weights: TensorMap,
    /// The state of optimizers and schedulers.
    pub optimizers: OptimizerState,
    /// The gradients.
    pub gradients: TensorMap,
}

impl Saved {
    /// Copies the wanted parts of a module.
    pub fn of<M: Module>(module: &M, wanted: Wanted) -> ModuleResult<Saved> {
        let (weights, optimizers, gradients) = (wanted.weights, wanted.optimizers, wanted.gradients);
        Ok(Saved {
            weights: weights.then(|| module.weights()).transpose()?.unwrap_or_default(),
            optimizers: optimizers.then(|| module.optimizer_state()).transpose()?.unwrap_or_default(),
            gradients: gradients.then(|| module.gradients_state()).transpose()?.unwrap_or_default(),
        })
    }
}

/// A module as it was at one moment. Taking it should copy nothing; what it takes to bring the numbers over is done
/// by whoever writes them, on another thread, while training goes on.
pub struct Snapshot(Box<Read>);

type Read = dyn FnOnce(&Buffers) -> ModuleResult<Saved> + Send;

impl Snapshot {
    /// One whose numbers are brought over when they are needed; copies may lie in these buffers, which are kept from one
    /// save to the next. Nothing that training does afterwards may change them.
    pub fn new(read: impl FnOnce(&Buffers) -> ModuleResult<Saved> + Send + 'static) -> Snapshot {
        Snapshot(Box::new(read))
    }

    /// Brings the numbers over.
    pub fn read(self, buffers: &Buffers) -> ModuleResult<Saved> {
        (self.0)(buffers)
    }
}

/// What became of weights that were loaded as far as they fit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LoadReport {
    /// The parameters that were set.
    pub loaded: Vec<String>,
    /// The parameters that the weights lack; they stay as they were.
    pub missing: Vec<String>,
    /// The weights that the module has no parameter for.
    pub unexpected: Vec<String>,
    /// The parameters whose weights do not fit, with both shapes; they stay as they were.
    pub unfit: Vec<String>,
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
        /// Builds what is too large to build earlier. Called after `setup` and before weights are restored.
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
        fn on_save_checkpoint(&mut self, _entries: &$crate::Entries) -> $crate::ModuleResult {
            Ok(())
        }

        /// May read entries of a checkpoint, before its weights are loaded.
        fn on_load_checkpoint(&mut self, _entries: &$crate::Entries) -> $crate::ModuleResult {
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
        /// The user's training program: model, steps, optimizers, and any lifecycle handler it likes.
        ///
        /// At every event hooks come before the module, except that monitors come after it at
        /// `on_train_epoch_end`.
        pub trait Module: ModelView + Sized {
            /// What the data yields.
            type Batch: BatchData;
            /// A number that may not be computed yet: losses and norms.
            type Scalar: ReadScalar + Clone;
            /// What `predict_step` yields.
            type Prediction: Any;

            /// Computes the loss of a batch, or steps its optimizers itself when it says so in
            /// [`Module::automatic_optimization`].
            fn training_step(
                &mut self,
                batch: &Self::Batch,
                cx: &mut Cx<'_, Self>,
            ) -> ModuleResult<StepOutput<Self::Scalar>>;

            /// Evaluates a batch; numbers go to `cx.log`.
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

            /// Makes the optimizers and schedulers, for a training of this length.
            fn configure_optimizers(&mut self, horizon: Horizon) -> ModuleResult<Optimization>;

            /// `false`: the module calls [`Cx::backward`] and [`Cx::optimizer_step`] itself, as a GAN needs.
            fn automatic_optimization(&self) -> bool {
                true
            }

            /// The engine that computes it, with its version, such as `burn 0.22.1`; `run.json` records it.
            fn engine(&self) -> Option<String> {
                None
            }

            /// The metrics it logs, when it can say; then the plan can refuse monitors of others.
            fn metrics(&self) -> Option<Vec<DeclaredMetric>> {
                None
            }

            /// Clears the gradients of one optimizer.
            fn optimizer_zero_grad(&mut self, optimizer: usize) -> ModuleResult;

            /// Adds the gradients of `loss / divide_by`.
            fn backward(&mut self, loss: &Self::Scalar, divide_by: f64) -> ModuleResult;

            /// The trained parameters of one optimizer that no gradient has reached in this window, by name.
            /// Asked before its first step.
            fn without_gradient(&self, _optimizer: usize) -> Vec<String> {
                Vec::new()
            }

            /// Clips the gradients of one optimizer.
            fn clip_gradients(&mut self, optimizer: usize, rule: ClipRule) -> ModuleResult;

            /// Changes the weights. When `keep_gradients` is false they may be consumed.
            fn optimizer_step(&mut self, optimizer: usize, keep_gradients: bool) -> ModuleResult;

            /// Steps a scheduler of [`Optimization::schedulers`]; one on a plateau gets its metric.
            fn lr_scheduler_step(&mut self, scheduler: usize, metric: Option<f64>) -> ModuleResult;

            /// The gradients of one optimizer's parameters, or of all.
            fn gradients(&self, optimizer: Option<usize>) -> &dyn TensorSource;

            /// The gradients of one optimizer's parameters, to be changed.
            fn gradients_mut(&mut self, optimizer: usize) -> &mut dyn GradientsMut;

            /// The norm of one optimizer's gradients, which need not be computed now.
            fn grad_norm(&self, optimizer: usize) -> Self::Scalar;

            /// The learning rate of an optimizer's first group.
            fn lr(&self, optimizer: usize) -> f64;

            /// Changes the learning rates of one optimizer.
            fn change_lr(&mut self, optimizer: usize, change: Lr) -> ModuleResult;

            /// A loss that no longer holds on to what it was computed from.
            fn detach(loss: Self::Scalar) -> Self::Scalar {
                loss
            }

            /// Seeds the engine. Called immediately before each step, after all hooks have run.
            fn reseed(&mut self, _seed: u64) {}

            /// The run's seed, and whether only deterministic algorithms may be used. Called first of all.
            fn prepare(&mut self, _seed: u64, _deterministic: bool) {}

            /// Goes from training to evaluation (dropout off, and the like).
            fn eval_mode(&mut self) {}

            /// Goes back to training.
            fn train_mode(&mut self) {}

            /// The weights, for a checkpoint.
            fn weights(&self) -> ModuleResult<TensorMap>;

            /// The weights, from a checkpoint. Comes before the strategy's set-up and the optimizers.
            fn load_weights(&mut self, weights: &TensorMap) -> ModuleResult;

            /// The state of optimizers and schedulers, for a checkpoint.
            fn optimizer_state(&self) -> ModuleResult<OptimizerState>;

            /// The state of optimizers and schedulers, from a checkpoint. Comes after `on_fit_start`.
            fn load_optimizer_state(&mut self, state: &OptimizerState) -> ModuleResult;

            /// Itself as it is now, for a checkpoint that is written while training goes on. The default copies
            /// everything at once; an engine whose tensors are shared copies nothing.
            fn snapshot(&self, wanted: Wanted) -> ModuleResult<Snapshot> {
                let saved = Saved::of(self, wanted)?;
                Ok(Snapshot::new(move |_| Ok(saved)))
            }

            /// Whether gradients can be saved and loaded, so that a checkpoint can be taken within an accumulation
            /// window.
            fn saves_gradients(&self) -> bool {
                false
            }

            /// The gradients there are, by parameter name, for a checkpoint within an accumulation window. Asked only
            /// of a module that says so in [`Module::saves_gradients`].
            fn gradients_state(&self) -> ModuleResult<TensorMap> {
                Ok(TensorMap::default())
            }

            /// The gradients, from a checkpoint: exactly these, and none where none are. Comes right before training
            /// goes on.
            fn load_gradients(&mut self, _gradients: &TensorMap) -> ModuleResult {
                Err("this module cannot load gradients; implement `gradients_state` and `load_gradients`".into())
            }

            /// Sets those parameters that the weights have under their names and shapes, for fine-tuning, and says
            /// which. Comes where [`Module::load_weights`] does.
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
