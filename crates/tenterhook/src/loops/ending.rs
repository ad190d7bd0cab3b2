//! How training ends: by its limits, by a requested stop, or by a signal.
//!
//! Signals are checked once per batch. The current batch completes; then training ends without a further
//! validation, regardless of `min_epochs` and `min_steps`. The library installs no signal handler; `tenter`
//! does.

use std::sync::atomic::Ordering;

use tenterhook_core::{Outcome, Status};

use super::Loop;
use crate::journal::RunNotice;
use crate::module::Module;

impl<M: Module> Loop<M> {
    /// Whether `max_steps` is reached.
    pub(crate) fn steps_are_done(&self) -> bool {
        self.limits.max_steps.is_some_and(|max| self.state.progress.step >= max)
    }

    /// Whether a stop was requested, and `min_epochs` and `min_steps` allow it.
    pub(crate) fn stops(&self) -> bool {
        self.flow.stop.is_some()
            && self.state.progress.epochs_done >= self.limits.min_epochs
            && self.state.progress.step >= self.limits.min_steps
    }

    /// Whether a signal ends the run. Called once per batch, so it must be cheap.
    #[inline]
    pub(crate) fn is_interrupted(&mut self) -> bool {
        // Several ranks agree on the signal first.
        if self.ranks.several {
            if let Some(signal) = self.ranks.signal.clone() {
                self.interrupt(signal);
            }
            return self.ending.signal.is_some();
        }
        if !self.ending.interrupt.is_requested() {
            return false;
        }
        self.interrupt(self.ending.interrupt.signal());
        true
    }

    #[cold]
    fn interrupt(&mut self, signal: String) {
        if self.ending.signal.is_none() {
            self.ending.signal = Some(signal.clone());
            self.checkpointer.emergency.hurry.store(true, Ordering::Relaxed);
            self.state.status = Status::Interrupted;
            self.note(RunNotice::Interrupted { signal });
        }
    }

    /// Sets the outcome of a run that has not failed.
    pub(crate) fn set_outcome(&mut self) {
        let interrupted = self.ending.signal.clone().map(|signal| Outcome::Interrupted { signal });
        let stopped = self.flow.stop.clone().filter(|_| self.stops());
        let stopped = stopped.map(|(by, reason)| Outcome::Stopped { by, reason });
        self.ending.outcome = interrupted.or(stopped).unwrap_or_default();
        self.state.status = match self.ending.outcome {
            Outcome::Interrupted { .. } => Status::Interrupted,
            _ => Status::Completed,
        };
    }
}
