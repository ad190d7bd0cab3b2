//! What tests of models look at: the points a model shows and the names of its parameters.

use std::fmt::Display;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::Tensor;
use tenterhook_burn::Points;

/// A listener that keeps the names it hears.
#[derive(Default)]
pub(crate) struct Heard(pub(crate) Vec<String>);

impl Points for Heard {
    fn listens(&self) -> bool {
        true
    }

    fn point<const D: usize>(&mut self, name: impl Display, _x: &Tensor<D>) {
        self.0.push(name.to_string());
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
