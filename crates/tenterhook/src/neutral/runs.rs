//! One run after the other, each with some of the observers.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tenterhook_core::{BoxError, HookInfo, ReceivedEvents, Registration};

use super::suspects::Suspects;
use super::witness::{Watch, Witness};
use super::{NeutralError, OnTick, Training, Verification};
use crate::run::Interrupt;
use crate::trainer::{BatchClock, Report, Trainer};

/// Which run it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trial {
    /// Without the observers.
    Without,
    /// With all of them.
    With,
    /// Without them once more, to see whether the program itself does the same twice.
    Again,
    /// With all of them once more, to see whether they do the same twice.
    WithAgain,
    /// With these alone.
    Suspects(Vec<String>),
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trial::Without => f.write_str("without observers"),
            Trial::With => f.write_str("with all observers"),
            Trial::Again => f.write_str("without observers, once more"),
            Trial::WithAgain => f.write_str("with all observers, once more"),
            Trial::Suspects(hooks) => write!(f, "with `{}` alone", hooks.join("`, `")),
        }
    }
}

/// How far a verification is.
#[derive(Clone, Copy, Debug)]
pub struct Tick<'a> {
    /// The number of the run, from 1. How many there will be depends on what they show.
    pub run: usize,
    /// Which run it is.
    pub trial: &'a Trial,
    /// The steps it has done.
    pub step: u64,
    /// The steps it will do at the most.
    pub steps: u64,
    /// Whether it is over.
    pub ended: bool,
}

impl Tick<'_> {
    pub(super) fn tell(&self, progress: Option<&OnTick>) {
        if let Some(progress) = progress {
            let mut tell = progress.lock().unwrap_or_else(PoisonError::into_inner);
            tell(self);
        }
    }
}

/// What a run came to.
pub(super) struct Ran {
    pub(super) watch: Watch,
    pub(super) report: Report,
    pub(super) hooks: Vec<HookInfo>,
    /// What came through to the observers that were in it, in their order.
    pub(super) received: Vec<ReceivedEvents>,
}

/// Makes runs.
pub(super) struct Runs<'s, F> {
    make: F,
    suspects: &'s Suspects,
    steps: u64,
    interrupt: Interrupt,
    progress: Option<OnTick>,
    /// How many there were.
    pub(super) done: usize,
}

impl<'s, T: Training, F: FnMut() -> Result<T, BoxError>> Runs<'s, F> {
    pub(super) fn new(make: F, suspects: &'s Suspects, how: Verification) -> Runs<'s, F> {
        let Verification { steps, interrupt, progress } = how;
        Runs { make, suspects, steps, interrupt, progress, done: 0 }
    }

    /// Trains with these of the judged observers, as far as the watch wants to see it.
    pub(super) fn run(&mut self, trial: &Trial, with: &[String], watch: Watch) -> Result<Ran, NeutralError> {
        let mut training = (self.make)().map_err(NeutralError::Make)?;
        let scratch = tempfile::tempdir()?;
        let trainer = training.trainer();
        for hook in self.suspects.without(with) {
            trainer.remove_hook(hook)?;
        }
        if !matches!(trial, Trial::With | Trial::WithAgain) {
            // What reads from an observer that is left out has nothing to read now, and may stand idle.
            trainer.refuse_nothing();
        }
        self.done += 1;
        let limit = watch.limit.map_or(self.steps, |limit| limit.min(self.steps));
        let watch = Arc::new(Mutex::new(watch.until(limit)));
        let clock = BatchClock::default();
        let end = trainer.rehearse_in(scratch.path(), clock.clone(), &self.interrupt);
        let name = Some(free_name(trainer));
        let witness = Witness {
            watch: Arc::clone(&watch),
            clock,
            end,
            trial: trial.clone(),
            run: self.done,
            steps: self.steps,
            progress: self.progress.clone(),
        };
        trainer.register(witness, Registration { name, ..Registration::default() })?;
        let fitted = training.fit();
        if self.interrupt.is_requested() {
            return Err(NeutralError::Interrupted { signal: self.interrupt.signal() });
        }
        let report =
            fitted.map_err(|error| NeutralError::Run { trial: trial.clone(), error: Box::new(error) })?;
        let mut watch = std::mem::take(&mut *watch.lock().unwrap_or_else(PoisonError::into_inner));
        watch.finish();
        let (run, step) = (self.done, watch.steps);
        Tick { run, trial, step, steps: limit, ended: true }.tell(self.progress.as_ref());
        let trainer = training.trainer();
        let received = |hook: &String| trainer.hooks().received(hook).unwrap_or_default();
        let received = with.iter().map(received).collect();
        Ok(Ran { watch, report, hooks: trainer.list_hooks(), received })
    }
}

/// A name for the witness that no hook of the user's has.
fn free_name(trainer: &Trainer) -> String {
    let hooks = trainer.list_hooks();
    let mut name = "neutrality_witness".to_owned();
    while hooks.iter().any(|hook| hook.name == name) {
        name.push('_');
    }
    name
}
