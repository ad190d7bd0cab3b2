//! Hook points: where a model names an activation for forward hooks to look at.

use std::fmt::Display;

use burn::tensor::Tensor;
use tenterhook::{Cx, DType, TensorSource};

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
///         points.point(format_args!("layers.{layer}"), &x);
///     }
///     x
/// }
/// # forward(Tensor::zeros([1, 1], &Device::flex()), &mut ());
/// ```
pub trait Points {
    /// Whether anybody listens, for activations that take work to show.
    fn listens(&self) -> bool;

    /// Names an activation. When nobody listens it costs a branch, and the name is not built.
    fn point<const D: usize>(&mut self, name: impl Display, activation: &Tensor<D>);
}

/// Nobody.
impl Points for () {
    #[inline]
    fn listens(&self) -> bool {
        false
    }

    #[inline]
    fn point<const D: usize>(&mut self, _: impl Display, _: &Tensor<D>) {}
}

impl<M: BurnModule> Points for Cx<'_, Burn<M>> {
    #[inline]
    fn listens(&self) -> bool {
        Cx::listens(self)
    }

    #[inline]
    fn point<const D: usize>(&mut self, name: impl Display, activation: &Tensor<D>) {
        if Cx::listens(self) {
            let name = name.to_string();
            let shown = TensorList::default().with(&name, activation.clone());
            self.show(&name, &shown);
        }
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
}
