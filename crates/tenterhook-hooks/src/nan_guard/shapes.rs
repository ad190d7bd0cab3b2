//! The shapes of batches, told once each.

use tenterhook_core::{RunContext, Tensors};

/// So many sets of shapes are told; data that brings a new one with every batch would drown all else.
const MOST: usize = 50;

/// One set of shapes: each tensor's name, type and shape.
type Set = Vec<(String, &'static str, Vec<usize>)>;

/// The sets of shapes that were told.
#[derive(Clone, Debug, Default)]
pub(super) struct Shapes(Vec<Set>);

impl Shapes {
    /// Says the shapes of these tensors, if they are new.
    pub(super) fn tell(&mut self, run_cx: &RunContext<'_>, tensors: &Tensors<'_>) {
        if self.0.len() > MOST || self.0.iter().any(|set| is_of(set, tensors)) {
            return;
        }
        let set: Set = tensors
            .iter()
            .map(|tensor| (tensor.name().to_owned(), tensor.dtype().name(), tensor.shape().to_vec()))
            .collect();
        if self.0.len() == MOST {
            run_cx.say(format!("more than {MOST} sets of shapes; further ones are not said"));
        } else if set.is_empty() {
            run_cx.say("the batches show no tensors; `tensors` of their `BatchData` names those to show");
        } else {
            let each = set.iter().map(|(name, dtype, shape)| format!("`{name}` {dtype}{shape:?}"));
            run_cx.say(format!("shapes of the batch: {}", each.collect::<Vec<_>>().join(", ")));
        }
        self.0.push(set);
    }
}

fn is_of(set: &Set, tensors: &Tensors<'_>) -> bool {
    let same =
        |((name, dtype, shape), tensor): (&(String, &str, Vec<usize>), tenterhook_core::Tensor<'_>)| {
            name == tensor.name() && *dtype == tensor.dtype().name() && shape == tensor.shape()
        };
    set.len() == tensors.len() && set.iter().zip(tensors.iter()).all(same)
}
