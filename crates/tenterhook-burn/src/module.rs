//! `BurnModule`, which users implement: a Burn model and its steps.

use burn::tensor::Tensor;
use tenterhook::module::Horizon;
use tenterhook::plan::DeclaredMetric;
use tenterhook::{BatchData, BoxError, Cx, ModuleResult, StepOutput};

use crate::Optimizers;
use crate::engine::Burn;

/// The context of a module's steps and handlers.
pub type BurnCx<'a, M> = Cx<'a, Burn<M>>;

/// The result of a training step: a loss (`loss.into()`), or none.
pub type Step = StepOutput<Tensor<1>>;

macro_rules! define_burn_module {
    ($($handler:ident)*) => {
        /// The training program of a Burn model: its steps, optimizers and handlers. Implement it for the type that
        /// derives Burn's `Module`, and pass the model to [`Burn::new`].
        ///
        /// Batches may be on the device without autodiff. In an evaluation the model is `model.valid()`: without autodiff,
        /// dropout off.
        pub trait BurnModule: burn::module::Module + 'static {
            /// The batches of the data.
            type Batch: BatchData;
            /// The result of `predict_step`.
            type Prediction: 'static;

            /// Computes the loss of a batch.
            fn training_step(&mut self, _batch: &Self::Batch, _cx: &mut BurnCx<'_, Self>) -> ModuleResult<Step> {
                Err("this module has no training_step".into())
            }

            /// Trains on a batch with manual optimization: `module` is the model with its optimizers, for
            /// `cx.backward(module, &loss.into())`, `cx.optimizer_step(module, 0)` and
            /// `cx.zero_grad(module, 0)`. Called instead of `training_step` if
            /// [`BurnModule::automatic_optimization`] is false.
            fn manual_step(
                _module: &mut Burn<Self>,
                _batch: &Self::Batch,
                _cx: &mut BurnCx<'_, Self>,
            ) -> ModuleResult {
                Err("this module uses manual optimization and has no manual_step".into())
            }

            /// Whether the loop calls backward and the optimizers. If `false`, `manual_step` does.
            fn automatic_optimization(&self) -> bool {
                true
            }

            /// Evaluates a batch of the validation set, and logs metrics with `cx.log`.
            fn validation_step(&self, _batch: &Self::Batch, _cx: &mut BurnCx<'_, Self>) -> ModuleResult {
                Err("this module has no validation_step".into())
            }

            /// Evaluates a batch of the test set.
            fn test_step(&self, _batch: &Self::Batch, _cx: &mut BurnCx<'_, Self>) -> ModuleResult {
                Err("this module has no test_step".into())
            }

            /// Computes the predictions for a batch.
            fn predict_step(
                &self,
                _batch: &Self::Batch,
                _cx: &mut BurnCx<'_, Self>,
            ) -> ModuleResult<Self::Prediction> {
                Err("this module has no predict_step".into())
            }

            /// The optimizers and schedules, for a training run of this length. Not called if
            /// [`Burn::with_optimizers`] sets them.
            fn configure_optimizers(&mut self, _horizon: Horizon) -> Result<Optimizers, BoxError> {
                Err("this module has no configure_optimizers, and Burn::with_optimizers was not called".into())
            }

            /// The metrics that the model logs, if they are known. Hooks that monitor other metrics are then
            /// refused before training.
            fn metrics(&self) -> Option<Vec<DeclaredMetric>> {
                None
            }

            tenterhook::module_lifecycle! {}

            $(
                /// Called at the event of this name.
                fn $handler(&mut self, _cx: &mut BurnCx<'_, Self>) -> ModuleResult {
                    Ok(())
                }
            )*
        }
    };
}

tenterhook::for_each_module_handler!(define_burn_module);
