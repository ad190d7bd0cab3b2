//! The gradients as an update hook sees them: changeable by name, with an undo.

use std::any::Any;
use std::collections::BTreeMap;

use super::engine::{GradientsMut, SavedGradient};
use super::trace::GradientChange;
use super::{Update, UpdateError};
use crate::context::ClipRule;
use crate::plan::nearest;
use crate::read_counter;
use crate::tensor::{DType, TensorSource, TensorStats, Tensors};

/// The gradients of one optimizer as one update hook sees them.
///
/// A gradient is saved before its first change, so the change can be undone.
pub struct Gradients<'a> {
    engine: &'a mut dyn GradientsMut,
    changes: Changes,
}

/// The changes of a hook so far.
#[derive(Default)]
struct Changes {
    /// The changed gradients before their first change.
    saved: BTreeMap<usize, SavedGradient>,
    /// The first change that was refused.
    refused: Option<UpdateError>,
}

impl Changes {
    fn save(&mut self, engine: &dyn GradientsMut, index: usize) {
        self.saved.entry(index).or_insert_with(|| engine.save(index));
    }

    /// Refuses a limit that is negative or NaN.
    fn check(&mut self, rule: ClipRule) -> Result<(), UpdateError> {
        let (ClipRule::Norm(limit) | ClipRule::Value(limit)) = rule;
        if limit >= 0.0 { Ok(()) } else { self.refuse(UpdateError::Limit(limit.to_string())) }
    }

    fn refuse<T>(&mut self, error: UpdateError) -> Result<T, UpdateError> {
        self.refused.get_or_insert_with(|| error.clone());
        Err(error)
    }
}

impl<'a> Gradients<'a> {
    /// Wraps the gradients of an engine.
    pub fn new(engine: &'a mut dyn GradientsMut) -> Gradients<'a> {
        Gradients { engine, changes: Changes::default() }
    }

    /// The names of the parameters that have a gradient in this step, in the module's order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let view = self.engine.view();
        self.present().map(move |index| view.name(index))
    }

    /// Whether this parameter has a gradient in this step.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.index(name).is_some_and(|index| self.engine.is_present(index))
    }

    /// A read-only view of all gradients. A gradient that is missing in this step is all zeros.
    #[must_use]
    pub fn view(&self) -> Tensors<'_> {
        Tensors::new(self.engine.view())
    }

    /// The gradient of this parameter, to read and change it.
    pub fn get(&mut self, name: &str) -> Result<Gradient<'_>, UpdateError> {
        match self.index(name) {
            Some(index) if self.engine.is_present(index) => Ok(self.at(index)),
            Some(_) => self.changes.refuse(UpdateError::Missing(name.to_owned())),
            None => {
                let view = self.engine.view();
                let known = (0..view.count()).map(|index| view.name(index));
                let hint =
                    nearest(name, known).map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
                self.changes.refuse(UpdateError::Unknown { name: name.to_owned(), hint })
            }
        }
    }

    /// Calls a function with every gradient of this step, in the module's order.
    pub fn each<E>(&mut self, mut change: impl FnMut(&mut Gradient<'_>) -> Result<(), E>) -> Result<(), E> {
        (0..self.engine.view().count()).try_for_each(|index| {
            if self.engine.is_present(index) { change(&mut self.at(index)) } else { Ok(()) }
        })
    }

    /// Changes the values of a gradient in host memory.
    pub fn edit(&mut self, name: &str, change: impl FnMut(&mut [f32])) -> Result<(), UpdateError> {
        self.get(name)?.edit(change);
        Ok(())
    }

    /// Multiplies all gradients.
    pub fn scale(&mut self, factor: f32) {
        for index in self.indexes(|_| true) {
            self.at(index).scale(factor);
        }
    }

    /// Clips the gradients with chosen names by their common norm or by value. A limit that is negative or
    /// NaN is refused.
    pub fn clip(&mut self, chosen: impl Fn(&str) -> bool, rule: ClipRule) -> Result<(), UpdateError> {
        self.changes.check(rule)?;
        let indexes = self.indexes(chosen);
        for index in &indexes {
            self.changes.save(self.engine, *index);
        }
        self.engine.clip(&indexes, rule);
        Ok(())
    }

    /// Restores all changed gradients.
    pub fn undo(&mut self) {
        for (index, saved) in std::mem::take(&mut self.changes.saved) {
            self.engine.restore(index, saved);
        }
    }

    /// The first change that was refused.
    pub(crate) fn refused(&mut self) -> Option<UpdateError> {
        self.changes.refused.take()
    }

    /// An error about the first changed gradient that is not finite, if there is one.
    pub(crate) fn not_finite(&self) -> Option<String> {
        self.changes.saved.iter().find_map(|(index, saved)| {
            let now = self.engine.is_present(*index).then(|| {
                read_counter::count_tensor();
                self.engine.view().stats(*index)
            })?;
            let TensorStats { non_finite, count, .. } = now;
            if non_finite == 0 {
                return None;
            }
            let name = self.engine.view().name(*index);
            let before = self.engine.read_saved(saved).map(|values| TensorStats::of(&values).non_finite);
            let was = if before > Some(0) { "was not before it either" } else { "it was finite before" };
            Some(format!(
                "the gradient of `{name}` is not finite after the hook ({non_finite} of {count} values), {}{was}",
                if before > Some(0) { "and " } else { "" }
            ))
        })
    }

    /// The changes of the hook. A gradient that is unchanged to the bit is not included.
    pub(crate) fn changes_by(&self, hook: &str, cx: &Update<'_>) -> Vec<GradientChange> {
        let of = |(index, saved): (&usize, &SavedGradient)| {
            let before = self.engine.read_saved(saved);
            let after = self.engine.is_present(*index).then(|| self.engine.view().read(*index));
            let (before, after) = (before.as_deref(), after.as_deref());
            let parameter = self.engine.view().name(*index);
            (!same_bits(before, after)).then(|| GradientChange::new(hook, parameter, cx, before, after))
        };
        self.changes.saved.iter().filter_map(of).collect()
    }

    fn at(&mut self, index: usize) -> Gradient<'_> {
        Gradient { engine: self.engine, changes: &mut self.changes, index }
    }

    fn present(&self) -> impl Iterator<Item = usize> {
        (0..self.engine.view().count()).filter(|index| self.engine.is_present(*index))
    }

    fn indexes(&self, chosen: impl Fn(&str) -> bool) -> Vec<usize> {
        self.present().filter(|index| chosen(self.engine.view().name(*index))).collect()
    }

    fn index(&self, name: &str) -> Option<usize> {
        let view = self.engine.view();
        (0..view.count()).find(|index| view.name(*index) == name)
    }
}

