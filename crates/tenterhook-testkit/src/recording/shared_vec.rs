//! A list that hooks and tests share.

use std::sync::{Arc, Mutex, PoisonError};

/// A list shared by clones: hooks push values, a test takes them.
pub struct SharedVec<T>(Arc<Mutex<Vec<T>>>);

impl<T> SharedVec<T> {
    /// An empty list.
    #[must_use]
    pub fn new() -> SharedVec<T> {
        SharedVec(Arc::default())
    }

    /// Adds a value.
    pub fn push(&self, value: T) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(value);
    }

    /// Removes and returns the values.
    #[must_use]
    pub fn take(&self) -> Vec<T> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<T> Default for SharedVec<T> {
    fn default() -> SharedVec<T> {
        SharedVec::new()
    }
}

impl<T> Clone for SharedVec<T> {
    fn clone(&self) -> SharedVec<T> {
        SharedVec(self.0.clone())
    }
}
