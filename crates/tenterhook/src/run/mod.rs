//! What a run leaves behind: the run directory, and the seam through which the loop writes to it.
//!
//! The loop tells a [`Recorder`] what happened, after everybody has received an event. What the recorder cannot write
//! stops no training, and makes the call fail when it ends.

mod again;
mod costs;
mod directory;
mod entry;
mod identity;
mod interrupt;
mod introduction;
mod lines;
mod lock;
mod machine;
mod open;
pub mod ownership;
pub mod reading;
mod record;
pub mod resume;
mod sinks;
mod starting;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;
use tenterhook_core::update::GradientChange;
use tenterhook_core::{BoxError, Histogram, HookInfo, Outcome, Phase, Progress, RunInfo, Stage};
pub use tenterhook_files::FilePosition;

pub use costs::{CostOfCalls, CostOfEvent, CostOfHook, HandedOver, HookCosts};
pub use directory::{RunDirectory, RunDirectoryPlan};
pub use entry::{Entry, Happening};
pub use identity::Identity;
pub(crate) use identity::processor;
pub use interrupt::Interrupt;
pub use introduction::{IntroducedHook, Introduction, Resumption, command_line, named_versions};
pub use lock::{Holder, LockError, RunLock, holder};
pub use machine::{Git, Machine};
pub(crate) use open::EVENTS;
pub use reading::{Run, Runs};
pub use record::{RunPart, RunRecord, RunStatus};
pub use sinks::SentByHook;

use crate::journal::Failures;
use crate::tensors::TensorMap;

/// Writes down what happens in a run.
///
/// All of it may fail. A [`begin`](Recorder::begin) that fails ends the run before its first step. While it is under way, the
/// first failure is told as a notice, and [`Recorder::lost`] counts what is missing. Lost lines, and a failure of
/// [`weights`](Recorder::weights), of the last [`flush`](Recorder::flush) or of [`end`](Recorder::end), make the call fail
/// when it ends.
pub trait Recorder: Send {
    /// Refuses a training that it could not begin, from this checkpoint or from the start of the run. Called before any hook
    /// is; nothing may be written yet.
    fn admit(&self, _resumed_from: Option<&Path>) -> Result<(), BoxError> {
        Ok(())
    }

    /// Training, or an evaluation by itself, is about to begin: everything was accepted.
    fn begin(&mut self, _beginning: &Beginning<'_>) -> Result<Begun, BoxError> {
        Ok(Begun::default())
    }

    /// Metrics were logged.
    fn metrics(&mut self, line: &Line<'_>) -> Result<(), BoxError>;

    /// Histograms were logged.
    fn histograms(&mut self, _line: &HistogramLine<'_>) -> Result<(), BoxError> {
        Ok(())
    }

    /// Update hooks touched these gradients.
    fn updates(&mut self, _touched: &[GradientChange], _time: f64) -> Result<(), BoxError> {
        Ok(())
    }

    /// Something else happened, perhaps before the beginning.
    fn happened(&mut self, _entry: Entry) -> Result<(), BoxError> {
        Ok(())
    }

    /// The weights at the end of training.
    fn weights(&mut self, _weights: &TensorMap) -> Result<(), BoxError> {
        Ok(())
    }

    /// A moment at which nothing should be held back.
    fn flush(&mut self) -> Result<(), BoxError> {
        Ok(())
    }

    /// A call has ended, well or not, also one that never began.
    fn end(&mut self, _ending: &Ending<'_>) -> Result<(), BoxError> {
        Ok(())
    }

    /// How many lines could not be written.
    fn lost(&self) -> u64 {
        0
    }

    /// How long the files are that a resumed run must cut back, with all that was told so far written to them: what
    /// a checkpoint notes.
    fn marks(&mut self) -> Result<Vec<FilePosition>, BoxError> {
        Ok(Vec::new())
    }

    /// Where the next training goes when it must not go where the last one went.
    fn next_place(&mut self) -> Option<Place> {
        None
    }
}

/// Where a run leaves its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The run's id.
    pub id: String,
    /// Its directory.
    pub directory: PathBuf,
    /// The directory of its checkpoints.
    pub checkpoints: PathBuf,
}

