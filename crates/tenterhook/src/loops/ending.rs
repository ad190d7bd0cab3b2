//! How training ends: by its limits, by a requested stop, or by a signal.
//!
//! Signals are checked once per batch. The current batch completes; then training ends without a further
//! validation, regardless of `min_epochs` and `min_steps`. The library installs no signal handler; `tenter`
//! does.

use std::sync::atomic::Ordering;

use tenterhook_core::{Failure, Outcome, Status};

use super::{FlowRequests, Loop, LoopState};
use crate::journal::RunNotice;
use crate::module::Module;
use crate::run::Interrupt;
use crate::settings::Limits;

/// How the call ends.
#[derive(Default)]
pub(crate) struct Ending {
    pub(crate) interrupt: Interrupt,
    /// The signal that ends the run.
    pub(crate) signal: Option<String>,
    /// A signal interrupted the epoch.
    pub(crate) epoch_interrupted: bool,
    pub(crate) outcome: Outcome,
    /// Failures between the first fatal one and `on_exception`.
    pub(crate) later: Vec<Failure>,
}

impl Ending {
    /// Sets the outcome of a run that has not failed.
    pub(super) fn set_outcome(&mut self, state: &mut LoopState, flow: &FlowRequests, limits: &Limits) {
        let interrupted = self.signal.clone().map(|signal| Outcome::Interrupted { signal });
        let stopped = flow.stop.clone().filter(|_| flow.stops(limits, &state.progress));
        let stopped = stopped.map(|(by, reason)| Outcome::Stopped { by, reason });
        self.outcome = interrupted.or(stopped).unwrap_or_default();
        state.status = match self.outcome {
            Outcome::Interrupted { .. } => Status::Interrupted,
            _ => Status::Completed,
        };
    }

    /// Returns the first of two failures, and keeps the second for the report.
    pub(crate) fn first_of(
        &mut self,
        first: Result<(), Failure>,
        second: Result<(), Failure>,
    ) -> Result<(), Failure> {
        match (first, second) {
            (Err(first), Err(second)) => {
                self.later.push(second);
                Err(first)
            }
            (first, second) => first.and(second),
        }
    }
}

impl<M: Module> Loop<M> {
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
}
