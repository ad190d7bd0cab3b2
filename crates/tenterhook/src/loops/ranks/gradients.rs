//! The gradients of a micro-batch, added up over all ranks.

use tenterhook_core::Failure;

use super::super::{Loop, Who};
use crate::module::{Module, ModuleResult};
use crate::tensors::TensorMap;

impl<M: Module> Loop<M> {
    /// Call site `gradients`: adds to the accumulation window what the losses of all ranks come to. The sum over the ranks is
    /// complete before it is added, so that the window does not depend on how batches are cut.
    pub(crate) fn backward_on_all(
        &mut self,
        module: &mut M,
        loss: &M::Scalar,
        divide_by: f64,
    ) -> Result<(), Failure> {
        let (divide_by, optimizers) = (divide_by / self.share(), self.update.optimization.optimizers);
        self.at(Who::Module, "backward");
        let window = module.gradients_state();
        let window = self.checked(window)?;
        let own = Flat::of_loss(module, loss, divide_by, optimizers);
        let mut sum = self.checked(own)?;
        self.collective("gradients", |ranks| ranks.strategy.sum_f32("gradients", &mut sum.0))?;
        self.at(Who::Module, "load_gradients");
        let loaded = sum.added_to(&*module, &window).and_then(|sum| module.load_gradients(&sum));
        self.checked(loaded)
    }
}

/// The gradients of a micro-batch as one list, in the order of the parameters; then, for each parameter, how many ranks have
/// one. What no rank has stays absent.
struct Flat(Vec<f32>);

impl Flat {
    /// The gradients of this loss alone.
    fn of_loss<M: Module>(
        module: &mut M,
        loss: &M::Scalar,
        divide_by: f64,
        optimizers: usize,
    ) -> ModuleResult<Flat> {
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
        Ok(Flat(values))
    }

    /// These gradients and those of the window so far.
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