impl Place {
    pub(crate) fn set_in(self, run: &mut RunInfo) {
        (run.id, run.directory, run.checkpoints) = (self.id, Some(self.directory), self.checkpoints);
    }
}

/// What is known when a run begins.
pub struct Beginning<'a> {
    /// Which call it is.
    pub stage: Stage,
    /// The run.
    pub run: &'a RunInfo,
    /// Its seed.
    pub seed: u64,
    /// Its data, program and processor.
    pub identity: &'a Identity,
    /// The engine of its module, such as `burn 0.22.1`.
    pub engine: Option<String>,
    /// Its hooks.
    pub hooks: Vec<HookInfo>,
    /// The checkpoint that it goes on from.
    pub resumed_from: Option<&'a Path>,
    /// How long the files of the run were at that checkpoint.
    pub marks: &'a [FilePosition],
    /// Where it stands: at 0, unless it was resumed.
    pub progress: Progress,
    /// Seconds since the run began.
    pub time: f64,
}

/// What a recorder knows of a run that has begun.
#[derive(Debug, Default)]
pub struct Begun {
    /// What the run lacks, such as the link `latest`.
    pub lacks: Vec<String>,
    /// What can be said of the run that began, where there is something to be found of it later.
    pub introduction: Option<Introduction>,
    /// The checkpoints that the run has removed so far, in all its parts.
    pub removed_checkpoints: Vec<PathBuf>,
    /// The checkpoints of the run that cannot be read, if the resume skips them; they are set aside.
    pub unreadable_checkpoints: Vec<PathBuf>,
    /// The part of the run before this one came to an end. `false`: it was killed, or nobody knows.
    pub earlier_part_ended: bool,
}

/// How a call ended.
pub struct Ending<'a> {
    /// Which call it was.
    pub stage: Stage,
    /// How it ended.
    pub outcome: &'a Outcome,
    /// Where it stood.
    pub progress: Progress,
    /// The latest value of every metric.
    pub metrics: &'a BTreeMap<String, f64>,
    /// The hooks, as they are now.
    pub hooks: Vec<HookInfo>,
    /// The best checkpoint, if a hook keeps one.
    pub best: Option<PathBuf>,
    /// Its data, program and processor.
    pub identity: &'a Identity,
    /// What failed in it.
    pub failures: &'a Failures,
    /// What they cost in this process.
    pub hook_costs: HookCosts,
    /// What became of what hooks handed to worker threads.
    pub sinks: Vec<SentByHook>,
    /// Seconds since the run began.
    pub time: f64,
}

/// The metrics that were logged at one moment: a line of `metrics.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line<'a> {
    /// Completed optimizer steps.
    pub step: u64,
    /// The epoch, from 0.
    pub epoch: u64,
    /// Its batches are done; where they are not, the file says nothing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub epoch_end: bool,
    /// `train`, `validate`, `test` or `predict`.
    pub stage: Phase,
    /// Seconds since the run began.
    pub time: f64,
    /// What was logged since the last line, in order of name.
    #[serde(with = "tenterhook_core::number::map")]
    pub metrics: &'a BTreeMap<String, f64>,
}

/// The histograms that were logged at one moment: a line of `histograms.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HistogramLine<'a> {
    /// Completed optimizer steps.
    pub step: u64,
    /// The epoch, from 0.
    pub epoch: u64,
    /// `train`, `validate`, `test` or `predict`.
    pub stage: Phase,
    /// Seconds since the run began.
    pub time: f64,
    /// What was logged since the last line, in order of name.
    pub histograms: &'a BTreeMap<String, Histogram>,
}

/// A new id: sorted by time, and never the same twice.
pub(crate) fn new_id() -> String {
    uuid::Uuid::now_v7().to_string()
}
