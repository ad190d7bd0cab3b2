//! What hooks may see of a module and its optimizers.

use super::TensorSource;

/// The settings of one group of an optimizer's parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct ParamGroup {
    /// The group's name.
    pub name: String,
    /// Its learning rate.
    pub lr: f64,
    /// Its momentum, where the optimizer has one.
    pub momentum: Option<f64>,
    /// Its weight decay, where the optimizer has one.
    pub weight_decay: Option<f64>,
}

/// The optimizers of a module, as far as hooks may see them.
pub trait OptimizerSource {
    /// How many there are.
    fn count(&self) -> usize;
    /// The name of one.
    fn name(&self, index: usize) -> &str;
    /// The parameter groups of one, with the learning rates in force.
    fn groups(&self, index: usize) -> Vec<ParamGroup>;
    /// The state tensors of one (moments and the like).
    fn state(&self, index: usize) -> &dyn TensorSource;
}

/// What a hook may see of a module at any time.
pub trait ModelView {
    /// The parameters.
    fn params(&self) -> &dyn TensorSource;
    /// The optimizers.
    fn optimizers(&self) -> &dyn OptimizerSource;
}
