//! The proof that observers are neutral: training with and without them, compared bit for bit.
//!
//! An observer cannot change training through its interface, but it can through the engine: for example by
//! drawing from the model's random generator. [`verify`] trains once without the observers and once with all
//! of them, and compares the loss, all parameters, the optimizers' state and their learning rates at every
//! step, the metrics after each validation, and everything again at the end. It reports the first difference,
//! its size, and the hooks that cause it.
//!
//! ```
//! use tenterhook::toy::{Toy, ToyData};
//! use tenterhook::{Settings, Trainer, closure, neutral};
//!
//! let report = neutral::verify(20, || {
//!     let mut trainer = Trainer::new(Settings { max_epochs: Some(3), ..Settings::default() })?;
//!     trainer.add_hook(closure::on_after_backward("norms", |cx| cx.log("norm", cx.gradients.norm())))?;
//!     Ok((trainer, Toy::default(), ToyData::default()))
//! })?;
//! assert!(report.is_neutral(), "{report}");
//! # Ok::<(), neutral::NeutralError>(())
//! ```
//!
//! Controllers and update hooks are in all runs, because they may change training, and so is every observer
//! that one of them declares to read from. Hooks that save checkpoints and disabled hooks are in none. Hooks
//! write to a temporary run directory that is removed.
//!
//! Values are compared as hooks see them, as 32-bit floats; differences below this precision are not
//! detected. If several observers change training, the report names those with the earliest difference. The
//! others are found when these are removed.
//!
//! The clock of the runs advances one second per training batch, so time-based cadences fire at the same step
//! in all runs; `max_time` is ignored.
//!
//! 1. `candidates.rs` selects the observers to test.
//! 2. `recorder.rs`, an observer that runs last, hashes every item before the first step, after each step and
//!    at the end. Only the run without observers is kept, as 16 bytes per item and step. Every other run is
//!    compared with it and ends where it first differs. Runs end by an interrupt, because `max_steps` would
//!    change schedules and plan.
//! 3. After a difference, `bisect.rs` repeats the run without observers, to check that the program is
//!    deterministic, and finds the observers that cause the difference.

mod bisect;
mod candidates;
mod recorder;
mod report;
mod runs;

use std::sync::{Arc, Mutex};

use tenterhook_core::{BoxError, RosterError};

pub use report::{
    ChangedItem, ComparePoint, ComparedCounts, ComparedItem, Difference, ExcludedHook, ExclusionReason,
    Finding, LossPair, NeutralityReport, NotExercised,
};
pub use runs::{RunKind, RunProgress};

use crate::data::DataModule;
use crate::module::Module;
use crate::run::Interrupt;
use crate::task::Program;
use crate::trainer::{Report, RunError, Trainer};
use candidates::Candidates;
use recorder::RunRecord;
use runs::Runs;

/// A training run that is ready to start: a trainer, a module and data.
pub trait Training {
    /// The trainer.
    fn trainer(&mut self) -> &mut Trainer;

    /// Trains.
    fn fit(&mut self) -> Result<Report, RunError>;
}

impl<M: Module, D: DataModule<M::Batch>> Training for (Trainer, M, D) {
    fn trainer(&mut self) -> &mut Trainer {
        &mut self.0
    }

    fn fit(&mut self) -> Result<Report, RunError> {
        let (trainer, module, data) = self;
        trainer.fit(module, data)
    }
}

/// The training of a configuration.
impl Training for (Trainer, Box<dyn Program + '_>) {
    fn trainer(&mut self) -> &mut Trainer {
        &mut self.0
    }

    fn fit(&mut self) -> Result<Report, RunError> {
        let (trainer, program) = self;
        program.fit(trainer)
    }
}

