//! The gradients of an accumulation window, as Burn's tensors.

use std::any::Any;
use std::ops::Range;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Device, Gradients as BurnGradients, Tensor};
use tenterhook::optim::{OptimizerSet, ParamInfo};
use tenterhook::update::Kept;
use tenterhook::{
    BoxError, ClipRule, DType, GradientsMut, ModuleResult, Stats, TensorMap, TensorSource, UpdateError,
};

use crate::algorithm::BurnEngine;
use crate::erased::Erased;
use crate::saved::{Held, data};
use crate::scalar::Loss;

/// What a norm is raised by before one divides by it, as `PyTorch` does.
const TINY: f64 = 1e-6;

/// The gradients of one optimizer's parameters.
pub struct Part {
    /// The facts about its parameters.
    facts: Vec<ParamInfo>,
    /// `None` where no gradient has arrived. Boxed: a tensor takes hundreds of bytes, which the places would take through the
    /// whole backward pass.
    values: Vec<Option<Box<Erased>>>,
    /// Where gradients are computed: without autodiff.
    device: Device,
}

impl Part {
    pub(crate) fn new(facts: Vec<ParamInfo>, device: Device) -> Part {
        let values = vec![None; facts.len()];
        Part { facts, values, device }
    }

    /// The gradient of one parameter; it stays only when it is to be kept.
    pub(crate) fn take(&mut self, slot: usize, keep: bool) -> Option<Erased> {
        let value = if keep { self.values[slot].clone() } else { self.values[slot].take() };
        value.map(|gradient| *gradient)
    }

    /// The norm of all of them together, for whoever will ask.
    pub(crate) fn norm(&self) -> Loss {
        Loss::norm_of(self.values.iter().flatten().map(|gradient| (**gradient).clone()).collect())
    }
}

/// The norm of these together, still on the device.
pub(crate) fn norm<'a>(gradients: impl Iterator<Item = &'a Erased>) -> Loss {
    let squares: Vec<_> = gradients.map(Erased::square_sum).collect();
    match squares.len() {
        0 => Loss::known(0.0),
        _ => Loss::new(Tensor::cat(squares, 0).sum().sqrt()),
    }
}

impl GradientsMut for Part {
    fn view(&self) -> &dyn TensorSource {
        self
    }

    fn edit(&mut self, index: usize, change: &mut dyn FnMut(&mut [f32])) {
        if let Some(gradient) = self.values[index].take() {
            self.values[index] = Some(Box::new(gradient.edit(change)));
        }
    }

    fn replace(&mut self, index: usize, values: &[f32]) {
        let ParamInfo { shape, dtype, .. } = &self.facts[index];
        self.values[index] = Some(Box::new(Erased::from_values(values, shape, *dtype, &self.device)));
    }

    fn remove(&mut self, index: usize) {
        self.values[index] = None;
    }

    fn is_present(&self, index: usize) -> bool {
        self.values[index].is_some()
    }

    fn scale(&mut self, index: usize, factor: f32) {
        self.values[index] = self.values[index].take().map(|gradient| Box::new(gradient.scale(factor)));
    }

    /// Without reading the norm: where it is below the limit the factor is 1.
    fn clip(&mut self, indexes: &[usize], rule: ClipRule) {
        let factor = match rule {
            ClipRule::Value(_) => None,
            ClipRule::Norm(limit) => {
                let norm = norm(indexes.iter().filter_map(|index| self.values[*index].as_deref()));
                norm.into_tensor().map(|norm| ((norm + TINY).recip() * limit).clamp_max(1.0))
            }
        };
        for index in indexes {
            let Some(gradient) = self.values[*index].take() else { continue };
            self.values[*index] = Some(match (rule, &factor) {
                (ClipRule::Value(limit), _) => Box::new(gradient.clamp(limit)),
                (ClipRule::Norm(_), Some(factor)) => Box::new(gradient.times(factor.clone())),
                (ClipRule::Norm(_), None) => gradient,
            });
        }
    }

    /// Shared: a tensor that is shared is copied by whoever changes it.
    fn keep(&self, index: usize) -> Kept {
        self.values[index].as_deref().cloned().map_or(Kept::NONE, Kept::of)
    }

    fn put_back(&mut self, index: usize, kept: Kept) {
        let kept: Option<Erased> = kept.into();
        self.values[index] = kept.map(Box::new);
    }