/// Whether two gradients are the same to the bit, or both are missing.
fn same_bits(one: Option<&[f32]>, other: Option<&[f32]>) -> bool {
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    one.map(bits) == other.map(bits)
}

/// A gradient as an update hook sees it.
pub struct Gradient<'g> {
    engine: &'g mut dyn GradientsMut,
    changes: &'g mut Changes,
    index: usize,
}

impl Gradient<'_> {
    /// The name of the parameter.
    #[must_use]
    pub fn name(&self) -> &str {
        self.source().name(self.index)
    }

    /// The shape.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        self.source().shape(self.index)
    }

    /// The element type.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.source().dtype(self.index)
    }

    /// Statistics of the values.
    #[must_use]
    pub fn stats(&self) -> TensorStats {
        read_counter::count_tensor();
        self.source().stats(self.index)
    }

    /// A copy of the values, in row-major order.
    #[must_use]
    pub fn to_vec(&self) -> Vec<f32> {
        read_counter::count_tensor();
        self.source().read(self.index)
    }

    /// The engine's own tensor. Engines offer a typed method that calls this one.
    #[must_use]
    pub fn native(&self) -> Option<Box<dyn Any + Send>> {
        read_counter::count_tensor();
        self.source().native(self.index)
    }

    /// Changes the values in host memory.
    pub fn edit(&mut self, mut change: impl FnMut(&mut [f32])) {
        self.save();
        read_counter::count_tensor();
        self.engine.edit(self.index, &mut change);
    }

    /// Multiplies the gradient on the engine's device.
    pub fn scale(&mut self, factor: f32) {
        self.save();
        self.engine.scale(self.index, factor);
    }

    /// Clips the gradient by its own norm or by value, on the engine's device. A limit that is negative or
    /// NaN is refused.
    pub fn clip(&mut self, rule: ClipRule) -> Result<(), UpdateError> {
        self.changes.check(rule)?;
        self.save();
        self.engine.clip(&[self.index], rule);
        Ok(())
    }

    /// Replaces the values. Their number must stay the same.
    pub fn replace(&mut self, values: &[f32]) -> Result<(), UpdateError> {
        let holds: usize = self.shape().iter().product();
        if values.len() != holds {
            let (name, expected) = (self.name().to_owned(), self.shape().to_vec());
            let given = format!("{} values", values.len());
            return self.changes.refuse(UpdateError::Shape { name, expected, given });
        }
        self.save();
        self.engine.replace(self.index, values);
        Ok(())
    }

    /// Refuses a change because the gradient is of another engine; for typed methods of engines.
    pub fn refuse_native(&mut self) -> Result<(), UpdateError> {
        let name = self.name().to_owned();
        self.changes.refuse(UpdateError::OtherEngine(name))
    }

    /// Replaces the gradient with a tensor of the engine. Engines offer a typed method that calls this one.
    pub fn set_native(&mut self, tensor: Box<dyn Any>) -> Result<(), UpdateError> {
        self.save();
        self.engine.set_native(self.index, tensor).or_else(|error| self.changes.refuse(error))
    }

    /// Removes the gradient: the optimizer leaves the parameter unchanged, without weight decay.
    pub fn remove(&mut self) {
        self.save();
        self.engine.remove(self.index);
    }

    fn source(&self) -> &dyn TensorSource {
        self.engine.view()
    }

    fn save(&mut self) {
        self.changes.save(self.engine, self.index);
    }
}
