//! Losses and norms that stay on the device until they are read.

use burn::tensor::{DType, Tensor};
use burn_flex::Flex;
use tenterhook::tensor::ReadScalar;

use crate::dyn_tensor::DynTensor;
use crate::gradients::norm;

/// A number that may still be on the device, with the graph that computed it.
#[derive(Clone, Debug)]
pub struct Loss(Inner);

#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)] // nearly all are lazy, and a box would be an allocation per step
enum Inner {
    Lazy(Tensor<1>),
    Known(f64),
    /// The norm over all these tensors, computed on demand.
    NormOf(Vec<DynTensor>),
}

impl Loss {
    pub(crate) fn new(tensor: Tensor<1>) -> Loss {
        Loss(Inner::Lazy(tensor))
    }

    pub(crate) fn known(value: f64) -> Loss {
        Loss(Inner::Known(value))
    }

    /// The norm over all these tensors. It is computed only when it is read, which most runs never do.
    pub(crate) fn norm_of(tensors: Vec<DynTensor>) -> Loss {
        Loss(Inner::NormOf(tensors))
    }

    /// The tensor, if there is one.
    pub(crate) fn tensor(&self) -> Option<&Tensor<1>> {
        match &self.0 {
            Inner::Lazy(tensor) => Some(tensor),
            Inner::Known(_) | Inner::NormOf(_) => None,
        }
    }

    /// Drops the graph, which would keep every activation of its step alive. A number in this process's
    /// memory is read immediately.
    pub(crate) fn detached(self) -> Loss {
        match self.0 {
            Inner::Lazy(tensor) => {
                let tensor = tensor.inner();
                in_memory(&tensor).map_or_else(|| Loss::new(tensor), Loss::known)
            }
            known @ (Inner::Known(_) | Inner::NormOf(_)) => Loss(known),
        }
    }
}

/// The number, if it is in this process's memory. Burn's own way to read it takes microseconds.
fn in_memory(tensor: &Tensor<1>) -> Option<f64> {
    let tensor = tensor.clone().try_into_primitive::<Flex>().ok()?;
    let is_one = tensor.dtype() == DType::F32 && tensor.layout().num_elements() == 1;
    is_one.then(|| tensor.storage::<f32>().get(tensor.layout().start_offset()).copied().map(f64::from))?
}

impl From<Tensor<1>> for Loss {
    fn from(tensor: Tensor<1>) -> Loss {
        Loss::new(tensor)
    }
}

impl ReadScalar for Loss {
    /// NaN if the device cannot deliver it, so checks of the loss fail too.
    fn read(&self) -> f64 {
        match &self.0 {
            Inner::Lazy(tensor) => in_memory(tensor)
                .unwrap_or_else(|| tensor.clone().try_into_scalar::<f64>().unwrap_or(f64::NAN)),
            Inner::Known(value) => *value,
            Inner::NormOf(tensors) => norm(tensors.iter()).map_or(0.0, |norm| Loss::new(norm).read()),
        }
    }

    fn known(&self) -> Option<f64> {
        match self.0 {
            Inner::Known(value) => Some(value),
            Inner::Lazy(_) | Inner::NormOf(_) => None,
        }
    }

    /// Reads all numbers in one transfer.
    fn read_all(scalars: &[&Loss]) -> Vec<f64> {
        let lazy: Option<Vec<_>> = scalars.iter().map(|scalar| scalar.tensor().cloned()).collect();
        match lazy {
            Some(lazy) if lazy.len() > 1 => {
                let data = Tensor::cat(lazy.into_iter().map(Tensor::inner).collect(), 0).try_into_data();
                data.map_or_else(|_| vec![f64::NAN; scalars.len()], |data| data.iter::<f64>().collect())
            }
            _ => scalars.iter().map(|scalar| scalar.read()).collect(),
        }
    }
}
