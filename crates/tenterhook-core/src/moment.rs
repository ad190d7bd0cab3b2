//! What every event has in common: where the run stands, and what all hooks share.

use std::cell::{Cell, Ref, RefCell, RefMut};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::board::Board;
use crate::metrics::{LogOptions, Metrics};
use crate::random::{Stream, Streams};
use crate::roster::Roster;
use crate::tensor::{ModelView, OptimizerSource, ReadScalar, TensorSource, Tensors};

/// Which of the trainer's four calls is running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// `fit`
    Fit,
    /// `validate`
    Validate,
    /// `test`
    Test,
    /// `predict`
    Predict,
}

impl std::fmt::Display for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Stage::Fit => "fit",
            Stage::Validate => "validate",
            Stage::Test => "test",
            Stage::Predict => "predict",
        })
    }
}

/// Which loop is running: within `fit`, training, validation and the sanity check take turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// A few validation batches before training; leaves no trace.
    SanityCheck,
    /// Training.
    #[default]
    Train,
    /// Validation.
    Validate,
    /// Test.
    Test,
    /// Prediction.
    Predict,
}

/// How the run is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Before the first batch.
    #[default]
    Starting,
    /// Under way.
    Training,
    /// Ended by a limit or by a request to stop.
    Completed,
    /// Ended by a signal.
    Interrupted,
    /// Failed.
    Error,
}

/// How a run ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum Outcome {
    /// It reached its limit.
    #[default]
    Completed,
    /// Somebody asked to stop.
    Stopped {
        /// Who: a hook's name, or `module`.
        by: String,
        /// Why.
        reason: String,
    },
    /// It failed.
    Failed {
        /// The first error.
        error: String,
    },
}

/// What does not change during a run.
#[derive(Clone, Debug, Default)]
pub struct RunInfo {
    /// The run's id.
    pub id: String,
    /// Its directory, where it has one.
    pub directory: Option<PathBuf>,
    /// The directory of its checkpoints.
    pub checkpoints: PathBuf,
    /// The device it computes on.
    pub device: String,
    /// The number of parameters of the model.
    pub parameters: u64,
    /// The full configuration, resolved.
    pub config: serde_json::Value,
    /// When `fit` validates.
    pub validation: Validation,
    /// A dry run over a few batches: nobody stops it early and nothing is saved.
    pub fast_dev_run: bool,
}

/// When `fit` validates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validation {
    /// There is something to validate on.
    pub enabled: bool,
    /// In every how many epochs; `None` counts batches across epochs instead.
    pub every_n_epochs: Option<u64>,
    /// Once, when the epoch's batches are done.
    pub at_epoch_end: bool,
}

impl Default for Validation {
    fn default() -> Validation {
        Validation { enabled: true, every_n_epochs: Some(1), at_epoch_end: true }
    }
}

impl Validation {
    /// Whether this epoch is one in which it validates.
    #[must_use]
    pub fn due_in(&self, epoch: u64) -> bool {
        self.enabled && self.every_n_epochs.is_none_or(|n| (epoch + 1).is_multiple_of(n))
    }

    /// Whether a monitor that was not told better should judge at `on_train_epoch_end`: validation,
    /// if there is any, has happened exactly once by then.
    #[must_use]
    pub fn once_per_epoch(&self) -> bool {
        self.at_epoch_end && self.every_n_epochs == Some(1)
    }
}

/// Where the run stands. Everything here is a number that a checkpoint can hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The current epoch, from 0.
    pub epoch: u64,
    /// Epochs whose batches are done; one more than `epoch` from `on_train_epoch_end` on.
    pub epochs_done: u64,
    /// Completed optimizer steps: 1 at the first `on_step_end`.
    pub step: u64,
    /// Micro-batches of this epoch that have been started; the current batch's index is one less.
    pub batches: u64,
    /// Micro-batches started in all epochs.
    pub total_batches: u64,
    /// Samples seen in training.
    pub samples: u64,
    /// Tokens seen in training, where the data counts them.
    pub tokens: u64,
    /// Whether the step being worked on has been counted already.
    pub step_counted: bool,
}

impl Progress {
    /// The number of the step that the current event belongs to: the one being worked on before
    /// `on_step_end`, the one just completed from there to the end of the batch.
    #[must_use]
    pub fn current_step(&self) -> u64 {
        if self.step_counted { self.step } else { self.step + 1 }
    }
}

/// One batch as a hook sees it.
pub struct Batch<'a> {
    /// Its index within the epoch and its loader.
    pub index: u64,
    /// How many samples it holds.
    pub size: usize,
    /// The index of the loader it came from.
    pub loader_index: usize,
    /// The name of that loader.
    pub loader: &'a str,
    /// Whether it is known to be the epoch's last.
    pub is_last: bool,
    /// Its tensors, by name.
    pub tensors: Tensors<'a>,
}

/// Where the trainer's time comes from.
pub trait Clock: Send {
    /// The time since the run began.
    fn elapsed(&self) -> Duration;
}

/// A clock that stands still where it was set; for tests.
#[derive(Debug, Default)]
pub struct FixedClock(pub Duration);

impl Clock for FixedClock {
    fn elapsed(&self) -> Duration {
        self.0
    }
}

/// The losses seen so far; reading makes them materialise.
pub trait LossHistory {
    /// The last loss.
    fn latest(&self) -> Option<f64>;
    /// The mean of this epoch's losses.
    fn average(&self) -> Option<f64>;
}

