//! What hooks saw.

use std::sync::{Arc, Mutex, PoisonError};

/// A list that hooks fill and a test takes.
pub struct Seen<T>(Arc<Mutex<Vec<T>>>);

impl<T> Seen<T> {
    /// An empty list.
    #[must_use]
    pub fn new() -> Seen<T> {
        Seen(Arc::default())
    }

    /// Adds a value.
    pub fn push(&self, value: T) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(value);
    }

    /// The values since the last call.
    #[must_use]
    pub fn take(&self) -> Vec<T> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<T> Default for Seen<T> {
    fn default() -> Seen<T> {
        Seen::new()
    }
}

impl<T> Clone for Seen<T> {
    fn clone(&self) -> Seen<T> {
        Seen(self.0.clone())
    }
}
