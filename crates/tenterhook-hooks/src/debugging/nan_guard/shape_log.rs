//! Reports the shapes of batches, each set once.

use tenterhook_core::{RunContext, Tensor, Tensors};

/// The maximum number of sets reported: data with new shapes in every batch would flood the log.
const MAX_SETS: usize = 50;

/// One set of shapes: each tensor's name, type and shape.
type Set = Vec<(String, &'static str, Vec<usize>)>;

/// The reported sets of shapes.
#[derive(Clone, Debug, Default)]
pub(super) struct ShapeLog(Vec<Set>);

impl ShapeLog {
    /// Reports the shapes of these tensors if they are new.
    pub(super) fn report(&mut self, run_cx: &RunContext<'_>, tensors: &Tensors<'_>) {
        if self.0.len() > MAX_SETS || self.0.iter().any(|set| is_of(set, tensors)) {
            return;
        }
        let set: Set = tensors
            .iter()
            .map(|tensor| (tensor.name().to_owned(), tensor.dtype().name(), tensor.shape().to_vec()))
            .collect();
        if self.0.len() == MAX_SETS {
            run_cx.say(format!("more than {MAX_SETS} sets of shapes; no further ones are reported"));
        } else if set.is_empty() {
            run_cx.say("the batches expose no tensors; `tensors` of their `BatchData` names those to expose");
        } else {
            let each = set.iter().map(|(name, dtype, shape)| format!("`{name}` {dtype}{shape:?}"));
            run_cx.say(format!("shapes of the batch: {}", each.collect::<Vec<_>>().join(", ")));
        }
        self.0.push(set);
    }
}

fn is_of(set: &Set, tensors: &Tensors<'_>) -> bool {
    let same = |((name, dtype, shape), tensor): (&(String, &str, Vec<usize>), Tensor<'_>)| {
        name == tensor.name() && *dtype == tensor.dtype().name() && shape == tensor.shape()
    };
    set.len() == tensors.len() && set.iter().zip(tensors.iter()).all(same)
}
