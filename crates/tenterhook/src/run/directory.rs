//! The run directory `runs/<run-id>/`, and `runs/latest`, a link to the newest.

use std::path::{Path, PathBuf};

use tenterhook_core::update::GradientChange;
use tenterhook_core::{BoxError, Stage};
use tenterhook_files::{FilePosition, cannot, write_durably};

use super::files::{EVENTS, RunFiles, create};
use super::lock::RunLock;
use super::ownership::Signer;
use super::reading::EventLog;
use super::record::RunRecord;
use super::reopen::{is_untested, removed_checkpoints, reopen, reopen_for_test, resumption, validate_resume};
use super::startup::{lock_runs, set_latest};
use super::{
    CallEnd, HistogramLine, JournalEntry, JournalEvent, MetricsLine, Recorder, RunHeader, RunLocation,
    RunStart, StartReport, new_id,
};
use crate::tensors::TensorMap;

/// The options of a run directory. Nothing is created before training begins.
#[derive(Debug, Default)]
pub struct RunDirectoryOptions {
    /// The directory of all runs, such as `runs`.
    pub runs_dir: PathBuf,
    /// The run's id; unset, a new one.
    pub id: Option<String>,
    /// Resumes the run that this lock belongs to; `runs_dir` and `id` are ignored. Its `metrics.jsonl`,
    /// `histograms.jsonl` and `updates.jsonl` are truncated to the checkpoint that is restored, or emptied
    /// without one; `events.jsonl` stays. The checkpoint must be one of this run.
    pub resume: Option<RunLock>,
    /// The resolved configuration, which becomes `config.toml`.
    pub config: String,
    /// The signer of the configuration.
    pub signer: Signer,
    /// The hash of the configuration; unset, it is computed from the text, and without a text from the trainer's
    /// settings.
    pub config_hash: Option<String>,
    /// The task's name.
    pub task: Option<String>,
    /// The device, as `run.json` and the journal show it.
    pub device: Option<String>,
    /// The command line.
    pub command: Vec<String>,
    /// Also creates a directory for an evaluation that no training precedes, unless a run is resumed.
    pub for_evaluations: bool,
    /// A test follows the training in the same directory, and the run counts as running until the test has
    /// ended. If the trainer is dropped before the test begins, the run counts as failed, and resuming it runs
    /// the test.
    pub then_test: bool,
}

impl RunDirectoryOptions {
    /// Options for a run directory inside `runs_dir`, with the command line of this process.
    pub fn in_dir(runs_dir: impl Into<PathBuf>) -> RunDirectoryOptions {
        let command = std::env::args_os().map(|argument| argument.to_string_lossy().into_owned());
        RunDirectoryOptions {
            runs_dir: runs_dir.into(),
            command: command.collect(),
            ..RunDirectoryOptions::default()
        }
    }
}

/// A recorder that writes a run directory.
pub struct RunDirectory {
    options: RunDirectoryOptions,
    id: String,
    /// An existing run is resumed.
    resumes: bool,
    /// The journal entries before the directory exists.
    waiting: Vec<JournalEntry>,
    /// The files; `None` before the run begins.
    files: Option<RunFiles>,
    /// The number of lines that earlier runs of this recorder lost.
    lost: u64,
    /// A write error while a checkpoint was taken, to be returned by the next `flush`.
    write_error: Option<BoxError>,
}

impl RunDirectory {
    /// A recorder with these options.
    #[must_use]
    pub fn new(mut options: RunDirectoryOptions) -> RunDirectory {
        if let Some(directory) = options.resume.as_ref().map(RunLock::directory) {
            options.runs_dir = directory.parent().map(Path::to_owned).unwrap_or_default();
            options.id = directory.file_name().map(|name| name.to_string_lossy().into_owned());
        }
        let (id, resumes) = (options.id.clone().unwrap_or_else(new_id), options.resume.is_some());
        RunDirectory { options, id, resumes, waiting: Vec::new(), files: None, lost: 0, write_error: None }
    }

    /// Its location, also before it exists.
    #[must_use]
    pub fn location(&self) -> RunLocation {
        let directory = self.options.runs_dir.join(&self.id);
        RunLocation { id: self.id.clone(), checkpoints: directory.join("checkpoints"), directory }
    }

    /// Creates or reopens the directory.
    fn open(&mut self, start: &RunStart<'_>) -> Result<RunFiles, BoxError> {
        let lock = self.options.resume.take();
        let RunDirectory { options, id, .. } = self;
        let is_signed = start.stage == Stage::Fit && !options.config.is_empty();
        let unsigned = is_signed.then(|| options.signer.load_key()).and_then(Result::err);
        let _lock = lock_runs(&options.runs_dir);
        let (mut files, resumed) = if let Some(lock) = lock {
            reopen(options, lock, start).map(|(files, resumed)| (files, Some(resumed)))?
        } else {
            let files = create(options, id, RunRecord::new(options, start), start.stage)?;
            let resumed = start.resumed_from.map(|_| resumption(files.path(), start, None));
            (files, resumed)
        };
        files.start_report.header = Some(RunHeader { resumed, ..RunHeader::from(&files.record) });
        // The run does not need the link or the signature.
        let missing = &mut files.start_report.missing;
        let unlinked =
            set_latest(&options.runs_dir, id).map_err(cannot("link", &options.runs_dir.join("latest")));
        missing.extend(unlinked.err().map(|why| format!("{why}; move it away")));
        let why_unsigned =
            |why| format!("the run is not signed, so that resuming it may need `--trust`: {why}");
        missing.extend(unsigned.map(why_unsigned));
        Ok(files)
    }

