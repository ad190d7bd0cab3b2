//! Weights that a hook swaps in for an evaluation, such as averages.

use std::sync::Arc;

use tenterhook_core::{BoxError, Failure, Weights};

use super::{Callee, Loop};
use crate::module::Module;
use crate::tensors::TensorMap;

/// The module's own weights while others are swapped in, and the hook that requested the swap.
#[derive(Default)]
pub(crate) struct WeightSwap {
    pub(crate) own: Option<Arc<TensorMap>>,
    pub(crate) by: Option<String>,
}

impl<M: Module> Loop<M> {
    /// Swaps these weights in, and keeps the module's own. The inner error means that the weights do not fit;
    /// it is not a failure of the module.
    pub(crate) fn swap_weights(
        &mut self,
        module: &mut M,
        weights: &Weights,
    ) -> Result<Result<(), BoxError>, Failure> {
        if self.weights.own.is_none() {
            self.weights.own = Some(Arc::new(call!(self, Module, "weights", module.weights())?));
        }
        let mut others = TensorMap::default();
        for (name, shape, values) in weights.0.iter() {
            others.insert_f32(name, shape, values);
        }
        self.enter(Callee::Module, "load_weights");
        Ok(module.load_weights(&others))
    }

    /// Swaps the module's own weights back in, if others are swapped in.
    pub(crate) fn swap_back(&mut self, module: &mut M) -> Result<(), Failure> {
        self.weights.by = None;
        let Some(own) = self.weights.own.take() else { return Ok(()) };
        call!(self, Module, "load_weights", module.load_weights(&own))
    }
}
