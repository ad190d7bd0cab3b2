//! What a hook keeps across a resume, and lets go when training begins anew.

use std::ops::{Deref, DerefMut};

use serde::{Deserialize, Serialize, Serializer};
use tenterhook_core::RunContext;

/// The memory of a hook, its `state`. It knows whether it comes from a checkpoint of the training that continues.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "M")]
pub(crate) struct Kept<M> {
    memory: M,
    loaded: bool,
}

impl<M> Kept<M> {
    /// At `on_train_start`: whether training continues where a checkpoint left it. If it does not, the memory is
    /// that of another training, or none.
    pub(crate) fn goes_on(&mut self, cx: &RunContext<'_>) -> bool {
        std::mem::take(&mut self.loaded) && cx.total_batches > 0
    }
}

impl<M> From<M> for Kept<M> {
    /// As it is read from a checkpoint.
    fn from(memory: M) -> Kept<M> {
        Kept { memory, loaded: true }
    }
}

impl<M: Serialize> Serialize for Kept<M> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.memory.serialize(serializer)
    }
}

impl<M> Deref for Kept<M> {
    type Target = M;
    fn deref(&self) -> &M {
        &self.memory
    }
}

impl<M> DerefMut for Kept<M> {
    fn deref_mut(&mut self) -> &mut M {
        &mut self.memory
    }
}
