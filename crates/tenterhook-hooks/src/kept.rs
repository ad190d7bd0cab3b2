//! What a hook keeps across a resume, and lets go when training begins anew.

use std::ops::{Deref, DerefMut};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tenterhook_core::{HookResult, Moment, State};

/// The version of the states of the hooks that keep them here.
const VERSION: u32 = 1;

/// The memory of a hook. It knows whether it comes from a checkpoint of the training that goes on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept<M> {
    memory: M,
    loaded: bool,
}

impl<M: Default + Serialize + DeserializeOwned> Kept<M> {
    /// At `on_train_start`: whether training goes on where a checkpoint left it. If it does not, the memory is
    /// that of another training, or none.
    pub(crate) fn goes_on(&mut self, cx: &Moment<'_>) -> bool {
        std::mem::take(&mut self.loaded) && cx.total_batches > 0
    }

    pub(crate) fn state(&self) -> HookResult<State> {
        Ok(State::of(VERSION, &self.memory)?)
    }

    pub(crate) fn check(&self, state: &State) -> HookResult {
        Ok(state.check(VERSION, &self.memory)?)
    }

    pub(crate) fn load(&mut self, state: &State) -> HookResult {
        (self.memory, self.loaded) = (state.read(VERSION)?, true);
        Ok(())
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
