//! Hook points: named places in a forward pass, whose activations forward hooks receive.

use std::any::Any;
use std::fmt::Display;
use std::ops::Range;

use burn::tensor::Tensor;
use tenterhook::{Cx, DType, TensorSource, TensorStats};

use crate::dyn_tensor::DynTensor;
use crate::engine::Burn;
use crate::module::BurnModule;

/// Receives the activations of a forward pass. A forward pass that takes `points: &mut impl HookPoints` is called with `cx` in the
/// steps of a module, and with `&mut ()`, which ignores them, elsewhere.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use tenterhook_burn::HookPoints;
///
/// fn forward(x: Tensor<2>, points: &mut impl HookPoints) -> Tensor<2> {
///     for layer in 0..2 {
///         points.scope(format_args!("layers.{layer}"), |points| {
///             points.point("input", &x);
///             points.point_with("mean", || x.clone().mean_dim(1));
///         });
///     }
///     x
/// }
/// # forward(Tensor::zeros([1, 1], &Device::flex()), &mut ());
/// ```
pub trait HookPoints {
    /// Reports an activation. It is computed only if a hook wants this point.
    fn point_with<const D: usize>(&mut self, name: impl Display, activation: impl FnOnce() -> Tensor<D>);

    /// Shows an output of a validation, test or prediction step, such as its logits, to the hooks that
    /// receive the end of the batch. It is computed only if there is such a hook, and never in training.
    #[inline]
    fn output_with<const D: usize>(&mut self, _name: &str, _output: impl FnOnce() -> Tensor<D>) {}

    /// Like [`output_with`](HookPoints::output_with), for an existing tensor.
    #[inline]
    fn output<const D: usize>(&mut self, name: &str, output: &Tensor<D>) {
        self.output_with(name, || output.clone());
    }

    /// Prefixes the names of all points inside with this one and a dot.
    fn scope<R>(&mut self, name: impl Display, inside: impl FnOnce(&mut Self) -> R) -> R;

    /// Reports an activation. Without forward hooks this costs a branch; with hooks that do not want this
    /// point, it also formats the name.
    #[inline]
    fn point<const D: usize>(&mut self, name: impl Display, activation: &Tensor<D>) {
        self.point_with(name, || activation.clone());
    }
}

/// Ignores all activations.
impl HookPoints for () {
    #[inline]
    fn point_with<const D: usize>(&mut self, _: impl Display, _: impl FnOnce() -> Tensor<D>) {}

    #[inline]
    fn scope<R>(&mut self, _: impl Display, inside: impl FnOnce(&mut Self) -> R) -> R {
        inside(self)
    }
}

impl<M: BurnModule> HookPoints for Cx<'_, Burn<M>> {
    #[inline]
    fn point_with<const D: usize>(&mut self, name: impl Display, activation: impl FnOnce() -> Tensor<D>) {
        self.show(name, |name| TensorList::default().with(name, activation()));
    }

    #[inline]
    fn output_with<const D: usize>(&mut self, name: &str, output: impl FnOnce() -> Tensor<D>) {
        self.show_output(name, |name| TensorList::default().with(name, output()));
    }

    #[inline]
    fn scope<R>(&mut self, name: impl Display, inside: impl FnOnce(&mut Self) -> R) -> R {
        Cx::scope(self, name, inside)
    }
}

/// Named Burn tensors for hooks, such as those of a batch.
#[derive(Clone, Debug, Default)]
pub struct TensorList(Vec<NamedTensor>);

#[derive(Clone, Debug)]
struct NamedTensor {
    name: String,
    shape: Vec<usize>,
    tensor: DynTensor,
}

impl TensorList {
    /// Adds a tensor, which is shared, not copied.
    #[must_use]
    pub fn with<const D: usize>(mut self, name: impl Into<String>, tensor: Tensor<D>) -> TensorList {
        let tensor = DynTensor::new(tensor.inner());
        self.0.push(NamedTensor { name: name.into(), shape: tensor.shape(), tensor });
        self
    }
}

impl TensorSource for TensorList {
    fn count(&self) -> usize {
        self.0.len()
    }
    fn name(&self, index: usize) -> &str {
        &self.0[index].name
    }
    fn shape(&self, index: usize) -> &[usize] {
        &self.0[index].shape
    }
    fn dtype(&self, index: usize) -> DType {
        self.0[index].tensor.dtype()
    }
    fn read(&self, index: usize) -> Vec<f32> {
        self.0[index].tensor.to_vec()
    }
    fn stats(&self, index: usize) -> TensorStats {
        self.0[index].tensor.stats()
    }
    fn norm(&self, index: usize) -> f64 {
        self.0[index].tensor.norm()
    }
    fn slice(&self, index: usize, ranges: &[Range<usize>]) -> Vec<f32> {
        self.0[index].tensor.slice(ranges)
    }
    fn native(&self, index: usize) -> Option<Box<dyn Any + Send>> {
        Some(Box::new(self.0[index].tensor.clone()))
    }
}
