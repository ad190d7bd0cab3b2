//! A hook's own state, as a checkpoint holds it.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The state of one hook, with the version of its schema.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Raise it when the meaning of the data changes.
    pub version: u32,
    /// The data.
    pub data: Value,
}

/// Why a state could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The value has no JSON form, or the data is not what the type expects.
    #[error("state does not fit its type: {0}")]
    Json(#[from] serde_json::Error),
    /// The checkpoint holds a state of another version.
    #[error("state has version {found}, this program reads version {known}")]
    Version {
        /// In the checkpoint.
        found: u32,
        /// In this program.
        known: u32,
    },
}

impl State {
    /// No state.
    #[must_use]
    pub fn empty() -> State {
        State { version: 0, data: Value::Null }
    }

    /// The state that this value is, under this version of its schema.
    pub fn of<T: Serialize>(version: u32, value: &T) -> Result<State, StateError> {
        Ok(State { version, data: serde_json::to_value(value)? })
    }

    /// Whether there is nothing to restore.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.data.is_null()
    }

    /// The value, if the state has the version that this program knows.
    pub fn read<T: DeserializeOwned>(&self, known: u32) -> Result<T, StateError> {
        if self.version != known {
            return Err(StateError::Version { found: self.version, known });
        }
        Ok(serde_json::from_value(self.data.clone())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_comes_back_to_the_bit_and_only_under_its_version() {
        let value = (0.1f64 + 0.2, vec![1u64, 2]);
        let state = State::of(2, &value).expect("it serialises");
        assert_eq!(state.read::<(f64, Vec<u64>)>(2).expect("same version"), value);
        let error = state.read::<(f64, Vec<u64>)>(3).expect_err("other version");
        assert_eq!(error.to_string(), "state has version 2, this program reads version 3");
    }
}