/// An error of a verification.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NeutralError {
    /// `make` returned an error.
    #[error("{0}")]
    Make(#[source] BoxError),
    /// `make` returned a training run with other hooks.
    #[error("the training was built again, and its hooks differ: {0}")]
    OtherHooks(#[from] RosterError),
    /// The temporary directory could not be made.
    #[error("cannot make a temporary directory: {0}")]
    Scratch(#[from] std::io::Error),
    /// A run failed.
    #[error("the run {kind} failed: {error}")]
    Run {
        /// The kind of the run.
        kind: RunKind,
        /// The error.
        #[source]
        error: Box<RunError>,
    },
    /// Training made no step.
    #[error(
        "nothing is trained, so nothing can be compared; let `max_epochs`, `max_steps` and the data allow a step"
    )]
    NothingTrained,
    /// The verification was interrupted.
    #[error("interrupted by {signal}: nothing was compared")]
    Interrupted {
        /// The signal.
        signal: String,
    },
}

/// Tests the observers of a training run in its first `steps` optimizer steps, or in all of them if it is
/// shorter. Every call of `make` must make the same training run, with the same seed.
pub fn verify<T: Training>(
    steps: u64,
    make: impl FnMut() -> Result<T, BoxError>,
) -> Result<NeutralityReport, NeutralError> {
    Verification::of(steps).run(make)
}

/// A verification with options; see [`verify`].
#[derive(Default)]
pub struct Verification {
    steps: u64,
    interrupt: Interrupt,
    progress: Option<OnProgress>,
}

pub(crate) type OnProgress = Arc<Mutex<dyn FnMut(&RunProgress<'_>) + Send>>;

impl Verification {
    /// A verification of this number of optimizer steps.
    #[must_use]
    pub fn of(steps: u64) -> Verification {
        Verification { steps, ..Verification::default() }
    }

    /// Sets the handle that ends the verification with an error.
    #[must_use]
    pub fn with_interrupt(mut self, interrupt: Interrupt) -> Verification {
        self.interrupt = interrupt;
        self
    }

    /// Calls this function after every step, and at the end of every run.
    #[must_use]
    pub fn on_progress(mut self, report: impl FnMut(&RunProgress<'_>) + Send + 'static) -> Verification {
        self.progress = Some(Arc::new(Mutex::new(report)));
        self
    }

    /// Runs the verification; see [`verify`].
    pub fn run<T: Training>(
        self,
        mut make: impl FnMut() -> Result<T, BoxError>,
    ) -> Result<NeutralityReport, NeutralError> {
        let candidates = Candidates::of(make().map_err(NeutralError::Make)?.trainer());
        if candidates.tested.is_empty() {
            return Ok(NeutralityReport::without_observers(candidates.excluded));
        }
        let mut runs = Runs::new(make, &candidates, self);
        let all = candidates.tested.clone();

        let baseline = runs.run(&RunKind::Without, &[], RunRecord::default())?.record;
        if baseline.steps == 0 {
            return Err(NeutralError::NothingTrained);
        }
        let (compared, baseline) = (baseline.compared, Arc::new(baseline.trace));

        let ran = runs.run(&RunKind::With, &all, RunRecord::comparing(&baseline))?;
        let (not_exercised, steps) = (candidates.not_exercised(&ran), ran.record.steps);
        let finding = match ran.record.found {
            Some(found) => runs.explain(&all, &baseline, found)?,
            None if not_exercised.len() == all.len() => Finding::NothingExercised,
            None => Finding::Neutral,
        };
        Ok(NeutralityReport {
            tested: all,
            excluded: candidates.excluded.clone(),
            not_exercised,
            steps,
            compared,
            runs: runs.done,
            finding,
        })
    }
}

/// The number of steps in which every observer of this trainer fires once, as far as its cadence is declared:
/// at least 50; observers that need more than 200 are ignored.
#[must_use]
pub fn usual_steps(trainer: &Trainer) -> u64 {
    let accumulate = trainer.run_info().accumulate_grad_batches;
    Candidates::of(trainer).steps_to_fire(accumulate, 200).max(50)
}
