//! The gradients of an accumulation window.

use std::any::Any;
use std::ops::Range;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Device, Gradients as BurnGradients, Tensor};
use tenterhook::optim::{OptimizerSet, ParamInfo};
use tenterhook::update::SavedGradient;
use tenterhook::{
    ClipRule, DType, GradientsMut, ModuleResult, TensorMap, TensorSource, TensorStats, UpdateError,
};

use crate::algorithm::BurnEngine;
use crate::dyn_tensor::DynTensor;
use crate::scalar::Loss;
use crate::tensor_data::data;
use crate::weights::SharedTensors;

/// Term added to the norm before dividing by it, as in `PyTorch`.
const EPSILON: f64 = 1e-6;

/// The gradients of one optimizer's parameters.
pub struct GradientBuffer {
    facts: Vec<ParamInfo>,
    /// `None` if there is no gradient. Boxed, because a tensor takes hundreds of bytes, which empty entries
    /// would otherwise occupy during the whole backward pass.
    values: Vec<Option<Box<DynTensor>>>,
    /// Without autodiff.
    device: Device,
}

impl GradientBuffer {
    pub(crate) fn new(facts: Vec<ParamInfo>, device: Device) -> GradientBuffer {
        let values = vec![None; facts.len()];
        GradientBuffer { facts, values, device }
    }

    /// Takes the gradient of one parameter. With `keep` it also stays in the buffer.
    pub(crate) fn take(&mut self, index: usize, keep: bool) -> Option<DynTensor> {
        let value = if keep { self.values[index].clone() } else { self.values[index].take() };
        value.map(|gradient| *gradient)
    }

    /// The norm over all gradients, computed when it is read.
    pub(crate) fn norm(&self) -> Loss {
        Loss::norm_of(self.values.iter().flatten().map(|gradient| (**gradient).clone()).collect())
    }
}

/// The norm over all these tensors, on the device. `None` if there are none.
pub(crate) fn norm<'a>(gradients: impl Iterator<Item = &'a DynTensor>) -> Option<Tensor<1>> {
    let squares: Vec<_> = gradients.map(DynTensor::square_sum).collect();
    (!squares.is_empty()).then(|| Tensor::cat(squares, 0).sum().sqrt())
}

impl GradientsMut for GradientBuffer {
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
        self.values[index] = Some(Box::new(DynTensor::from_values(values, shape, *dtype, &self.device)));
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

    /// Does not read the norm from the device: the factor is 1 below the limit.
    fn clip(&mut self, indexes: &[usize], rule: ClipRule) {
        let factor = match rule {
            ClipRule::Value(_) => None,
            ClipRule::Norm(limit) => {
                let norm = norm(indexes.iter().filter_map(|index| self.values[*index].as_deref()));
                norm.map(|norm| ((norm + EPSILON).recip() * limit).clamp_max(1.0))
            }
        };
        for index in indexes {
            let Some(gradient) = self.values[*index].take() else { continue };
            self.values[*index] = Some(match (rule, &factor) {
                (ClipRule::Value(limit), _) => Box::new(gradient.clamp(limit)),
                (ClipRule::Norm(_), Some(factor)) => Box::new(gradient.scale_by(factor.clone())),
                (ClipRule::Norm(_), None) => gradient,
            });
        }
    }

    /// Shares the tensor; changing it makes a copy.
    fn save(&self, index: usize) -> SavedGradient {
        self.values[index].as_deref().cloned().map_or(SavedGradient::NONE, SavedGradient::of)
    }

    fn restore(&mut self, index: usize, kept: SavedGradient) {
        let kept: Option<DynTensor> = kept.into();
        self.values[index] = kept.map(Box::new);
    }

    fn read_saved(&self, kept: &SavedGradient) -> Option<Vec<f32>> {
        kept.as_any()?.downcast_ref().map(DynTensor::to_vec)
    }

    fn set_native(&mut self, index: usize, tensor: Box<dyn Any>) -> Result<(), UpdateError> {
        let ParamInfo { name, shape, .. } = &self.facts[index];
        let Ok(tensor) = tensor.downcast::<DynTensor>() else {
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

impl TensorSource for GradientBuffer {
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
    /// Zeros if there is no gradient.
    fn read(&self, index: usize) -> Vec<f32> {
        let zeros = || vec![0.0; self.facts[index].shape.iter().product()];
        self.values[index].as_deref().map_or_else(zeros, DynTensor::to_vec)
    }
    fn stats(&self, index: usize) -> TensorStats {
        self.values[index].as_deref().map_or_else(|| TensorStats::of(&self.read(index)), DynTensor::stats)
    }
    fn norm(&self, index: usize) -> f64 {
        self.values[index].as_deref().map_or(0.0, DynTensor::norm)
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

/// Adds the gradients of a backward pass.
pub(crate) fn add<M: Module>(
    model: &M,
    gradients: &mut BurnGradients,
    optimizers: &mut OptimizerSet<BurnEngine>,
) {
    model.visit(&mut Add { index: 0, from: gradients, to: optimizers });
}

/// The gradients that exist, by parameter name. Nothing is copied.
pub(crate) fn shared(optimizers: &OptimizerSet<BurnEngine>) -> SharedTensors {
    let all = optimizers.parts().iter().flat_map(|buffer| buffer.facts.iter().zip(&buffer.values));
    let shared = all.filter_map(|(facts, value)| Some((facts.name.clone(), value.as_deref()?.clone())));
    SharedTensors(shared.collect())
}

/// Sets exactly these gradients; a parameter without one has none afterwards. Nothing is changed unless all of them fit.
pub(crate) fn load(optimizers: &mut OptimizerSet<BurnEngine>, gradients: &TensorMap) -> ModuleResult {
    optimizers.check_gradients(gradients)?;
    for GradientBuffer { facts, values, device } in optimizers.parts_mut() {
        for (facts, value) in facts.iter().zip(values) {
            *value = match gradients.get(&facts.name) {
                Ok(tensor) => Some(Box::new(DynTensor::from_data(data(tensor)?, device))),
                Err(_) => None,
            };
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
        let found = self.to.gradient_of(self.index);
        self.index += 1;
        let Some((buffer, index)) = found else { return };
        // Burn panics on requests for the gradient of a tensor without autodiff.
        if !param.is_require_grad() {
            return;
        }
        let Some(gradient) = param.val().grad_remove(self.from) else { return };
        let value = &mut buffer.values[index];
        let gradient = DynTensor::new(gradient);
        *value = Some(Box::new(match value.take() {
            Some(sum) => sum.add(gradient),
            None => gradient,
        }));
    }
}
