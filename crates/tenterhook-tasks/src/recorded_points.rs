//! Records the hook points of a forward pass and the names of the parameters, for tests of models.

use std::fmt::Display;

use burn::tensor::{Device, Tensor};
use tenterhook::{ModelView as _, Tensors};
use tenterhook_burn::{Burn, BurnModule, HookPoints};

/// Records the name and the shape of every activation.
#[derive(Default)]
pub(crate) struct RecordedPoints {
    pub(crate) points: Vec<(String, Vec<usize>)>,
    scope: String,
}

impl RecordedPoints {
    pub(crate) fn names(&self) -> Vec<&str> {
        self.points.iter().map(|(name, _)| name.as_str()).collect()
    }

    fn full_name(&self, name: impl Display) -> String {
        if self.scope.is_empty() { name.to_string() } else { format!("{}.{name}", self.scope) }
    }
}

impl HookPoints for RecordedPoints {
    fn point_with<const D: usize>(&mut self, name: impl Display, activation: impl FnOnce() -> Tensor<D>) {
        self.points.push((self.full_name(name), activation().dims().to_vec()));
    }

    fn scope<R>(&mut self, name: impl Display, inside: impl FnOnce(&mut Self) -> R) -> R {
        let inner = self.full_name(name);
        let outer = std::mem::replace(&mut self.scope, inner);
        let result = inside(self);
        self.scope = outer;
        result
    }
}

/// The names of a model's parameters, in order.
pub(crate) fn names<M: BurnModule>(model: &M) -> Vec<String> {
    let module = Burn::new(model.clone(), &Device::flex());
    Tensors::new(module.params()).iter().map(|param| param.name().to_owned()).collect()
}
