//! Hook points: where a model names an activation for forward hooks to look at.

use std::any::Any;
use std::fmt::Display;
use std::ops::Range;

use burn::tensor::Tensor;
use tenterhook::{Cx, DType, TensorSource, TensorStats};

use crate::engine::Burn;
use crate::erased::Erased;
use crate::module::BurnModule;

/// Whoever listens to a model's activations. A forward pass that takes `points: &mut impl Points`
/// serves training, where it gets `cx`, and everything else, where `&mut ()` hears nothing.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use tenterhook_burn::Points;
///
/// fn forward(x: Tensor<2>, points: &mut impl Points) -> Tensor<2> {
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
pub trait Points {
    /// Names an activation that is only made if somebody wants it.
    fn point_with<const D: usize>(&mut self, name: impl Display, activation: impl FnOnce() -> Tensor<D>);

    /// Gives an output of a step of validation, test or prediction, such as its logits, to the hooks that receive the end
    /// of the batch. It is only made if there is one; in training never.
    #[inline]
    fn output_with<const D: usize>(&mut self, _name: &str, _output: impl FnOnce() -> Tensor<D>) {}

    /// The same for a tensor that is there already.
    #[inline]
    fn output<const D: usize>(&mut self, name: &str, output: &Tensor<D>) {
        self.output_with(name, || output.clone());
    }

    /// Everything that is named inside has this before its name, with a dot.
    fn scope<R>(&mut self, name: impl Display, inside: impl FnOnce(&mut Self) -> R) -> R;

    /// Names an activation. While nobody listens it costs a branch, and the name is not built; when somebody does
    /// and does not want this one, it costs its name.
    #[inline]
    fn point<const D: usize>(&mut self, name: impl Display, activation: &Tensor<D>) {
        self.point_with(name, || activation.clone());
    }
}

/// Nobody.
impl Points for () {
    #[inline]
    fn point_with<const D: usize>(&mut self, _: impl Display, _: impl FnOnce() -> Tensor<D>) {}

    #[inline]
    fn scope<R>(&mut self, _: impl Display, inside: impl FnOnce(&mut Self) -> R) -> R {
        inside(self)
    }
}

impl<M: BurnModule> Points for Cx<'_, Burn<M>> {
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

/// Named Burn tensors as hooks see them: a batch's, or an activation.
#[derive(Clone, Debug, Default)]
pub struct TensorList(Vec<Listed>);

#[derive(Clone, Debug)]
struct Listed {
    name: String,
    shape: Vec<usize>,
    tensor: Erased,
}

impl TensorList {
    /// The same and one more. The tensor is shared, not copied.
    #[must_use]
    pub fn with<const D: usize>(mut self, name: impl Into<String>, tensor: Tensor<D>) -> TensorList {
        let tensor = Erased::new(tensor.inner());
        self.0.push(Listed { name: name.into(), shape: tensor.shape(), tensor });
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
