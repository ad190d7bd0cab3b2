//! Weights that a hook swaps in for an evaluation, such as averages.

use std::sync::Arc;

use tenterhook_core::{BoxError, Failure, Weights};

use super::{Loop, Who};
use crate::module::Module;
use crate::tensors::TensorMap;

/// The module's own weights while it has others, and the hook that swapped those in.
#[derive(Default)]
pub(crate) struct WeightSwap {
    pub(crate) own: Option<Arc<TensorMap>>,
    pub(crate) by: Option<String>,
}

impl<M: Module> Loop<M> {
    /// Gives the module other weights. Its own are kept, unless they are kept already. What is wrong with the others is
    /// no failure of the module.
    pub(crate) fn swap_weights(
        &mut self,
        module: &mut M,
        weights: &Weights,
    ) -> Result<Result<(), BoxError>, Failure> {
        self.at(Who::Module, "weights");
        if self.weights.own.is_none() {
            let own = module.weights();
            self.weights.own = Some(Arc::new(self.checked(own)?));
        }
        let mut others = TensorMap::default();
        for (name, shape, values) in weights.0.iter() {
            others.insert_f32(name, shape, values);
        }
        self.at(Who::Module, "load_weights");
        Ok(module.load_weights(&others))
    }

    /// Gives the module its own weights back, if it has others.
    pub(crate) fn swap_back(&mut self, module: &mut M) -> Result<(), Failure> {
        self.weights.by = None;
        let Some(own) = self.weights.own.take() else { return Ok(()) };
        self.at(Who::Module, "load_weights");
        let loaded = module.load_weights(&own);
        self.checked(loaded)
    }
}
