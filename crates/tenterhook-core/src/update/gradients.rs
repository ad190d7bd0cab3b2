//! The gradients as one update hook sees them: changeable by name, with an undo.

use std::any::Any;
use std::collections::BTreeMap;

use super::engine::{GradientsMut, Kept};
use super::trace::Touched;
use super::{Update, UpdateError};
use crate::context::ClipRule;
use crate::plan::nearest;
use crate::tensor::{DType, Stats, TensorSource, Tensors};

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
    before: BTreeMap<usize, Kept>,
    /// The first thing that was refused.
    refused: Option<UpdateError>,
}

impl Changes {
    fn touch(&mut self, engine: &dyn GradientsMut, index: usize) {
        self.before.entry(index).or_insert_with(|| engine.keep(index));
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

    /// Clips those whose name is chosen: by their norm together, or each value on its own.
    pub fn clip(&mut self, chosen: impl Fn(&str) -> bool, rule: ClipRule) {
        let indexes = self.indexes(chosen);
        for index in &indexes {
            self.changes.touch(self.engine, *index);
        }
        self.engine.clip(&indexes, rule);
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
            let now = self.engine.is_present(*index).then(|| self.engine.view().stats(*index))?;
            let before = self.engine.read_kept(kept).map(|values| Stats::of(&values).non_finite);
            let was = if before > Some(0) { ", and was not before it either" } else { ", and was before it" };
            (now.non_finite > 0).then(|| {
                let name = self.engine.view().name(*index);
                let Stats { non_finite, count, .. } = now;
                format!(
                    "the gradient of `{name}` is not finite after it ({non_finite} of {count} values){was}"
                )
            })
        })
    }

    /// What the hook of this name has touched, and by how much.
    pub(crate) fn touched(&self, hook: &str, cx: &Update<'_>) -> Vec<Touched> {
        let of = |(index, kept): (&usize, &Kept)| {
            let before = self.engine.read_kept(kept);
            let after = self.engine.is_present(*index).then(|| self.engine.view().read(*index));
            Touched::new(hook, self.engine.view().name(*index), cx, before.as_deref(), after.as_deref())
        };
        self.changes.before.iter().map(of).collect()
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
    pub fn stats(&self) -> Stats {
        self.source().stats(self.index)
    }

    /// A copy of its values, in row-major order.
    #[must_use]
    pub fn to_vec(&self) -> Vec<f32> {
        self.source().read(self.index)
    }

    /// The tensor of the engine that computes it; engines put a typed method on top of it.
    #[must_use]
    pub fn native(&self) -> Option<Box<dyn Any>> {
        self.source().native(self.index)
    }

    /// Changes its values in host memory: in place where the engine keeps them there.
    pub fn edit(&mut self, mut change: impl FnMut(&mut [f32])) {
        self.touch();
        self.engine.edit(self.index, &mut change);
    }

    /// Multiplies it, where the engine computes.
    pub fn scale(&mut self, factor: f32) {
        self.touch();
        self.engine.scale(self.index, factor);
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
