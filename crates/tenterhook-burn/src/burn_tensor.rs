//! Burn tensors for hooks: reading parameters and activations, and replacing gradients in update hooks.

use burn::tensor::Tensor;
use tenterhook::update::{Gradient, Gradients};
use tenterhook::{Tensor as View, UpdateError};

use crate::dyn_tensor::DynTensor;

/// Converts a tensor that a hook sees into a Burn tensor.
///
/// The Burn tensor shares its values with the model and is detached from its graph. Burn's tensors cannot be
/// changed through a clone, so reading it changes nothing. The compiler cannot prevent an observer from using
/// Burn's random generator within a step (`Tensor::random`, `Device::seed`), which changes the model's later
/// random numbers; `tenter verify-neutral` detects that.
///
/// ```
/// use tenterhook::prelude::*;
/// use tenterhook_burn::BurnTensor;
///
/// /// Logs the first feature's share of the variance of an activation.
/// struct FirstFeature;
///
/// #[hook(writes = ["first_feature"])]
/// impl Observer for FirstFeature {
///     fn wants_point(&self, point: &str) -> bool {
///         point == "features"
///     }
///
///     fn on_activation(&mut self, cx: &Activation) -> HookResult {
///         let Some(features) = cx.tensor().to_burn::<2>() else { return Ok(()) };
///         let first = features.clone().narrow(1, 0, 1);
///         let share: f32 = (first.var(0).sum() / features.var(0).sum()).into_scalar();
///         cx.log("first_feature", f64::from(share));
///         Ok(())
///     }
/// }
/// ```
pub trait BurnTensor {
    /// The tensor, if it is a float tensor of Burn with this rank.
    fn to_burn<const D: usize>(&self) -> Option<Tensor<D>>;
}

impl BurnTensor for View<'_> {
    fn to_burn<const D: usize>(&self) -> Option<Tensor<D>> {
        downcast(self.native()?)
    }
}

/// Reads and replaces a gradient as a Burn tensor.
pub trait BurnGradient {
    /// The gradient, if it has this rank.
    fn to_burn<const D: usize>(&self) -> Option<Tensor<D>>;

    /// Replaces the gradient by one of the same shape and element type. It is detached from any graph.
    fn set_burn<const D: usize>(&mut self, gradient: Tensor<D>) -> Result<(), UpdateError>;
}

impl BurnGradient for Gradient<'_> {
    fn to_burn<const D: usize>(&self) -> Option<Tensor<D>> {
        downcast(self.native()?)
    }

    fn set_burn<const D: usize>(&mut self, gradient: Tensor<D>) -> Result<(), UpdateError> {
        self.set_native(Box::new(DynTensor::new(gradient.inner())))
    }
}

/// A function of gradients of any rank, computed on their device.
pub trait MapGradient {
    /// The new gradient of this parameter.
    fn map<const D: usize>(&mut self, name: &str, gradient: Tensor<D>) -> Tensor<D>;
}

/// Replaces gradients as Burn tensors.
///
/// ```
/// use burn::tensor::Tensor;
/// use tenterhook::prelude::*;
/// use tenterhook_burn::{BurnGradients, MapGradient};
///
/// /// Replaces each gradient by its signs.
/// struct Signs;
///
/// impl MapGradient for Signs {
///     fn map<const D: usize>(&mut self, _name: &str, gradient: Tensor<D>) -> Tensor<D> {
///         gradient.sign()
///     }
/// }
///
/// #[hook]
/// impl UpdateHook for Signs {
///     fn update(&mut self, gradients: &mut Gradients, _cx: &Update) -> HookResult {
///         Ok(gradients.map_burn(self)?)
///     }
/// }
/// ```
pub trait BurnGradients {
    /// Replaces every gradient by its value under `map`.
    fn map_burn(&mut self, map: &mut impl MapGradient) -> Result<(), UpdateError>;
}

impl BurnGradients for Gradients<'_> {
    fn map_burn(&mut self, map: &mut impl MapGradient) -> Result<(), UpdateError> {
        self.each(|gradient| {
            let name = gradient.name().to_owned();
            let before = gradient.native().and_then(|native| native.downcast::<DynTensor>().ok());
            let Some(before) = before else { return gradient.refuse_native() };
            gradient.set_native(Box::new(before.mapped(&name, map)))
        })
    }
}

fn downcast<const D: usize>(native: Box<dyn std::any::Any>) -> Option<Tensor<D>> {
    let tensor = native.downcast::<DynTensor>().ok()?;
    (tensor.rank() == D).then(|| tensor.into_tensor())
}