    /// The checkpoints that an existing run has removed, for an evaluation that does not open its files. A journal
    /// that cannot be read is reported when they are opened.
    fn removed_before(&self) -> Vec<PathBuf> {
        let directory = self.location().directory;
        let event_log = self.resumes.then(|| EventLog::read(&directory.join(EVENTS)).ok()).flatten();
        event_log.map(|event_log| removed_checkpoints(&directory, &event_log)).unwrap_or_default()
    }
}

impl Recorder for RunDirectory {
    fn validate_resume(&self, resumed_from: Option<&Path>) -> Result<(), BoxError> {
        self.options.resume.as_ref().map_or(Ok(()), |lock| validate_resume(lock, resumed_from))
    }

    fn begin(&mut self, start: &RunStart<'_>) -> Result<StartReport, BoxError> {
        let stage = start.stage;
        let may_test = stage == Stage::Test && self.options.then_test;
        let untested = self.options.resume.as_ref().filter(|_| may_test).map_or(Ok(false), is_untested)?;
        if let Some(lock) = self.options.resume.take_if(|_| untested) {
            self.files = Some(reopen_for_test(&self.options, lock, start)?);
        }
        if self.files.is_none() {
            let without_training = stage != Stage::Fit && (self.resumes || !self.options.for_evaluations);
            if without_training || start.run.fast_dev_run {
                let removed_checkpoints = self.removed_before();
                return Ok(StartReport { removed_checkpoints, ..StartReport::default() });
            }
            self.files = Some(self.open(start)?);
        }
        let Some(files) = &mut self.files else { return Ok(StartReport::default()) };
        if stage == Stage::Test && files.record.trained.is_some() {
            // A resumed test is compared with it.
            files.record.identity.data.extend(start.identity.data.clone());
            files.write_record()?;
        }
        let entry = JournalEntry {
            step: start.progress.step,
            epoch: start.progress.epoch,
            time: start.time,
            what: JournalEvent::Start { stage, resumed_from: start.resumed_from.map(Path::to_owned) },
        };
        self.waiting.drain(..).chain([entry]).try_for_each(|entry| files.push(entry))?;
        let removed_checkpoints = files.removed.clone();
        Ok(StartReport { removed_checkpoints, ..std::mem::take(&mut files.start_report) })
    }

    fn metrics(&mut self, line: &MetricsLine<'_>) -> Result<(), BoxError> {
        let Some(files) = &mut self.files else { return Ok(()) };
        Ok(files.lines.metrics.push(line, line.time)?)
    }

    fn histograms(&mut self, line: &HistogramLine<'_>) -> Result<(), BoxError> {
        let Some(files) = &mut self.files else { return Ok(()) };
        Ok(files.lines.histograms.push(line, line.time)?)
    }

    fn updates(&mut self, touched: &[GradientChange], time: f64) -> Result<(), BoxError> {
        let Some(files) = &mut self.files else { return Ok(()) };
        Ok(touched.iter().try_for_each(|touched| files.lines.updates.push(touched, time))?)
    }

    fn event(&mut self, entry: JournalEntry) -> Result<(), BoxError> {
        let Some(files) = &mut self.files else {
            self.waiting.push(entry);
            return Ok(());
        };
        files.push(entry)
    }

    fn weights(&mut self, weights: &TensorMap) -> Result<(), BoxError> {
        let Some(files) = &self.files else { return Ok(()) };
        let path = files.path().join("weights.safetensors");
        let content = weights.as_file()?;
        Ok(write_durably(&path, |file| content.write_to(file)).map_err(cannot("write", &path))?)
    }

    fn flush(&mut self) -> Result<(), BoxError> {
        let Some(files) = &mut self.files else { return Ok(()) };
        files.lines.flush()?;
        self.write_error.take().map_or(Ok(()), Err)
    }

    fn end(&mut self, end: &CallEnd<'_>) -> Result<(), BoxError> {
        self.waiting.clear();
        let Some(files) = &mut self.files else { return Ok(()) };
        let CallEnd { stage, outcome, progress, time, .. } = end;
        let what = JournalEvent::End { stage: *stage, outcome: (*outcome).clone() };
        let pushed =
            files.push(JournalEntry { step: progress.step, epoch: progress.epoch, time: *time, what });
        let flushed = files.lines.flush().and_then(|()| files.lines.sync());
        let is_main = *stage == files.main_stage;
        let directory = files.path().to_owned();
        files.record.note_end(end, &directory, is_main, self.options.then_test);
        let written = files.write_record();
        pushed?;
        flushed?;
        written?;
        self.write_error.take().map_or(Ok(()), Err)
    }

    fn lost(&self) -> u64 {
        self.lost + self.files.as_ref().map_or(0, |files| files.lines.lost())
    }

    fn file_positions(&mut self) -> Result<Vec<FilePosition>, BoxError> {
        let Some(files) = &mut self.files else { return Ok(Vec::new()) };
        // Even after a write error the file ends with a whole line, so its position is correct. The error is
        // returned later, because a resume from a checkpoint without positions would keep later lines.
        if let Err(error) = files.lines.flush() {
            self.write_error.get_or_insert(error.into());
        }
        files.lines.positions()
    }

    fn next_location(&mut self) -> Option<RunLocation> {
        // Training after an evaluation is a separate run.
        self.files.as_ref()?;
        self.lost = self.lost();
        (self.id, self.files, self.resumes) = (new_id(), None, false);
        Some(self.location())
    }
}
