//! Optimizers, parameter groups and schedules, independent of the engine.
//!
//! A module returns its [`Optimizers`]. An [`OptimizerSet`] manages them: parameter groups, learning rates,
//! schedules, gradients by optimizer, and the state for checkpoints. An [`Engine`] adds its algorithms, their
//! state, and its gradients.
//!
//! A schedule returns a factor. The current learning rate is the base rate of the group times all factors.
//! Hooks change the base rate, so their change survives the next step of a schedule.

mod active;
mod gradients;
mod optimizer;
mod options;
mod param_groups;
mod set;
mod state;
mod table;

use tenterhook_core::update::GradientsMut;
use tenterhook_core::{BoxError, DType, TensorSource};

pub use optimizer::{Group, Optimizer, Optimizers, Schedule};
pub(crate) use options::{AnyOptimizerFactory, add_to_all_tables};
pub use options::{BuiltInOptimizer, OptimizerOptions};
pub use set::{OptimizerSet, Update};
pub use state::{OptimizerSnapshot, SavedState, StateParts, StateScalar, StateTensor};
pub use table::{GroupTable, OptimizerFactory, OptimizerTable, SchedulerTable};

/// The engine's part of optimization: its algorithms, their state, and its gradients.
pub trait Engine: Clone + Send + 'static {
    /// An algorithm with its options. Each group has a clone.
    type Algorithm: Clone + Send + 'static;
    /// The state of an algorithm for one parameter. Cloning it should not copy tensors.
    type State: Clone + Send + 'static;
    /// A tensor of such a state.
    type Tensor: StateTensor;
    /// The gradients of one optimizer's parameters.
    type Gradients: GradientsMut + TensorSource + 'static;

    /// The optimizers that configurations can name, the default first.
    fn optimizers() -> Vec<BuiltInOptimizer<Self>>;

    /// Empty gradients of these parameters.
    fn gradients(&self, params: Vec<ParamInfo>) -> Self::Gradients;

    /// The tensors and scalars of a state by full name, such as `fc1.weight.momentum`.
    fn parts(
        &self,
        algorithm: &Self::Algorithm,
        parameter: &str,
        state: &Self::State,
    ) -> StateParts<Self::Tensor>;

    /// Loads the state of a parameter of this shape; `None` if it is incomplete.
    fn load_state(
        &self,
        algorithm: &Self::Algorithm,
        parameter: &str,
        shape: &[usize],
        saved: &mut SavedState<'_>,
    ) -> Result<Option<Self::State>, BoxError>;
}

/// Name, shape and type of a parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct ParamInfo {
    /// Its name.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// The type of its elements.
    pub dtype: DType,
    /// Whether it is trained: neither a buffer nor frozen.
    pub trained: bool,
}

impl ParamInfo {
    /// Describes all of these parameters.
    #[must_use]
    pub fn of(params: &dyn TensorSource) -> Vec<ParamInfo> {
        let one = |index| ParamInfo {
            name: params.name(index).to_owned(),
            shape: params.shape(index).to_vec(),
            dtype: params.dtype(index),
            trained: params.is_trained(index),
        };
        (0..params.count()).map(one).collect()
    }
}

/// Implements the methods of a [`Module`](crate::Module) that delegate to its [`OptimizerSet`], within an
/// engine's `impl`. The argument is the name of the field. With `without saving`, the engine implements the
/// methods that save gradients and state itself.
#[macro_export]
macro_rules! optimizer_set_methods {
    ($set:ident) => {
        $crate::optimizer_set_methods! { $set without saving }

        fn optimizer_state(&self) -> $crate::ModuleResult<$crate::module::OptimizerState> {
            self.$set.state()
        }

        fn gradients_state(&self) -> $crate::ModuleResult<$crate::TensorMap> {
            Ok(self.$set.gradients_state())
        }

        fn load_gradients(&mut self, gradients: &$crate::TensorMap) -> $crate::ModuleResult {
            self.$set.load_gradients(gradients)
        }
    };
    ($set:ident without saving) => {
        fn optimizer_zero_grad(&mut self, optimizer: usize) -> $crate::ModuleResult {
            self.$set.zero_grad(optimizer)
        }

        fn without_gradient(&self, optimizer: usize) -> Vec<String> {
            self.$set.without_gradient(optimizer)
        }

        fn clip_gradients(&mut self, optimizer: usize, rule: $crate::ClipRule) -> $crate::ModuleResult {
            self.$set.clip(optimizer, rule)
        }

        fn lr_scheduler_step(&mut self, scheduler: usize, metric: Option<f64>) -> $crate::ModuleResult {
            self.$set.step_schedule(scheduler, metric)
        }

        fn gradients(&self, optimizer: Option<usize>) -> &dyn $crate::TensorSource {
            self.$set.gradients(optimizer)
        }

        fn gradients_mut(&mut self, optimizer: usize) -> &mut dyn $crate::GradientsMut {
            &mut self.$set.parts_mut()[optimizer]
        }

        fn lr(&self, optimizer: usize) -> f64 {
            self.$set.lr(optimizer)
        }

        fn change_lr(&mut self, optimizer: usize, change: $crate::LrChange) -> $crate::ModuleResult {
            self.$set.change_lr(optimizer, change)
        }

        fn load_optimizer_state(&mut self, state: &$crate::module::OptimizerState) -> $crate::ModuleResult {
            self.$set.load_state(state)
        }

        fn saves_gradients(&self) -> bool {
            true
        }
    };
}
