//! Burn's own tensors for hooks: to look at, and for update hooks to put in the place of a gradient.

use burn::tensor::Tensor;
use tenterhook::update::{Gradient, Gradients};
use tenterhook::{Tensor as View, UpdateError};

use crate::erased::Erased;

/// A view of a tensor as Burn's own, for what statistics and values cannot say.
///
/// The tensor shares its values with the model and is apart from its graph, and Burn's tensors cannot be changed
/// through a clone, so looking at it changes nothing. What the compiler cannot see is what is done with Burn
/// beside it: an observer that draws from Burn's generator within a step (`Tensor::random`, `Device::seed`) shifts
/// what the model draws after it. `tenter verify-neutral` finds that out.
///
/// ```
/// use tenterhook::prelude::*;
/// use tenterhook_burn::BurnTensor;
///
/// /// Logs how much of its variance the first feature of an activation has.
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
    /// The tensor, if it is one of Burn's floats and has this rank.
    fn to_burn<const D: usize>(&self) -> Option<Tensor<D>>;
}

impl BurnTensor for View<'_> {
    fn to_burn<const D: usize>(&self) -> Option<Tensor<D>> {
        own(self.native()?)
    }
}

/// A gradient as Burn's own tensor. The new one must have the shape and the element type of the old.
pub trait BurnGradient {
    /// The gradient, if it has this rank.
    fn to_burn<const D: usize>(&self) -> Option<Tensor<D>>;

    /// Puts another in its place. It is taken off any graph.
    fn set_burn<const D: usize>(&mut self, gradient: Tensor<D>) -> Result<(), UpdateError>;
}

impl BurnGradient for Gradient<'_> {
    fn to_burn<const D: usize>(&self) -> Option<Tensor<D>> {
        own(self.native()?)
    }

    fn set_burn<const D: usize>(&mut self, gradient: Tensor<D>) -> Result<(), UpdateError> {
        self.set_native(Box::new(Erased::new(gradient.inner())))
    }
}

/// Changes gradients of every rank, on the device they are on.
pub trait MapGradient {
    /// What becomes of the gradient of this parameter.
    fn map<const D: usize>(&mut self, name: &str, gradient: Tensor<D>) -> Tensor<D>;
}

/// All gradients as Burn's own tensors.
///
/// ```
/// use burn::tensor::Tensor;
/// use tenterhook::prelude::*;
/// use tenterhook_burn::{BurnGradients, MapGradient};
///
/// /// Keeps the signs and forgets the rest.
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
    /// Puts what this makes of it in the place of every gradient there is.
    fn map_burn(&mut self, map: &mut impl MapGradient) -> Result<(), UpdateError>;
}

impl BurnGradients for Gradients<'_> {
    fn map_burn(&mut self, map: &mut impl MapGradient) -> Result<(), UpdateError> {
        self.each(|gradient| {
            let name = gradient.name().to_owned();
            let before = gradient.native().and_then(|native| native.downcast::<Erased>().ok());
            let Some(before) = before else { return gradient.refuse_native() };
            gradient.set_native(Box::new(before.mapped(&name, map)))
        })
    }
}

fn own<const D: usize>(native: Box<dyn std::any::Any>) -> Option<Tensor<D>> {
    let tensor = native.downcast::<Erased>().ok()?;
    (tensor.rank() == D).then(|| tensor.into_tensor())
}
