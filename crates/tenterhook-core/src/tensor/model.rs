//! Read-only views of a module and its optimizers for hooks.

use super::TensorSource;

/// A parameter group of an optimizer.
#[derive(Clone, Debug, PartialEq)]
pub struct ParamGroup {
    /// The group's name.
    pub name: String,
    /// The learning rate.
    pub lr: f64,
    /// The momentum, if the optimizer has one.
    pub momentum: Option<f64>,
    /// The weight decay, if the optimizer has one.
    pub weight_decay: Option<f64>,
}

/// A read-only view of the optimizers of a module.
pub trait OptimizerSource {
    /// The number of optimizers.
    fn count(&self) -> usize;
    /// The name of an optimizer.
    fn name(&self, index: usize) -> &str;
    /// The parameter groups of an optimizer, with their current learning rates.
    fn groups(&self, index: usize) -> Vec<ParamGroup>;
    /// The state tensors of an optimizer, such as moment estimates.
    fn state(&self, index: usize) -> &dyn TensorSource;
}

/// A read-only view of a module's parameters and optimizers.
pub trait ModelView {
    /// The parameters.
    fn params(&self) -> &dyn TensorSource;
    /// The optimizers.
    fn optimizers(&self) -> &dyn OptimizerSource;
}
