//! Optimizers, parameter groups and schedules, as far as they need no engine.
//!
//! A module says which [`Optimizers`] it wants; an [`OptimizerSet`] keeps them at work: which parameter belongs to which
//! group, learning rates, schedules, gradients by optimizer, and the state for checkpoints. An [`Engine`] adds what only it
//! knows: its algorithms, what they remember, and its gradients.
//!
//! A schedule yields a factor. The learning rate in force is the group's own rate times all factors. Hooks change the
//! group's own rate, so their change outlasts the next step of a schedule.

mod assign;
mod declared;
mod gradients;
mod named;
mod set;
mod state;
mod table;

use tenterhook_core::update::GradientsMut;
use tenterhook_core::{BoxError, DType, TensorSource};

pub use declared::{Group, Optimizer, Optimizers, Schedule};
pub use named::{NamedOptimizer, OptimizerOptions};
pub(crate) use named::{OptimizerMaker, allow_everywhere};
pub use set::{OptimizerSet, Update};
pub use state::{Held, Number, SavedState, StateParts, StateTensor};
pub use table::{GroupTable, OptimizerTable, Recipe, SchedulerTable, When};

/// What an engine adds to optimization: its algorithms, their state, and its gradients.
pub trait Engine: Clone + Send + 'static {
    /// An algorithm with its options. It is cloned for each group that uses it.
    type Algorithm: Clone + Send + 'static;
    /// What an algorithm remembers of one parameter. Cloning it should copy no tensor.
    type State: Clone + Send + 'static;
    /// A tensor of such a state.
    type Tensor: StateTensor;
    /// The gradients of one optimizer's parameters.
    type Gradients: GradientsMut + TensorSource + 'static;

    /// The optimizers that configurations can name without registering them, the default first.
    fn optimizers() -> Vec<NamedOptimizer<Self>>;

    /// The gradients of these parameters, none of which has arrived.
    fn gradients(&self, params: Vec<ParamFacts>) -> Self::Gradients;

    /// The parts of a state, each under its full name: `fc1.weight.momentum`.
    fn parts(
        &self,
        algorithm: &Self::Algorithm,
        parameter: &str,
        state: &Self::State,
    ) -> StateParts<Self::Tensor>;

    /// The state of a parameter of this shape, from a checkpoint; `None` where that is incomplete.
    fn load_state(
        &self,
        algorithm: &Self::Algorithm,
        parameter: &str,
        shape: &[usize],
        saved: &mut SavedState<'_>,
    ) -> Result<Option<Self::State>, BoxError>;
}

/// What is known of a parameter once and for all.
#[derive(Clone, Debug, PartialEq)]
pub struct ParamFacts {
    /// Its name.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// The type of its elements.
    pub dtype: DType,
    /// Whether it is trained; the others are buffers, or frozen.
    pub trained: bool,
}

impl ParamFacts {
    /// Those of all of these parameters.
    #[must_use]
    pub fn of(params: &dyn TensorSource) -> Vec<ParamFacts> {
        let one = |index| ParamFacts {
            name: params.name(index).to_owned(),
            shape: params.shape(index).to_vec(),
            dtype: params.dtype(index),
            trained: params.is_trained(index),
        };
        (0..params.count()).map(one).collect()
    }
}

/// The methods of a [`Module`](crate::Module) that its [`OptimizerSet`] answers; for engines, within their `impl`. It gets
/// the name of the field. An engine that saves gradients and state without copying adds `without saving` and writes those
/// methods itself.
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
