//! What tests of models look at: the points a model shows and the names of its parameters.

use std::fmt::Display;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::Tensor;
use tenterhook_burn::Points;

/// A listener that keeps the names it hears, with shapes.
#[derive(Default)]
pub(crate) struct Heard {
    pub(crate) points: Vec<(String, Vec<usize>)>,
    scope: String,
}

impl Heard {
    pub(crate) fn names(&self) -> Vec<&str> {
        self.points.iter().map(|(name, _)| name.as_str()).collect()
    }

    fn below(&self, name: impl Display) -> String {
        if self.scope.is_empty() { name.to_string() } else { format!("{}.{name}", self.scope) }
    }
}

impl Points for Heard {
    fn point_with<const D: usize>(&mut self, name: impl Display, activation: impl FnOnce() -> Tensor<D>) {
        self.points.push((self.below(name), activation().dims().to_vec()));
    }

    fn scope<R>(&mut self, name: impl Display, inside: impl FnOnce(&mut Self) -> R) -> R {
        let inner = self.below(name);
        let outer = std::mem::replace(&mut self.scope, inner);
        let result = inside(self);
        self.scope = outer;
        result
    }
}

#[derive(Default)]
struct Names {
    path: Vec<String>,
    found: Vec<String>,
}

impl ModuleVisitor for Names {
    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.push(name.into());
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, _param: &Param<Tensor<D>>) {
        self.found.push(self.path.join("."));
    }
}

/// The names of a model's parameters, in order.
pub(crate) fn names(model: &impl Module) -> Vec<String> {
    let mut names = Names::default();
    model.visit(&mut names);
    names.found
}
