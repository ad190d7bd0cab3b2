//! A recorder that keeps in memory what a run directory would hold.

use std::sync::{Arc, Mutex};

use tenterhook::run::{Beginning, Ending, Entry, Happening, Line, Recorder};
use tenterhook::{BoxError, Outcome, TensorMap};

/// What was written.
#[derive(Clone, Debug, Default)]
pub struct Written {
    pub begun: bool,
    /// The failures, in order.
    pub failures: Vec<Happening>,
    pub outcome: Option<Outcome>,
}

#[derive(Clone, Default)]
pub struct Journal(Arc<Mutex<Written>>);

impl Journal {
    pub fn recorder(&self) -> Journal {
        self.clone()
    }

    pub fn written(&self) -> Written {
        self.0.lock().unwrap().clone()
    }
}

impl Recorder for Journal {
    fn begin(&mut self, _: &Beginning<'_>) -> Result<(), BoxError> {
        self.0.lock().unwrap().begun = true;
        Ok(())
    }
    fn metrics(&mut self, _: &Line<'_>) -> Result<(), BoxError> {
        Ok(())
    }
    fn happened(&mut self, entry: Entry) -> Result<(), BoxError> {
        if matches!(entry.what, Happening::Failure { .. }) {
            self.0.lock().unwrap().failures.push(entry.what);
        }
        Ok(())
    }
    fn weights(&mut self, _: &TensorMap) -> Result<(), BoxError> {
        Ok(())
    }
    fn flush(&mut self) -> Result<(), BoxError> {
        Ok(())
    }
    fn end(&mut self, ending: &Ending<'_>) -> Result<(), BoxError> {
        self.0.lock().unwrap().outcome = Some(ending.outcome.clone());
        Ok(())
    }
}
