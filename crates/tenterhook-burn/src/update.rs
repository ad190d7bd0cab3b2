//! An optimizer step over the parameters of a Burn model.

use std::time::Instant;

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::Tensor;
use tenterhook::optim::{OptimizerSet, Update};
use tenterhook::tensor::PendingUpdate;

use crate::algorithm::BurnEngine;
use crate::dyn_tensor::DynTensor;

/// Updates the parameters of one optimizer, and consumes their gradients unless `keep` is set. Tracked
/// parameters are compared with their old values.
pub(crate) fn step<M: Module>(
    model: M,
    optimizers: &mut OptimizerSet<BurnEngine>,
    optimizer: usize,
    keep: bool,
    tracked: &mut [Option<PendingUpdate>],
) -> M {
    model.map(&mut Apply { parameter: 0, optimizer, optimizers, keep, tracked })
}

/// Reports the change of a tracked parameter, and the time of computing it.
fn report(change: PendingUpdate, before: &DynTensor, after: &DynTensor) {
    let start = Instant::now();
    let measured = after.change_since(before);
    change.resolve(measured, start.elapsed());
}

struct Apply<'a> {
    parameter: usize,
    optimizer: usize,
    optimizers: &'a mut OptimizerSet<BurnEngine>,
    keep: bool,
    tracked: &'a mut [Option<PendingUpdate>],
}

impl ModuleMapper for Apply<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let parameter = self.parameter;
        self.parameter += 1;
        let Some(update) = self.optimizers.update(self.optimizer, parameter) else { return param };
        let change = self.tracked.get_mut(parameter).and_then(Option::take).filter(PendingUpdate::is_awaited);
        let tracked = change.map(|change| (change, DynTensor::new(param.val().inner())));
        let Update { algorithm, lr, state, gradients, index } = update;
        let Some(gradient) = gradients.take(index, self.keep) else {
            if let Some((change, unchanged)) = tracked {
                report(change, &unchanged, &unchanged);
            }
            return param;
        };
        let (id, tensor, mapper) = param.consume();
        let strategy = tensor.gradient_checkpointing_strategy();
        let (tensor, new_state) = algorithm.as_burn().step_dyn(
            D,
            lr,
            tensor.inner().into_bridge(),
            gradient.into_tensor::<D>().into_bridge(),
            state.take(),
        );
        *state = new_state;
        let tensor = Tensor::<D>::from_bridge(tensor);
        if let Some((change, before)) = tracked {
            report(change, &before, &DynTensor::new(tensor.clone()));
        }
        let mut tensor = Tensor::from_inner(tensor);
        if let Some(strategy) = strategy {
            tensor = tensor.with_gradient_checkpointing_strategy(strategy);
        }
        Param::from_mapped_value(id, tensor.require_grad(), mapper)
    }
}
