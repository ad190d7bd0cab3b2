//! Hook state that continues after a resume and is reset for a new training.

use std::ops::{Deref, DerefMut};

use serde::{Deserialize, Serialize, Serializer};
use tenterhook_core::RunContext;

/// A hook's state, with whether it was loaded from a checkpoint.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "S")]
pub(crate) struct Resumable<S> {
    state: S,
    loaded: bool,
}

impl<S> Resumable<S> {
    /// At `on_train_start`: whether the state belongs to the training that resumes. Otherwise it is from an earlier
    /// training, or empty.
    pub(crate) fn is_resumed(&mut self, cx: &RunContext<'_>) -> bool {
        std::mem::take(&mut self.loaded) && cx.total_batches > 0
    }
}

impl<S> From<S> for Resumable<S> {
    /// A state as a checkpoint holds it.
    fn from(state: S) -> Resumable<S> {
        Resumable { state, loaded: true }
    }
}

impl<S: Serialize> Serialize for Resumable<S> {
    fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
        self.state.serialize(serializer)
    }
}

impl<S> Deref for Resumable<S> {
    type Target = S;
    fn deref(&self) -> &S {
        &self.state
    }
}

impl<S> DerefMut for Resumable<S> {
    fn deref_mut(&mut self) -> &mut S {
        &mut self.state
    }
}
