//! Access of update hooks to the gradients of an engine.

use std::any::Any;

use super::UpdateError;
use crate::context::ClipRule;
use crate::tensor::TensorSource;

/// Mutable access to the gradients of one optimizer, implemented by an engine.
///
/// Only `view`, `edit`, `replace` and `remove` are required. The other methods have default implementations
/// in host memory, which an engine with device memory should replace.
pub trait GradientsMut {
    /// The current gradients. A parameter without a gradient is included, with zeros.
    fn view(&self) -> &dyn TensorSource;

    /// Changes the values of a gradient, in place if the engine can.
    fn edit(&mut self, index: usize, change: &mut dyn FnMut(&mut [f32]));

    /// Replaces the values of a gradient. Their number matches the shape.
    fn replace(&mut self, index: usize, values: &[f32]);

    /// Removes a gradient: the optimizer then leaves the parameter unchanged.
    fn remove(&mut self, index: usize);

    /// Whether a parameter has a gradient in this step.
    fn is_present(&self, _index: usize) -> bool {
        true
    }

    /// Multiplies a gradient.
    fn scale(&mut self, index: usize, factor: f32) {
        self.edit(index, &mut |values| values.iter_mut().for_each(|value| *value *= factor));
    }

    /// Clips gradients by their common norm or by value. A norm of NaN makes all of them NaN, so the error
    /// stays visible.
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

    /// Saves a gradient, to restore it if the hook that changes it fails. An engine with shared tensors need
    /// not copy it.
    fn save(&self, index: usize) -> SavedGradient {
        if self.is_present(index) { SavedGradient::of(self.view().read(index)) } else { SavedGradient::NONE }
    }

    /// Restores a saved gradient.
    fn restore(&mut self, index: usize, saved: SavedGradient) {
        match saved.into::<Vec<f32>>() {
            Some(values) => self.replace(index, &values),
            None => self.remove(index),
        }
    }

    /// The values of a saved gradient; `None` if there was none.
    fn read_saved(&self, saved: &SavedGradient) -> Option<Vec<f32>> {
        saved.as_any()?.downcast_ref().cloned()
    }

    /// Replaces a gradient with a tensor of the engine, and refuses one that does not fit. Engines offer a
    /// typed method that calls this one.
    fn set_native(&mut self, index: usize, _tensor: Box<dyn Any>) -> Result<(), UpdateError> {
        Err(UpdateError::OtherEngine(self.view().name(index).to_owned()))
    }
}

/// A gradient before a hook changed it, in the engine's own form.
#[derive(Default)]
pub struct SavedGradient(Option<Box<dyn Any>>);

impl SavedGradient {
    /// No gradient.
    pub const NONE: SavedGradient = SavedGradient(None);

    /// Wraps a gradient.
    pub fn of<T: Any>(gradient: T) -> SavedGradient {
        SavedGradient(Some(Box::new(gradient)))
    }

    /// The gradient, if there is one of this type.
    #[must_use]
    pub fn into<T: Any>(self) -> Option<T> {
        self.0?.downcast().ok().map(|gradient| *gradient)
    }

    /// The gradient, if there is one.
    #[must_use]
    pub fn as_any(&self) -> Option<&dyn Any> {
        self.0.as_deref()
    }
}
