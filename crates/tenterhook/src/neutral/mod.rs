//! The proof that observers are neutral: the same training with and without them, compared bit for bit.
//!
//! An observer cannot change training through our interface. It can through the engine's: by drawing from a
//! generator that the model draws from too, or by writing where an engine lets it. [`verify`] trains
//! once without the observers and once with all of them, and compares at every step the loss, all parameters, and
//! the optimizers' state and learning rates; after a validation its metrics, and at the end all of it once more. On a difference it says where it shows first, how large it is, and
//! which hook causes it.
//!
//! ```
//! use tenterhook::toy::{Toy, ToyData};
//! use tenterhook::{Settings, Trainer, closure, neutral};
//!
//! let judgement = neutral::verify(20, || {
//!     let mut trainer = Trainer::new(Settings { max_epochs: Some(3), ..Settings::default() })?;
//!     trainer.add_hook(closure::on_after_backward("norms", |cx| cx.log("norm", cx.gradients.norm())))?;
//!     Ok((trainer, Toy::default(), ToyData::default()))
//! })?;
//! assert!(judgement.is_neutral(), "{judgement}");
//! # Ok::<(), neutral::NeutralError>(())
//! ```
//!
//! What stays in all runs, because it is meant to change training: controllers and update hooks, and every observer
//! that one of them declares to read from. What is in none: hooks that save checkpoints, and disabled ones.
//! Whatever hooks write goes to a temporary run directory that is removed.
//!
//! Values are compared as hooks see them, as 32-bit floats: of a model with wider ones, what is lost on the way is not
//! compared. Of several observers that change training, those are named whose difference shows at the earliest step;
//! who changes something only later is found once they are gone.
//!
//! In the runs a training batch takes a second, whatever the clock says, so that what goes by time does so at the
//! same step in all of them; `max_time` is no limit.
//!
//! A recorder (`witness.rs`), the last of all observers, hashes every parameter, every tensor of optimizer state and the rates of
//! every group before the first step, after each and at the end. Only the run without observers is kept, as 16 bytes per tensor and
//! step; every other run is compared with it as it goes and ends where it first differs. A second run without observers tells
//! whether the program is deterministic. Runs end by an interrupt, since `max_steps` would change schedules and plan.

mod blame;
mod exercise;
mod explain;
mod judgement;
mod runs;
mod suspects;
mod witness;
mod words;

use std::sync::{Arc, Mutex};

use tenterhook_core::{BoxError, RosterError};

pub use judgement::{
    Changed, Compared, Difference, Finding, Judgement, Losses, NotExercised, NotJudged, Place, Reason, What,
};
pub use runs::{Tick, Trial};

use crate::data::DataModule;
use crate::module::Module;
use crate::run::Interrupt;
use crate::task::Program;
use crate::trainer::{Report, RunError, Trainer};
use runs::Runs;
use suspects::Suspects;
use witness::Watch;

/// A training that is ready to begin: a trainer, and what it trains.
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

/// What a configuration comes to.
impl Training for (Trainer, Box<dyn Program + '_>) {
    fn trainer(&mut self) -> &mut Trainer {
        &mut self.0
    }

    fn fit(&mut self) -> Result<Report, RunError> {
        let (trainer, program) = self;
        program.fit(trainer)
    }
}

/// Why nothing could be judged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NeutralError {
    /// The training could not be made.
    #[error("{0}")]
    Make(#[source] BoxError),
    /// Every call must make the same training.
    #[error("the training was made anew, and its hooks are others than before: {0}")]
    OtherHooks(#[from] RosterError),
    /// There is no place for what the runs write.
    #[error("cannot make a temporary directory: {0}")]
    Scratch(#[from] std::io::Error),
    /// A run failed.
    #[error("the run {trial} failed: {error}")]
    Run {
        /// Which.
        trial: Trial,
        /// Why.
        #[source]
        error: Box<RunError>,
    },
    /// Nothing was trained, so nothing can be compared.
    #[error(
        "nothing is trained, so nothing can be compared; let `max_epochs`, `max_steps` and the data allow a step"
    )]
    NothingTrained,
    /// It was asked to end.
    #[error("interrupted by {signal}: nothing was judged")]
    Interrupted {
        /// The signal.
        signal: String,
    },
}

/// Judges the observers of a training by its first `steps` optimizer steps, or by all of them where it is shorter.
/// Every call of `make` must make the same training anew, with the same seed.
pub fn verify<T: Training>(
    steps: u64,
    make: impl FnMut() -> Result<T, BoxError>,
) -> Result<Judgement, NeutralError> {
    Verification::of(steps).run(make)
}

/// How to verify, where there is more to say than how many steps.
#[derive(Default)]
pub struct Verification {
    steps: u64,
    interrupt: Interrupt,
    progress: Option<OnTick>,
}

pub(crate) type OnTick = Arc<Mutex<dyn FnMut(&Tick<'_>) + Send>>;

impl Verification {
    /// By so many optimizer steps.
    #[must_use]
    pub fn of(steps: u64) -> Verification {
        Verification { steps, ..Verification::default() }
    }

    /// Ends when this handle says so, with an error.
    #[must_use]
    pub fn with_interrupt(mut self, interrupt: Interrupt) -> Verification {
        self.interrupt = interrupt;
        self
    }

    /// Tells after every step, and at the end of every run, how far it is.
    #[must_use]
    pub fn on_progress(mut self, tell: impl FnMut(&Tick<'_>) + Send + 'static) -> Verification {
        self.progress = Some(Arc::new(Mutex::new(tell)));
        self
    }

    /// Judges; see [`verify`].
    pub fn run<T: Training>(
        self,
        mut make: impl FnMut() -> Result<T, BoxError>,
    ) -> Result<Judgement, NeutralError> {
        let suspects = Suspects::among(make().map_err(NeutralError::Make)?.trainer());
        if suspects.judged.is_empty() {
            return Ok(Judgement::of_nothing(suspects.not_judged));
        }
        let mut runs = Runs::new(make, &suspects, self);
        let all = suspects.judged.clone();

        let baseline = runs.run(&Trial::Without, &[], Watch::keeping())?.watch;
        if baseline.steps == 0 {
            return Err(NeutralError::NothingTrained);
        }
        let (compared, baseline) = (baseline.compared, Arc::new(baseline.trace));

        let ran = runs.run(&Trial::With, &all, Watch::comparing(&baseline))?;
        let (not_exercised, steps) = (suspects.not_exercised(&ran), ran.watch.steps);
        let finding = match ran.watch.found {
            Some(found) => runs.explain(&all, &baseline, found)?,
            None if not_exercised.len() == all.len() => Finding::NothingExercised,
            None => Finding::Neutral,
        };
        Ok(Judgement {
            judged: all,
            not_judged: suspects.not_judged.clone(),
            not_exercised,
            steps,
            compared,
            runs: runs.done,
            finding,
        })
    }
}

/// How many steps let every observer of this trainer fire once, as far as they say how often they do: at least 50,
/// and what would take more than 200 is left out.
#[must_use]
pub fn usual_steps(trainer: &Trainer) -> u64 {
    let accumulate = trainer.run_info().accumulate_grad_batches;
    Suspects::among(trainer).steps_to_fire(accumulate, 200).max(50)
}
