//! The module: the user's training program, as the loop sees it.
//!
//! An engine crate implements this trait once for its own kind of module; a user of that engine
//! never sees it. Whoever computes with plain numbers implements it himself, as [`crate::toy`] does.

use std::any::Any;

use tenterhook_core::plan::DeclaredMetric;
use tenterhook_core::tensor::ReadScalar;
use tenterhook_core::{
    BoxError, ClipRule, Entries, Failure, GradientsMut, Lr, ModelView, Stage, TensorSource,
};

use crate::cx::Cx;
use crate::data::BatchData;

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

#[doc(hidden)]
#[macro_export]
macro_rules! for_each_module_handler {
    ($then:ident) => {
        $then! {
            on_fit_start on_fit_end on_sanity_check_start on_sanity_check_end
            on_train_start on_train_end on_train_epoch_start on_train_epoch_end
            on_train_batch_start on_train_batch_end on_before_forward on_after_forward
            on_before_zero_grad on_before_backward on_after_backward
            on_before_optimizer_step on_gradient_clip on_after_optimizer_step on_step_end
            on_validation_start on_validation_epoch_start on_validation_batch_start
            on_validation_batch_end on_validation_epoch_end on_validation_end
            on_test_start on_test_epoch_start on_test_batch_start
            on_test_batch_end on_test_epoch_end on_test_end
            on_predict_start on_predict_epoch_start on_predict_batch_start
            on_predict_batch_end on_predict_epoch_end on_predict_end
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

            /// Makes the optimizers and schedulers.
            fn configure_optimizers(&mut self) -> ModuleResult<Optimization>;

            /// Builds what is too large to build earlier. Comes after `setup` and before restoring.
            fn configure_model(&mut self) -> ModuleResult {
                Ok(())
            }

            /// `false`: the module calls [`Cx::backward`] and [`Cx::optimizer_step`] itself, as a GAN needs.
            fn automatic_optimization(&self) -> bool {
                true
            }

            /// The metrics it logs, when it can say; then the plan can refuse monitors of others.
            fn metrics(&self) -> Option<Vec<DeclaredMetric>> {
                None
            }

            /// Clears the gradients of one optimizer.
            fn optimizer_zero_grad(&mut self, optimizer: usize) -> ModuleResult;

            /// Adds the gradients of `loss / divide_by`.
            fn backward(&mut self, loss: &Self::Scalar, divide_by: f64) -> ModuleResult;

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
            fn weights(&self) -> ModuleResult<serde_json::Value>;

            /// The weights, from a checkpoint. Comes before the strategy's set-up and the optimizers.
            fn load_weights(&mut self, weights: &serde_json::Value) -> ModuleResult;

            /// The state of optimizers and schedulers, for a checkpoint.
            fn optimizer_state(&self) -> ModuleResult<serde_json::Value>;

            /// The state of optimizers and schedulers, from a checkpoint. Comes after `on_fit_start`.
            fn load_optimizer_state(&mut self, state: &serde_json::Value) -> ModuleResult;

            /// Before anything else.
            fn setup(&mut self, _stage: Stage) -> ModuleResult {
                Ok(())
            }

            /// After everything else, exactly once.
            fn teardown(&mut self, _stage: Stage) -> ModuleResult {
                Ok(())
            }

            /// May add entries to a checkpoint; hooks have added theirs.
            fn on_save_checkpoint(&mut self, _entries: &Entries) -> ModuleResult {
                Ok(())
            }

            /// May read entries of a checkpoint, before its weights are loaded.
            fn on_load_checkpoint(&mut self, _entries: &Entries) -> ModuleResult {
                Ok(())
            }

            /// The run has failed.
            fn on_exception(&mut self, _failure: &Failure) -> ModuleResult {
                Ok(())
            }

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
