//! The runs of a verification, each with some of the observers.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tenterhook_core::{BoxError, HookInfo, ReceivedEvents, Registration};

use super::candidates::Candidates;
use super::recorder::{RunRecord, StateRecorder};
use super::{NeutralError, OnProgress, Training, Verification};
use crate::trainer::{BatchClock, Report, Trainer};

/// The kind of a run: with which observers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunKind {
    /// Without the observers: the baseline.
    Without,
    /// With all of them.
    With,
    /// The baseline repeated, to check that the program is deterministic.
    WithoutAgain,
    /// The run with all observers repeated, to check that they are deterministic.
    WithAgain,
    /// With these observers only.
    Only(Vec<String>),
}

impl fmt::Display for RunKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunKind::Without => f.write_str("without observers"),
            RunKind::With => f.write_str("with all observers"),
            RunKind::WithoutAgain => f.write_str("without observers, once more"),
            RunKind::WithAgain => f.write_str("with all observers, once more"),
            RunKind::Only(hooks) => write!(f, "with `{}` alone", hooks.join("`, `")),
        }
    }
}

/// The progress of a verification.
#[derive(Clone, Copy, Debug)]
pub struct RunProgress<'a> {
    /// The number of the run, from 1. The number of runs depends on their results.
    pub run: usize,
    /// The kind of the run.
    pub kind: &'a RunKind,
    /// The completed steps of the run.
    pub step: u64,
    /// The largest number of steps of the run.
    pub steps: u64,
    /// Whether the run has ended.
    pub ended: bool,
}

impl RunProgress<'_> {
    pub(super) fn report(&self, receiver: Option<&OnProgress>) {
        if let Some(receiver) = receiver {
            let mut report = receiver.lock().unwrap_or_else(PoisonError::into_inner);
            report(self);
        }
    }
}

/// The results of a run.
pub(super) struct Ran {
    pub(super) record: RunRecord,
    pub(super) report: Report,
    pub(super) hooks: Vec<HookInfo>,
    /// The events that each of its observers has received.
    pub(super) received: Vec<ReceivedEvents>,
}

/// Makes the runs of a verification.
pub(super) struct Runs<'s, F> {
    make: F,
    candidates: &'s Candidates,
    verification: Verification,
    /// The number of runs so far.
    pub(super) done: usize,
}

impl<'s, T: Training, F: FnMut() -> Result<T, BoxError>> Runs<'s, F> {
    pub(super) fn new(make: F, candidates: &'s Candidates, verification: Verification) -> Runs<'s, F> {
        Runs { make, candidates, verification, done: 0 }
    }

    /// Trains with these of the tested observers.
    pub(super) fn run(
        &mut self,
        kind: &RunKind,
        with: &[String],
        mut record: RunRecord,
    ) -> Result<Ran, NeutralError> {
        let mut training = (self.make)().map_err(NeutralError::Make)?;
        let scratch = tempfile::tempdir()?;
        let trainer = training.trainer();
        for hook in self.candidates.all_but(with) {
            trainer.remove_hook(hook)?;
        }
        if !matches!(kind, RunKind::With | RunKind::WithAgain) {
            // A hook may read from an observer that was removed.
            trainer.make_lenient();
        }
        self.done += 1;
        let Verification { steps, interrupt, progress } = &self.verification;
        let limit = record.limit.map_or(*steps, |limit| limit.min(*steps));
        record.limit = Some(limit);
        let record = Arc::new(Mutex::new(record));
        let clock = BatchClock::default();
        let end = trainer.rehearse_in(scratch.path(), clock.clone(), interrupt);
        let name = Some(free_name(trainer));
        let recorder = StateRecorder {
            record: Arc::clone(&record),
            clock,
            end,
            kind: kind.clone(),
            run: self.done,
            steps: *steps,
            progress: progress.clone(),
        };
        trainer.register(recorder, Registration { name, ..Registration::default() })?;
        let fitted = training.fit();
        if interrupt.is_requested() {
            return Err(NeutralError::Interrupted { signal: interrupt.signal() });
        }
        let report =
            fitted.map_err(|error| NeutralError::Run { kind: kind.clone(), error: Box::new(error) })?;
        let mut record = std::mem::take(&mut *record.lock().unwrap_or_else(PoisonError::into_inner));
        record.finish();
        let (run, step) = (self.done, record.steps);
        RunProgress { run, kind, step, steps: limit, ended: true }.report(progress.as_ref());
        let trainer = training.trainer();
        let received = |hook: &String| trainer.hooks().received(hook).unwrap_or_default();
        let received = with.iter().map(received).collect();
        Ok(Ran { record, report, hooks: trainer.list_hooks(), received })
    }
}

/// A name for the recorder that no other hook has.
fn free_name(trainer: &Trainer) -> String {
    let hooks = trainer.list_hooks();
    let mut name = "neutrality_recorder".to_owned();
    while hooks.iter().any(|hook| hook.name == name) {
        name.push('_');
    }
    name
}
