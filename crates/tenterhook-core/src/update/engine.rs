//! What an engine lets be done to the gradients of one optimizer.

use std::any::Any;

use super::UpdateError;
use crate::context::ClipRule;
use crate::tensor::TensorSource;

/// The gradients of one optimizer as an engine lets them be changed.
///
/// Only `view`, `edit`, `replace` and `remove` must be written. The rest is written on top of them, and an engine
/// whose tensors live elsewhere than in host memory does better.
pub trait GradientsMut {
    /// What they are now. A parameter without a gradient is among them, as zeros.
    fn view(&self) -> &dyn TensorSource;

    /// Lets the values of one be changed in place, or in one copy where the engine cannot.
    fn edit(&mut self, index: usize, change: &mut dyn FnMut(&mut [f32]));

    /// Makes one of these values, which are as many as its shape holds.
    fn replace(&mut self, index: usize, values: &[f32]);

    /// Takes one away: the optimizer then leaves the parameter as it is.
    fn remove(&mut self, index: usize);

    /// Whether a parameter has one in this step.
    fn is_present(&self, _index: usize) -> bool {
        true
    }

    /// Multiplies one.
    fn scale(&mut self, index: usize, factor: f32) {
        self.edit(index, &mut |values| values.iter_mut().for_each(|value| *value *= factor));
    }

    /// Clips these, by their norm together or each value on its own. A norm that is NaN makes all of them NaN, as
    /// one value does in every engine: what is wrong must not look well.
    #[allow(clippy::cast_possible_truncation)] // limits are 64-bit, gradients 32-bit
    fn clip(&mut self, indexes: &[usize], rule: ClipRule) {
        match rule {
            ClipRule::Value(limit) => {
                let limit = limit as f32;
                for index in indexes {
                    self.edit(*index, &mut |values| {
                        for value in values {
                            *value = value.clamp(-limit, limit);
                        }
                    });
                }
            }
            ClipRule::Norm(limit) => {
                let squares = indexes.iter().map(|index| self.view().norm(*index).powi(2));
                let norm = squares.sum::<f64>().sqrt();
                let is_within = norm <= limit;
                if !is_within {
                    for index in indexes {
                        self.scale(*index, (limit / norm) as f32);
                    }
                }
            }
        }
    }

    /// What one is now, to be put back when the hook that changes it fails. Shared, not copied, where the engine
    /// can: then changing it is what copies.
    fn keep(&self, index: usize) -> SavedGradient {
        if self.is_present(index) { SavedGradient::of(self.view().read(index)) } else { SavedGradient::NONE }
    }

    /// Puts back what was kept.
    fn put_back(&mut self, index: usize, kept: SavedGradient) {
        match kept.into::<Vec<f32>>() {
            Some(values) => self.replace(index, &values),
            None => self.remove(index),
        }
    }

    /// The values that were kept; `None` where there was no gradient.
    fn read_kept(&self, kept: &SavedGradient) -> Option<Vec<f32>> {
        kept.as_any()?.downcast_ref().cloned()
    }

    /// Makes one this tensor of the engine's own, and refuses one that does not fit. Engines put a typed method
    /// on top of it.
    fn set_native(&mut self, index: usize, _tensor: Box<dyn Any>) -> Result<(), UpdateError> {
        Err(UpdateError::OtherEngine(self.view().name(index).to_owned()))
    }
}

/// A gradient as it was before a hook changed it, in the engine's own form.
#[derive(Default)]
pub struct SavedGradient(Option<Box<dyn Any>>);

impl SavedGradient {
    /// There was none.
    pub const NONE: SavedGradient = SavedGradient(None);

    /// This one.
    pub fn of<T: Any>(gradient: T) -> SavedGradient {
        SavedGradient(Some(Box::new(gradient)))
    }

    /// The gradient, if there was one of this type.
    #[must_use]
    pub fn into<T: Any>(self) -> Option<T> {
        self.0?.downcast().ok().map(|gradient| *gradient)
    }

    /// The gradient, if there was one.
    #[must_use]
    pub fn as_any(&self) -> Option<&dyn Any> {
        self.0.as_deref()
    }
}
