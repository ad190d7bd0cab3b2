//! What a user writes: a Burn model and its steps.

use burn::tensor::Tensor;
use tenterhook::module::Horizon;
use tenterhook::plan::DeclaredMetric;
use tenterhook::{BatchData, BoxError, CheckpointEntries, Cx, Failure, ModuleResult, Stage};

use crate::Optimizers;
use crate::engine::Burn;

/// What a module's steps and handlers see of the run.
pub type BurnCx<'a, M> = Cx<'a, Burn<M>>;

/// What a training step yields.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)] // nearly all are losses, and a box would be an allocation per step
pub enum Step {
    /// A loss to train on.
    Loss(Tensor<1>),
    /// Nothing to train on: no backward, no update, no scheduler step.
    NoLoss,
}

impl From<Tensor<1>> for Step {
    fn from(loss: Tensor<1>) -> Step {
        Step::Loss(loss)
    }
}

macro_rules! define_burn_module {
    ($($handler:ident)*) => {
        /// A Burn model that knows how to be trained. Implement it for the type that derives Burn's
        /// `Module`, and hand that to [`Burn::new`].
        ///
        /// Inputs of a training step may be made on the plain device; in an evaluation the model is
        /// `model.valid()`: without autodiff, dropout off.
        pub trait BurnModule: burn::module::Module + 'static {
            /// What the data yields.
            type Batch: BatchData;
            /// What `predict_step` yields.
            type Prediction: 'static;

            /// Computes the loss of a batch.
            fn training_step(&mut self, _batch: &Self::Batch, _cx: &mut BurnCx<'_, Self>) -> ModuleResult<Step> {
                Err("this module has no training_step".into())
            }

            /// Trains on a batch by hand: `module` is the model with its optimizers, for
            /// `cx.backward(module, &loss.into())`, `cx.optimizer_step(module, 0)` and
            /// `cx.zero_grad(module, 0)`. Used instead of `training_step` when
            /// [`BurnModule::automatic_optimization`] is false.
            fn manual_step(
                _module: &mut Burn<Self>,
                _batch: &Self::Batch,
                _cx: &mut BurnCx<'_, Self>,
            ) -> ModuleResult {
                Err("this module optimizes by hand and has no manual_step".into())
            }

            /// `false`: the module steps its optimizers itself, in `manual_step`.
            fn automatic_optimization(&self) -> bool {
                true
            }

            /// Evaluates a batch; numbers go to `cx.log`.
            fn validation_step(&self, _batch: &Self::Batch, _cx: &mut BurnCx<'_, Self>) -> ModuleResult {
                Err("this module has no validation_step".into())
            }

            /// Evaluates a batch of the test set.
            fn test_step(&self, _batch: &Self::Batch, _cx: &mut BurnCx<'_, Self>) -> ModuleResult {
                Err("this module has no test_step".into())
            }

            /// Predicts a batch.
            fn predict_step(
                &self,
                _batch: &Self::Batch,
                _cx: &mut BurnCx<'_, Self>,
            ) -> ModuleResult<Self::Prediction> {
                Err("this module has no predict_step".into())
            }

            /// The optimizers and schedules, for a training of this length. Not asked when the model was
            /// given some with [`Burn::with_optimizers`].
            fn configure_optimizers(&mut self, _horizon: Horizon) -> Result<Optimizers, BoxError> {
                Err("this module has no configure_optimizers, and was given no optimizers".into())
            }

            /// The metrics it logs, when it can say; then the plan can refuse monitors of others.
            fn metrics(&self) -> Option<Vec<DeclaredMetric>> {
                None
            }

            /// Builds what is too large to build earlier. Comes after `setup` and before restoring.
            fn configure_model(&mut self) -> ModuleResult {
                Ok(())
            }

            /// Before anything else.
            fn setup(&mut self, _stage: Stage) -> ModuleResult {
                Ok(())
            }

            /// After everything else, exactly once.
            fn teardown(&mut self, _stage: Stage) -> ModuleResult {
                Ok(())
            }

            /// May add entries to a checkpoint; hooks have added theirs.
            fn on_save_checkpoint(&mut self, _entries: &CheckpointEntries) -> ModuleResult {
                Ok(())
            }

            /// May read entries of a checkpoint, before its weights are loaded.
            fn on_load_checkpoint(&mut self, _entries: &CheckpointEntries) -> ModuleResult {
                Ok(())
            }

            /// The run has failed.
            fn on_exception(&mut self, _failure: &Failure) -> ModuleResult {
                Ok(())
            }

            $(
                /// See the event of this name.
                fn $handler(&mut self, _cx: &mut BurnCx<'_, Self>) -> ModuleResult {
                    Ok(())
                }
            )*
        }
    };
}

tenterhook::for_each_module_handler!(define_burn_module);
