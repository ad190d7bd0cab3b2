//! The gradients as one update hook sees them: changeable by name, with an undo.

use std::any::Any;
use std::collections::BTreeMap;

use super::engine::{GradientsMut, SavedGradient};
use super::trace::Touched;
use super::{Update, UpdateError};
use crate::context::ClipRule;
use crate::plan::nearest;
use crate::read_counter;
use crate::tensor::{DType, TensorSource, TensorStats, Tensors};

/// The gradients of one optimizer as one update hook sees them.
///
/// A gradient is copied when it is first touched, so that it can be put back, and no other is.
pub struct Gradients<'a> {
    engine: &'a mut dyn GradientsMut,
    changes: Changes,
}

/// What a hook has done so far.
#[derive(Default)]
struct Changes {
    /// What the touched ones were before.
    before: BTreeMap<usize, SavedGradient>,
    /// The first thing that was refused.
    refused: Option<UpdateError>,
}

impl Changes {
    fn touch(&mut self, engine: &dyn GradientsMut, index: usize) {
        self.before.entry(index).or_insert_with(|| engine.keep(index));
    }

    /// Refuses a limit that nothing can be clipped at.
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
    /// The gradients, before anybody touched them.
    pub fn new(engine: &'a mut dyn GradientsMut) -> Gradients<'a> {
        Gradients { engine, changes: Changes::default() }
    }

    /// The names of the parameters that have one in this step, in the module's order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let view = self.engine.view();
        self.present().map(move |index| view.name(index))
    }

