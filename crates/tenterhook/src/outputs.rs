//! The outputs of an evaluation step.

use std::any::Any;
use std::ops::Range;

use tenterhook_core::{DType, TensorSource, TensorStats};

/// Outputs of a module. Each is a source of one tensor.
#[derive(Default)]
pub(crate) struct Outputs(Vec<Box<dyn TensorSource>>);

impl Outputs {
    pub(crate) fn push(&mut self, output: impl TensorSource + 'static) {
        self.0.push(Box::new(output));
    }
}

impl TensorSource for Outputs {
    fn count(&self) -> usize {
        self.0.len()
    }
    fn name(&self, index: usize) -> &str {
        self.0[index].name(0)
    }
    fn shape(&self, index: usize) -> &[usize] {
        self.0[index].shape(0)
    }
    fn dtype(&self, index: usize) -> DType {
        self.0[index].dtype(0)
    }
    fn read(&self, index: usize) -> Vec<f32> {
        self.0[index].read(0)
    }
    fn stats(&self, index: usize) -> TensorStats {
        self.0[index].stats(0)
    }
    fn norm(&self, index: usize) -> f64 {
        self.0[index].norm(0)
    }
    fn slice(&self, index: usize, ranges: &[Range<usize>]) -> Vec<f32> {
        self.0[index].slice(0, ranges)
    }
    fn native(&self, index: usize) -> Option<Box<dyn Any + Send>> {
        self.0[index].native(0)
    }
}
