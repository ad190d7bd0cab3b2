//! A model as hooks see it: parameters and optimizers.

use tenterhook_core::{
    LrChange, ModelView, NamedTensors, OptimizerSource, ParamGroup, Request, TensorSource,
};

#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) params: NamedTensors,
    pub(crate) optimizers: Vec<Optimizer>,
}

#[derive(Clone, Debug)]
pub(crate) struct Optimizer {
    pub(crate) name: String,
    pub(crate) groups: Vec<ParamGroup>,
    pub(crate) state: NamedTensors,
}

/// A group of this name and learning rate, with neither momentum nor weight decay.
pub(crate) fn group(name: &str, lr: f64) -> ParamGroup {
    ParamGroup { name: name.to_owned(), lr, momentum: None, weight_decay: None }
}

impl Default for Model {
    fn default() -> Model {
        let (name, groups) = ("optimizer".to_owned(), vec![group("all", 0.001)]);
        let optimizer = Optimizer { name, groups, state: NamedTensors::default() };
        Model { params: NamedTensors::default(), optimizers: vec![optimizer] }
    }
}

impl Model {
    /// All learning rates, by optimizer and group.
    pub(crate) fn learning_rates(&self) -> Vec<f64> {
        self.optimizers.iter().flat_map(|optimizer| &optimizer.groups).map(|group| group.lr).collect()
    }

    /// Applies a request that changes learning rates, as the trainer does.
    pub(crate) fn apply(&mut self, request: &Request) {
        let Request::Lr { optimizer: wanted, change } = request else { return };
        for (index, optimizer) in self.optimizers.iter_mut().enumerate() {
            if wanted.is_some_and(|wanted| wanted != index) {
                continue;
            }
            for group in &mut optimizer.groups {
                match change {
                    LrChange::Set(lr) => group.lr = *lr,
                    LrChange::Scale(factor) => group.lr *= factor,
                }
            }
        }
    }
}

impl ModelView for Model {
    fn params(&self) -> &dyn TensorSource {
        &self.params
    }
    fn optimizers(&self) -> &dyn OptimizerSource {
        self
    }
}

impl OptimizerSource for Model {
    fn count(&self) -> usize {
        self.optimizers.len()
    }
    fn name(&self, index: usize) -> &str {
        &self.optimizers[index].name
    }
    fn groups(&self, index: usize) -> Vec<ParamGroup> {
        self.optimizers[index].groups.clone()
    }
    fn state(&self, index: usize) -> &dyn TensorSource {
        &self.optimizers[index].state
    }
}