    /// Whether this parameter has one in this step.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.index(name).is_some_and(|index| self.engine.is_present(index))
    }

    /// All of them to look at, those that are missing in this step as zeros.
    #[must_use]
    pub fn view(&self) -> Tensors<'_> {
        Tensors::new(self.engine.view())
    }

    /// The one of this parameter, to be looked at and changed.
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

    /// Calls back with every one that there is in this step, in the module's order.
    pub fn each<E>(&mut self, mut change: impl FnMut(&mut Gradient<'_>) -> Result<(), E>) -> Result<(), E> {
        (0..self.engine.view().count()).try_for_each(|index| {
            if self.engine.is_present(index) { change(&mut self.at(index)) } else { Ok(()) }
        })
    }

    /// Changes the values of one in host memory.
    pub fn edit(&mut self, name: &str, change: impl FnMut(&mut [f32])) -> Result<(), UpdateError> {
        self.get(name)?.edit(change);
        Ok(())
    }

    /// Multiplies all of them.
    pub fn scale(&mut self, factor: f32) {
        for index in self.indexes(|_| true) {
            self.at(index).scale(factor);
        }
    }

    /// Clips those whose name is chosen: by their norm together, or each value on its own. A limit that is negative
    /// or no number is refused.
    pub fn clip(&mut self, chosen: impl Fn(&str) -> bool, rule: ClipRule) -> Result<(), UpdateError> {
        self.changes.check(rule)?;
        let indexes = self.indexes(chosen);
        for index in &indexes {
            self.changes.touch(self.engine, *index);
        }
        self.engine.clip(&indexes, rule);
        Ok(())
    }

    /// Puts back everything that was touched.
    pub fn undo(&mut self) {
        for (index, kept) in std::mem::take(&mut self.changes.before) {
            self.engine.put_back(index, kept);
        }
    }

    /// The first change that was refused.
    pub(crate) fn refused(&mut self) -> Option<UpdateError> {
        self.changes.refused.take()
    }

    /// What is wrong with the first of the touched ones that is not finite.
    pub(crate) fn not_finite(&self) -> Option<String> {
        self.changes.before.iter().find_map(|(index, kept)| {
            let now = self.engine.is_present(*index).then(|| {
                read_counter::count_tensor();
                self.engine.view().stats(*index)
            })?;
            let TensorStats { non_finite, count, .. } = now;
            if non_finite == 0 {
                return None;
            }
            let name = self.engine.view().name(*index);
            let before = self.engine.read_kept(kept).map(|values| TensorStats::of(&values).non_finite);
            let was = if before > Some(0) { "was not before it either" } else { "it was finite before" };
            Some(format!(
                "the gradient of `{name}` is not finite after it ({non_finite} of {count} values), {}{was}",
                if before > Some(0) { "and " } else { "" }
            ))
        })
    }

    /// What the hook of this name has changed, and by how much. What it touched and left as it was, to the bit, is
    /// not among it.
    pub(crate) fn touched(&self, hook: &str, cx: &Update<'_>) -> Vec<GradientChange> {
        let of = |(index, kept): (&usize, &SavedGradient)| {
            let before = self.engine.read_kept(kept);
            let after = self.engine.is_present(*index).then(|| self.engine.view().read(*index));
            let (before, after) = (before.as_deref(), after.as_deref());
            let parameter = self.engine.view().name(*index);
            (!same_bits(before, after)).then(|| GradientChange::new(hook, parameter, cx, before, after))
        };
        self.changes.before.iter().filter_map(of).collect()
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

/// Whether two gradients are the same to the bit, or there is neither.
fn same_bits(one: Option<&[f32]>, other: Option<&[f32]>) -> bool {
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    one.map(bits) == other.map(bits)
}

/// One gradient as an update hook sees it.
pub struct Gradient<'g> {
    engine: &'g mut dyn GradientsMut,
    changes: &'g mut Changes,
    index: usize,
}

impl Gradient<'_> {
    /// The name of its parameter.
    #[must_use]
    pub fn name(&self) -> &str {
        self.source().name(self.index)
    }

    /// Its shape.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        self.source().shape(self.index)
    }

    /// Its element type.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.source().dtype(self.index)
    }

    /// Its statistics.
    #[must_use]
    pub fn stats(&self) -> TensorStats {
        read_counter::count_tensor();
        self.source().stats(self.index)
    }

    /// A copy of its values, in row-major order.
    #[must_use]
    pub fn to_vec(&self) -> Vec<f32> {
        read_counter::count_tensor();
        self.source().read(self.index)
    }

    /// The tensor of the engine that computes it; engines put a typed method on top of it.
    #[must_use]
    pub fn native(&self) -> Option<Box<dyn Any + Send>> {
        read_counter::count_tensor();
        self.source().native(self.index)
    }

    /// Changes its values in host memory: in place where the engine keeps them there.
    pub fn edit(&mut self, mut change: impl FnMut(&mut [f32])) {
        self.touch();
        read_counter::count_tensor();
        self.engine.edit(self.index, &mut change);
    }

    /// Multiplies it, where the engine computes.
    pub fn scale(&mut self, factor: f32) {
        self.touch();
        self.engine.scale(self.index, factor);
    }

    /// Clips it, by its own norm or each value on its own, where the engine computes. A limit that is negative or no
    /// number is refused.
    pub fn clip(&mut self, rule: ClipRule) -> Result<(), UpdateError> {
        self.changes.check(rule)?;
        self.touch();
        self.engine.clip(&[self.index], rule);
        Ok(())
    }

    /// Makes it of these values, which must be as many as there are now.
    pub fn replace(&mut self, values: &[f32]) -> Result<(), UpdateError> {
        let holds: usize = self.shape().iter().product();
        if values.len() != holds {
            let (name, expected) = (self.name().to_owned(), self.shape().to_vec());
            let given = format!("{} values", values.len());
            return self.changes.refuse(UpdateError::Shape { name, expected, given });
        }
        self.touch();
        self.engine.replace(self.index, values);
        Ok(())
    }

    /// Refuses it as no tensor of the engine that asks; for what engines put on top of [`native`](Gradient::native).
    pub fn refuse_native(&mut self) -> Result<(), UpdateError> {
        let name = self.name().to_owned();
        self.changes.refuse(UpdateError::OtherEngine(name))
    }

    /// Makes it this tensor of the engine's own; engines put a typed method on top of it.
    pub fn set_native(&mut self, tensor: Box<dyn Any>) -> Result<(), UpdateError> {
        self.touch();
        self.engine.set_native(self.index, tensor).or_else(|error| self.changes.refuse(error))
    }

    /// Drops it: the optimizer leaves the parameter as it is, neither moved nor decayed.
    pub fn remove(&mut self) {
        self.touch();
        self.engine.remove(self.index);
    }

    fn source(&self) -> &dyn TensorSource {
        self.engine.view()
    }

    fn touch(&mut self) {
        self.changes.touch(self.engine, self.index);
    }
}
