//! The state of a data module.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tenterhook_core::State;
use tenterhook_core::state::StateError;

/// The state of a data module, saved in checkpoints. Clones share the value, so that the data module, its
/// loaders and hooks can read and change it. A checkpoint holds the value at the time of the save.
///
/// ```
/// use tenterhook::data::DataState;
///
/// let level = DataState::new(1, &0_u64)?;
/// let of_a_hook = level.clone();
/// of_a_hook.set(&3_u64)?;
/// assert_eq!(level.get::<u64>()?, 3);
/// # Ok::<(), tenterhook::state::StateError>(())
/// ```
#[derive(Clone, Debug)]
pub struct DataState(Arc<Mutex<State>>);

impl DataState {
    /// A state with this initial value. Increase `version` when the meaning of the value changes.
    pub fn new<T: Serialize>(version: u32, value: &T) -> Result<DataState, StateError> {
        Ok(DataState(Arc::new(Mutex::new(State::of(version, value)?))))
    }

    /// Replaces the value.
    pub fn set<T: Serialize>(&self, value: &T) -> Result<(), StateError> {
        let mut state = self.lock();
        *state = State::of(state.version, value)?;
        Ok(())
    }

    /// The value.
    pub fn get<T: DeserializeOwned>(&self) -> Result<T, StateError> {
        let state = self.lock();
        state.read(state.version)
    }

    /// Restores the value of a checkpoint, which must have the same version.
    pub fn restore(&self, saved: &State) -> Result<(), StateError> {
        let mut state = self.lock();
        let value: serde_json::Value = saved.read(state.version)?;
        state.data = value;
        Ok(())
    }

    /// The state for a checkpoint.
    pub(crate) fn saved(&self) -> State {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
