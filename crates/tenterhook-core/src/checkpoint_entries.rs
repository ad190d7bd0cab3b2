//! Entries of a checkpoint besides the states of hooks and module.

use std::cell::RefCell;
use std::collections::BTreeMap;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::state::{StateError, to_json};

/// Free entries of a checkpoint, which hooks and the module can add and read.
#[derive(Clone, Debug, Default)]
pub struct CheckpointEntries(RefCell<BTreeMap<String, Value>>);

impl CheckpointEntries {
    /// Makes entries of a map.
    #[must_use]
    pub fn new(entries: BTreeMap<String, Value>) -> CheckpointEntries {
        CheckpointEntries(RefCell::new(entries))
    }

    /// Adds or replaces an entry.
    pub fn put<T: Serialize>(&self, key: &str, value: &T) -> Result<(), StateError> {
        self.0.borrow_mut().insert(key.to_owned(), to_json(value)?);
        Ok(())
    }

    /// Reads an entry; `None` if there is none of this key.
    pub fn read<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, StateError> {
        let value = self.0.borrow().get(key).cloned();
        value.map(|value| serde_json::from_value(value).map_err(StateError::from)).transpose()
    }

    /// All entries.
    #[must_use]
    pub fn into_map(self) -> BTreeMap<String, Value> {
        self.0.into_inner()
    }
}