    fn read_kept(&self, kept: &Kept) -> Option<Vec<f32>> {
        kept.as_any()?.downcast_ref().map(Erased::to_vec)
    }

    fn set_native(&mut self, index: usize, tensor: Box<dyn Any>) -> Result<(), UpdateError> {
        let ParamInfo { name, shape, .. } = &self.facts[index];
        let Ok(tensor) = tensor.downcast::<Erased>() else {
            return Err(UpdateError::OtherEngine(name.clone()));
        };
        if tensor.shape() != *shape {
            let (name, expected, given) = (name.clone(), shape.clone(), format!("{:?}", tensor.shape()));
            return Err(UpdateError::Shape { name, expected, given });
        }
        let (expected, given) = (self.dtype(index), tensor.dtype());
        if given != expected {
            return Err(UpdateError::DType { name: name.clone(), expected, given });
        }
        self.values[index] = Some(tensor);
        Ok(())
    }
}

impl TensorSource for Part {
    fn count(&self) -> usize {
        self.facts.len()
    }
    fn name(&self, index: usize) -> &str {
        &self.facts[index].name
    }
    fn shape(&self, index: usize) -> &[usize] {
        &self.facts[index].shape
    }
    fn dtype(&self, index: usize) -> DType {
        self.facts[index].dtype
    }
    /// What has no gradient is shown as zeros, which is what the optimizer makes of it.
    fn read(&self, index: usize) -> Vec<f32> {
        let zeros = || vec![0.0; self.facts[index].shape.iter().product()];
        self.values[index].as_deref().map_or_else(zeros, Erased::to_vec)
    }
    fn stats(&self, index: usize) -> Stats {
        self.values[index].as_deref().map_or_else(|| Stats::of(&self.read(index)), Erased::stats)
    }
    fn norm(&self, index: usize) -> f64 {
        self.values[index].as_deref().map_or(0.0, Erased::norm)
    }
    fn slice(&self, index: usize, ranges: &[Range<usize>]) -> Vec<f32> {
        let zeros = || vec![0.0; ranges.iter().map(ExactSizeIterator::len).product()];
        self.values[index].as_ref().map_or_else(zeros, |gradient| gradient.slice(ranges))
    }
    fn native(&self, index: usize) -> Option<Box<dyn Any + Send>> {
        let gradient = self.values[index].as_deref()?.clone();
        Some(Box::new(gradient))
    }
}

/// Adds what a backward pass yielded.
pub(crate) fn add<M: Module>(
    model: &M,
    gradients: &mut BurnGradients,
    optimizers: &mut OptimizerSet<BurnEngine>,
) {
    model.visit(&mut Add { index: 0, from: gradients, to: optimizers });
}

/// Those that have arrived, by parameter name. Nothing is copied.
pub(crate) fn held(optimizers: &OptimizerSet<BurnEngine>) -> Held {
    let all = optimizers.parts().iter().flat_map(|part| part.facts.iter().zip(&part.values));
    Held::of(all.filter_map(|(facts, value)| Some((facts.name.clone(), value.as_deref()?.clone()))))
}

/// Exactly these, and none where none are. Nothing is changed unless all of them fit.
pub(crate) fn load(optimizers: &mut OptimizerSet<BurnEngine>, gradients: &TensorMap) -> ModuleResult {
    optimizers.check_gradients(gradients)?;
    for Part { facts, values, device } in optimizers.parts_mut() {
        for (facts, value) in facts.iter().zip(values) {
            let given = gradients.get(&facts.name).ok();
            *value = given
                .map(|given| Ok::<_, BoxError>(Box::new(Erased::from_data(data(given)?, device))))
                .transpose()?;
        }
    }
    Ok(())
}

struct Add<'a> {
    index: usize,
    from: &'a mut BurnGradients,
    to: &'a mut OptimizerSet<BurnEngine>,
}

impl ModuleVisitor for Add<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let place = self.to.gradient_of(self.index);
        self.index += 1;
        let Some((part, slot)) = place else { return };
        // Asking a tensor without autodiff for its gradient panics.
        if !param.is_require_grad() {
            return;
        }
        let Some(gradient) = param.val().grad_remove(self.from) else { return };
        let value = &mut part.values[slot];
        let gradient = Erased::new(gradient);
        *value = Some(Box::new(match value.take() {
            Some(so_far) => so_far.plus(gradient),
            None => gradient,
        }));
    }
}