/// What all hooks of a run share.
pub struct Shared {
    /// What does not change.
    pub run: RunInfo,
    /// Logged numbers.
    pub metrics: Metrics,
    /// Values that hooks leave for each other.
    pub board: Board,
    /// Random streams, one per purpose.
    pub streams: RefCell<Streams>,
    /// Who is registered, and requests to change that.
    pub roster: Roster,
    /// The trainer's clock.
    pub clock: Box<dyn Clock>,
    /// What hooks want people to know: who says it, and what.
    pub said: RefCell<Vec<(String, String)>>,
    /// The hook that is running now.
    pub(crate) current: Cell<usize>,
}

impl Shared {
    /// What the hooks of a run with this seed and clock share.
    #[must_use]
    pub fn new(run: RunInfo, seed: u64, clock: Box<dyn Clock>) -> Shared {
        Shared {
            run,
            metrics: Metrics::default(),
            board: Board::default(),
            streams: RefCell::new(Streams::new(seed)),
            roster: Roster::default(),
            clock,
            said: RefCell::default(),
            current: Cell::new(0),
        }
    }
}

/// The state of the run at the moment of an event. Every context dereferences to it.
pub struct Moment<'a> {
    /// Which of the trainer's calls is running.
    pub stage: Stage,
    /// Which loop is running.
    pub phase: Phase,
    /// How the run is doing.
    pub status: Status,
    /// Where it stands; reached through `Deref`, so `cx.epoch` and `cx.step` work.
    pub progress: Progress,
    /// What does not change during the run.
    pub run: &'a RunInfo,
    pub(crate) shared: &'a Shared,
    pub(crate) model: &'a dyn ModelView,
    pub(crate) losses: &'a dyn LossHistory,
}

impl<'a> Moment<'a> {
    /// The moment at which these things stand as they do.
    #[inline]
    #[must_use]
    pub fn new(
        (stage, phase, status): (Stage, Phase, Status),
        progress: Progress,
        shared: &'a Shared,
        model: &'a dyn ModelView,
        losses: &'a dyn LossHistory,
    ) -> Moment<'a> {
        Moment { stage, phase, status, progress, run: &shared.run, shared, model, losses }
    }

    /// Time since the run began.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.shared.clock.elapsed()
    }

    /// The last loss, if there was one. Reading it makes it materialise.
    #[must_use]
    pub fn latest_loss(&self) -> Option<f64> {
        self.losses.latest()
    }

    /// The mean of this epoch's losses so far. Reading it makes them materialise.
    #[must_use]
    pub fn average_loss(&self) -> Option<f64> {
        self.losses.average()
    }

    /// The parameters.
    #[must_use]
    pub fn params(&self) -> Tensors<'a> {
        Tensors::new(self.model.params())
    }

    /// The optimizers: their groups, learning rates and state.
    #[must_use]
    pub fn optimizers(&self) -> &'a dyn OptimizerSource {
        self.model.optimizers()
    }

    /// The metrics logged so far.
    #[must_use]
    pub fn metrics(&self) -> &'a Metrics {
        &self.shared.metrics
    }

    /// Logs a number: it lands on the current step, and is aggregated over the epoch where that is
    /// usual for the event.
    pub fn log(&self, name: &str, value: f64) {
        self.shared.metrics.log(name, value, LogOptions::usual(self.phase));
    }

    /// Says something to people; the trainer passes it on after the event.
    pub fn say(&self, text: impl Into<String>) {
        self.shared.said.borrow_mut().push((self.hook_name().to_owned(), text.into()));
    }

    /// The board on which hooks leave values for each other.
    #[must_use]
    pub fn board(&self) -> &'a Board {
        &self.shared.board
    }

    /// The registered hooks, and requests to enable, disable, remove or add some.
    #[must_use]
    pub fn hooks(&self) -> &'a Roster {
        &self.shared.roster
    }

    /// The name that the hook which is running now is registered under.
    pub(crate) fn hook_name(&self) -> Ref<'a, str> {
        self.shared.roster.name(self.shared.current.get())
    }

    /// This hook's own random stream. Drawing from it shifts nobody else's.
    #[must_use]
    pub fn rng(&self) -> RefMut<'a, Stream> {
        let name = self.hook_name();
        RefMut::map(self.shared.streams.borrow_mut(), |streams| streams.stream("hook", &name))
    }
}

impl std::ops::Deref for Moment<'_> {
    type Target = Progress;
    fn deref(&self) -> &Progress {
        &self.progress
    }
}

/// A module that has nothing to show; for loops that are not ours, and for tests.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoModel;

impl ModelView for NoModel {
    fn params(&self) -> &dyn TensorSource {
        &crate::tensor::NoTensors
    }
    fn optimizers(&self) -> &dyn OptimizerSource {
        self
    }
}

impl OptimizerSource for NoModel {
    fn count(&self) -> usize {
        0
    }
    fn name(&self, _: usize) -> &'static str {
        ""
    }
    fn groups(&self, _: usize) -> Vec<crate::tensor::ParamGroup> {
        Vec::new()
    }
    fn state(&self, _: usize) -> &dyn TensorSource {
        &crate::tensor::NoTensors
    }
}

impl LossHistory for NoModel {
    fn latest(&self) -> Option<f64> {
        None
    }
    fn average(&self) -> Option<f64> {
        None
    }
}

/// Losses as numbers already read.
impl LossHistory for (Option<f64>, Option<f64>) {
    fn latest(&self) -> Option<f64> {
        self.0
    }
    fn average(&self) -> Option<f64> {
        self.1
    }
}

/// The norm of several parts, each of which may not be computed yet.
pub struct NormOfParts<'a, S>(pub &'a [S]);

impl<S: ReadScalar> ReadScalar for NormOfParts<'_, S> {
    fn read(&self) -> f64 {
        self.0.iter().map(|part| part.read().powi(2)).sum::<f64>().sqrt()
    }
}
