//! What was called, and what hooks saw.

use std::sync::{Arc, Mutex, PoisonError};

pub use tenterhook_testkit::recording::{RecordingHook as Recorder, Tape};

/// What hooks saw, for the test to look at afterwards.
pub struct Seen<T>(Arc<Mutex<Vec<T>>>);

impl<T> Seen<T> {
    pub fn new() -> Seen<T> {
        Seen(Arc::default())
    }

    pub fn push(&self, value: T) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(value);
    }

    pub fn take(&self) -> Vec<T> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<T> Clone for Seen<T> {
    fn clone(&self) -> Seen<T> {
        Seen(self.0.clone())
    }
}
