//! One optimizer's step over the parameters of a Burn model.

use std::time::Instant;

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::Tensor;
use tenterhook::optim::{OptimizerSet, Update};
use tenterhook::tensor::PendingUpdate;

use crate::algorithm::BurnEngine;
use crate::erased::Erased;

/// Moves the parameters of one optimizer, and consumes their gradients unless they are to be kept. Those that are followed
/// are compared with what they were while both are near.
pub(crate) fn step<M: Module>(
    model: M,
    optimizers: &mut OptimizerSet<BurnEngine>,
    optimizer: usize,
    keep: bool,
    followed: &mut [Option<PendingUpdate>],
) -> M {
    model.map(&mut Apply { parameter: 0, optimizer, optimizers, keep, followed })
}

/// Tells how a weight has changed, and what it took to see it.
fn tell(awaited: PendingUpdate, before: &Erased, after: &Erased) {
    let began = Instant::now();
    let change = after.change_since(before);
    awaited.resolve(change, began.elapsed());
}

struct Apply<'a> {
    parameter: usize,
    optimizer: usize,
    optimizers: &'a mut OptimizerSet<BurnEngine>,
    keep: bool,
    followed: &'a mut [Option<PendingUpdate>],
}

impl ModuleMapper for Apply<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let parameter = self.parameter;
        self.parameter += 1;
        let Some(update) = self.optimizers.update(self.optimizer, parameter) else { return param };
        let awaited =
            self.followed.get_mut(parameter).and_then(Option::take).filter(PendingUpdate::is_awaited);
        let followed = awaited.map(|awaited| (awaited, Erased::new(param.val().inner())));
        let Update { algorithm, lr, state, gradients, index } = update;
        let Some(gradient) = gradients.take(index, self.keep) else {
            if let Some((awaited, unchanged)) = followed {
                tell(awaited, &unchanged, &unchanged);
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
        if let Some((awaited, before)) = followed {
            tell(awaited, &before, &Erased::new(tensor.clone()));
        }
        let mut tensor = Tensor::from_inner(tensor);
        if let Some(strategy) = strategy {
            tensor = tensor.with_gradient_checkpointing_strategy(strategy);
        }
        Param::from_mapped_value(id, tensor.require_grad(), mapper)
    }
}
