//! The run directory, and the trait [`Recorder`] through which the loop writes to it.
//!
//! The loop calls the recorder after all receivers have received an event. A write error does not stop training, but
//! makes the call fail when it ends.

mod costs;
mod directory;
mod files;
mod header;
mod identity;
mod interrupt;
mod journal_entry;
mod jsonl;
mod lock;
mod machine;
pub mod ownership;
pub mod reading;
mod record;
mod reopen;
pub mod resume;
mod sinks;
mod startup;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;
use tenterhook_core::update::GradientChange;
use tenterhook_core::{BoxError, Histogram, HookInfo, Outcome, Phase, Progress, RunInfo, Stage};
pub use tenterhook_files::FilePosition;

pub use costs::{CostOfEvent, CostOfHook, HookCosts};
pub use directory::{RunDirectory, RunDirectoryOptions};
pub(crate) use files::EVENTS;
pub use header::{Resumption, RunHeader, RunHeaderHook, command_line, named_versions};
pub use identity::Identity;
pub(crate) use identity::processor;
pub use interrupt::Interrupt;
pub use journal_entry::{JournalEntry, JournalEvent};
pub use lock::{Holder, LockError, RunLock, holder};
pub use machine::{Git, Machine};
pub use reading::{Run, Runs};
pub use record::{RunPart, RunRecord, RunStatus};
pub use sinks::SinkDeliveries;

use crate::journal::Failures;
use crate::tensors::TensorMap;

/// Records metrics, events and results of a run.
///
/// All methods may fail. An error of [`begin`](Recorder::begin) ends the run before its first step. After that, the
/// first error becomes a notice, and [`Recorder::lost`] counts the missing lines. Lost lines, and an error of
/// [`weights`](Recorder::weights), of the last [`flush`](Recorder::flush) or of [`end`](Recorder::end), make the call
/// fail when it ends.
pub trait Recorder: Send {
    /// Refuses a training run from this checkpoint, or from the start of the run, that cannot be recorded. Called before
    /// any hook; must not write.
    fn validate_resume(&self, _resumed_from: Option<&Path>) -> Result<(), BoxError> {
        Ok(())
    }

    /// Begins a call, after everything was accepted.
    fn begin(&mut self, _start: &RunStart<'_>) -> Result<StartReport, BoxError> {
        Ok(StartReport::default())
    }

    /// Records logged metrics.
    fn metrics(&mut self, line: &MetricsLine<'_>) -> Result<(), BoxError>;

    /// Records logged histograms.
    fn histograms(&mut self, _line: &HistogramLine<'_>) -> Result<(), BoxError> {
        Ok(())
    }

    /// Records the gradients that update hooks changed.
    fn updates(&mut self, _touched: &[GradientChange], _time: f64) -> Result<(), BoxError> {
        Ok(())
    }

    /// Adds an entry to the journal; may be called before `begin`.
    fn event(&mut self, _entry: JournalEntry) -> Result<(), BoxError> {
        Ok(())
    }

    /// Records the weights at the end of training.
    fn weights(&mut self, _weights: &TensorMap) -> Result<(), BoxError> {
        Ok(())
    }

    /// Writes everything that is buffered.
    fn flush(&mut self) -> Result<(), BoxError> {
        Ok(())
    }

    /// Ends a call with any outcome, even a call that never began.
    fn end(&mut self, _end: &CallEnd<'_>) -> Result<(), BoxError> {
        Ok(())
    }

    /// The number of lines that could not be written.
    fn lost(&self) -> u64 {
        0
    }

    /// Flushes, and returns the positions of the files that a resumed run must truncate; checkpoints store them.
    fn file_positions(&mut self) -> Result<Vec<FilePosition>, BoxError> {
        Ok(Vec::new())
    }

    /// The location of the next training, if it must not be that of the last one.
    fn next_location(&mut self) -> Option<RunLocation> {
        None
    }
}

/// The id and the directories of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunLocation {
    /// The run's id.
    pub id: String,
    /// Its directory.
    pub directory: PathBuf,
    /// The directory of its checkpoints.
    pub checkpoints: PathBuf,
}

impl RunLocation {
    pub(crate) fn set_in(self, run: &mut RunInfo) {
        (run.id, run.directory, run.checkpoints) = (self.id, Some(self.directory), self.checkpoints);
    }
}

/// The arguments of [`Recorder::begin`].
pub struct RunStart<'a> {
    /// The call.
    pub stage: Stage,
    /// The run.
    pub run: &'a RunInfo,
    /// Its seed.
    pub seed: u64,
    /// The fingerprints of data, program and processor.
    pub identity: &'a Identity,
    /// The engine of the module, such as `burn 0.22.1`.
    pub engine: Option<String>,
    /// The hooks.
    pub hooks: Vec<HookInfo>,
    /// The checkpoint that it resumes from.
    pub resumed_from: Option<&'a Path>,
    /// The positions of the run's files at that checkpoint.
    pub file_positions: &'a [FilePosition],
    /// The progress; 0 unless the run is resumed.
    pub progress: Progress,
    /// Seconds since the run began.
    pub time: f64,
}

/// The result of [`Recorder::begin`].
#[derive(Debug, Default)]
pub struct StartReport {
    /// What could not be created, such as the link `latest`.
    pub missing: Vec<String>,
    /// The header of the run, if it is recorded.
    pub header: Option<RunHeader>,
    /// The checkpoints that all parts of the run have removed so far.
    pub removed_checkpoints: Vec<PathBuf>,
    /// The unreadable checkpoints of the run, if the resume skips and sets them aside.
    pub unreadable_checkpoints: Vec<PathBuf>,
    /// Whether the part of the run before this one has ended. `false` if it was killed or if that is unknown.
    pub earlier_part_ended: bool,
}

/// The arguments of [`Recorder::end`].
pub struct CallEnd<'a> {
    /// The call.
    pub stage: Stage,
    /// How it ended.
    pub outcome: &'a Outcome,
    /// The progress.
    pub progress: Progress,
    /// The latest value of every metric.
    pub metrics: &'a BTreeMap<String, f64>,
    /// The hooks with their current status.
    pub hooks: Vec<HookInfo>,
    /// The best checkpoint, if a hook keeps one.
    pub best: Option<PathBuf>,
    /// The fingerprints of data, program and processor.
    pub identity: &'a Identity,
    /// The failures.
    pub failures: &'a Failures,
    /// The cost of the hooks in this process.
    pub hook_costs: HookCosts,
    /// The deliveries of the hooks' worker threads.
    pub sinks: Vec<SinkDeliveries>,
    /// Seconds since the run began.
    pub time: f64,
}

/// Metrics that were logged together: a line of `metrics.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MetricsLine<'a> {
    /// Completed optimizer steps.
    pub step: u64,
    /// The epoch, from 0.
    pub epoch: u64,
    /// The batches of the epoch are done. Left out of the file if `false`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub epoch_end: bool,
    /// `train`, `validate`, `test` or `predict`.
    pub stage: Phase,
    /// Seconds since the run began.
    pub time: f64,
    /// The values logged since the last line, sorted by name.
    #[serde(with = "tenterhook_core::number::map")]
    pub metrics: &'a BTreeMap<String, f64>,
}

/// Histograms that were logged together: a line of `histograms.jsonl`.
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
    /// The histograms logged since the last line, sorted by name.
    pub histograms: &'a BTreeMap<String, Histogram>,
}

/// A new unique id; ids sort by time.
pub(crate) fn new_id() -> String {
    uuid::Uuid::now_v7().to_string()
}
