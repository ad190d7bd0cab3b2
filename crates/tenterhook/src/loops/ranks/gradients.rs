//! Gradients of a micro-batch, summed over all ranks.

use tenterhook_core::Failure;

use super::super::Loop;
use crate::module::{Module, ModuleResult};
use crate::tensors::TensorMap;

impl<M: Module> Loop<M> {
    /// Call site `gradients`: backward on all ranks. The gradients are summed over the ranks before they are
    /// added to the accumulation window, so that the window does not depend on how a batch is split.
    pub(crate) fn backward_on_all(
        &mut self,
        module: &mut M,
        loss: &M::Scalar,
        divide_by: f64,
    ) -> Result<(), Failure> {
        let (divide_by, optimizers) = (divide_by / self.ranks.share(), self.update.optimization.optimizers);
        let window = call!(self, Module, "backward", module.gradients_state())?;
        let own =
            call!(self, Module, "backward", FlatGradients::of_loss(module, loss, divide_by, optimizers));
        let mut sum = own?;
        self.collective("gradients", |ranks| ranks.strategy.sum_f32("gradients", &mut sum.0))?;
        let sum = call!(self, Module, "load_gradients", sum.added_to(&*module, &window))?;
        call!(self, Module, "load_gradients", module.load_gradients(&sum))
    }
}

/// The gradients of a micro-batch as one list, in the order of the parameters, followed by the number of
/// ranks that have a gradient for each parameter. A gradient that no rank has remains absent.
struct FlatGradients(Vec<f32>);

impl FlatGradients {
    /// The gradients of this loss alone.
    fn of_loss<M: Module>(
        module: &mut M,
        loss: &M::Scalar,
        divide_by: f64,
        optimizers: usize,
    ) -> ModuleResult<FlatGradients> {
        (0..optimizers).try_for_each(|optimizer| module.optimizer_zero_grad(optimizer))?;
        module.backward(loss, divide_by)?;
        let gradients = module.gradients_state()?;
        let params = module.params();
        let (mut values, mut present) = (Vec::new(), Vec::new());
        for index in 0..params.count() {
            let (name, shape) = (params.name(index), params.shape(index));
            let is_there = gradients.get(name).is_ok();
            present.push(f32::from(u8::from(is_there)));
            if is_there {
                values.extend(gradients.f32(name, shape)?);
            } else {
                values.resize(values.len() + shape.iter().product::<usize>(), 0.0);
            }
        }
        values.append(&mut present);
        Ok(FlatGradients(values))
    }

    /// The sum of these gradients and those of the window so far.
    fn added_to<M: Module>(&self, module: &M, window: &TensorMap) -> ModuleResult<TensorMap> {
        let params = module.params();
        let (values, present) = self.0.split_at(self.0.len() - params.count());
        let (mut sum, mut rest) = (TensorMap::default(), values);
        for (index, present) in present.iter().enumerate() {
            let (name, shape) = (params.name(index), params.shape(index));
            let (own, others) = rest.split_at(shape.iter().product());
            rest = others;
            match window.get(name) {
                Ok(_) => {
                    let mut all = window.f32(name, shape)?;
                    all.iter_mut().zip(own).for_each(|(all, own)| *all += own);
                    sum.insert_f32(name, shape, &all);
                }
                Err(_) if *present > 0.0 => sum.insert_f32(name, shape, own),
                Err(_) => {}
            }
        }
        Ok(sum)
    }
}
