//! The run directory: `runs/<run-id>/`, and `runs/latest` that points at the newest.

use std::path::{Path, PathBuf};

use tenterhook_core::update::GradientChange;
use tenterhook_core::{BoxError, Stage};
use tenterhook_files::{FilePosition, cannot, write_durably};

use super::again::{admit, go_on, removed, resumption, test_again};
use super::lock::RunLock;
use super::open::{EVENTS, Open, create};
use super::ownership::Signer;
use super::reading::Happenings;
use super::record::RunRecord;
use super::starting::{Starting, point};
use super::{
    Beginning, Begun, Ending, Entry, Happening, HistogramLine, Introduction, Line, Place, Recorder, new_id,
};
use crate::tensors::TensorMap;

/// What a run directory needs to know beyond what the trainer knows. Nothing is made before training
/// really begins.
#[derive(Debug, Default)]
pub struct RunDirectoryPlan {
    /// The directory of all runs, such as `runs`.
    pub runs_dir: PathBuf,
    /// The run's id; unset, a new one.
    pub id: Option<String>,
    /// Resumes the run that this locks, whatever `runs_dir` and `id` say. Its `metrics.jsonl`, `histograms.jsonl` and
    /// `updates.jsonl` are cut back to the checkpoint that is restored, or to nothing without one; `events.jsonl`
    /// stays. The checkpoint must be one of this run.
    pub resume: Option<RunLock>,
    /// The resolved configuration, which becomes `config.toml`.
    pub config: String,
    /// Who signs the configuration.
    pub signer: Signer,
    /// The configuration's hash; unset, that of the text, and without a text that of the trainer's settings.
    pub config_hash: Option<String>,
    /// The task's name.
    pub task: Option<String>,
    /// The device, as it stands in `run.json` and in the events.
    pub device: Option<String>,
    /// The command line.
    pub command: Vec<String>,
    /// An evaluation without a training before it gets a directory, too; not in a directory to be resumed.
    pub for_evaluations: bool,
    /// A test follows the training, in the same directory: until it has ended, the run is under way. If the trainer is
    /// dropped before a test begins, the run has failed, and a resume tests it.
    pub then_test: bool,
}

impl RunDirectoryPlan {
    /// A directory below this one, with the command line of this process.
    pub fn below(runs_dir: impl Into<PathBuf>) -> RunDirectoryPlan {
        let command = std::env::args_os().map(|argument| argument.to_string_lossy().into_owned());
        RunDirectoryPlan {
            runs_dir: runs_dir.into(),
            command: command.collect(),
            ..RunDirectoryPlan::default()
        }
    }
}

/// A run directory, from its plan to its end.
pub struct RunDirectory {
    plan: RunDirectoryPlan,
    id: String,
    /// It exists already, and is resumed.
    resumes: bool,
    /// What happened before it began.
    waiting: Vec<Entry>,
    open: Option<Open>,
    /// What it lost in earlier runs.
    lost: u64,
    /// What could not be written while a checkpoint was made, until it can be told.
    untold: Option<BoxError>,
}

impl RunDirectory {
    /// One that will be made by this plan.
    #[must_use]
    pub fn new(mut plan: RunDirectoryPlan) -> RunDirectory {
        if let Some(directory) = plan.resume.as_ref().map(RunLock::directory) {
            plan.runs_dir = directory.parent().map(Path::to_owned).unwrap_or_default();
            plan.id = directory.file_name().map(|name| name.to_string_lossy().into_owned());
        }
        let (id, resumes) = (plan.id.clone().unwrap_or_else(new_id), plan.resume.is_some());
        RunDirectory { plan, id, resumes, waiting: Vec::new(), open: None, lost: 0, untold: None }
    }

    /// Where it will be.
    #[must_use]
    pub fn place(&self) -> Place {
        let directory = self.plan.runs_dir.join(&self.id);
        Place { id: self.id.clone(), checkpoints: directory.join("checkpoints"), directory }
    }

    fn opened(&mut self, beginning: &Beginning<'_>) -> Result<Open, BoxError> {
        let lock = self.plan.resume.take();
        let RunDirectory { plan, id, .. } = self;
        let is_signed = beginning.stage == Stage::Fit && !plan.config.is_empty();
        let unsigned = is_signed.then(|| plan.signer.take_key()).and_then(Result::err);
        let _starting = Starting::below(&plan.runs_dir);
        let (mut open, resumed) = if let Some(lock) = lock {
            go_on(plan, lock, beginning).map(|(open, resumed)| (open, Some(resumed)))?
        } else {
            let open = create(plan, id, RunRecord::new(plan, beginning), beginning.stage)?;
            let resumed = beginning.resumed_from.map(|_| resumption(open.path(), beginning, None));
            (open, resumed)
        };
        open.begun.introduction = Some(Introduction { resumed, ..Introduction::from(&open.record) });
        let latest = plan.runs_dir.join("latest");
        // The run is whole without it.
        let unlinked = point(&plan.runs_dir, id).map_err(cannot("link", &latest)).err();
        open.begun.lacks.extend(unlinked.map(|why| format!("{why}; move it away")));
        open.begun.lacks.extend(
            unsigned
                .map(|why| format!("the run is not signed, so that resuming it may need `--trust`: {why}")),
        );
        Ok(open)
    }

    /// The checkpoints that a run which does not begin here has removed. What cannot be read is told when it does.
    fn removed_before(&self) -> Vec<PathBuf> {
        let directory = self.place().directory;
        let happened = self.resumes.then(|| Happenings::read(&directory.join(EVENTS)).ok());
        happened.flatten().map(|happened| removed(&directory, &happened)).unwrap_or_default()
    }
}

impl Recorder for RunDirectory {
    fn admit(&self, resumed_from: Option<&Path>) -> Result<(), BoxError> {
        self.plan.resume.as_ref().map_or(Ok(()), |lock| admit(lock, resumed_from))
    }

    fn begin(&mut self, beginning: &Beginning<'_>) -> Result<Begun, BoxError> {
        let stage = beginning.stage;
        let resumed_from = beginning.resumed_from.map(Path::to_owned);
        let what = Happening::Start { stage, resumed_from };
        let start = Entry {
            step: beginning.progress.step,
            epoch: beginning.progress.epoch,
            time: beginning.time,
            what,
        };
        if let Some(lock) = self.plan.resume.take_if(|_| stage == Stage::Test && self.plan.then_test) {
            match test_again(&self.plan, lock, beginning)? {
                Ok(open) => self.open = Some(open),
                Err(lock) => self.plan.resume = Some(lock),
            }
        }
        if self.open.is_none() {
            let without_training = stage != Stage::Fit && (self.resumes || !self.plan.for_evaluations);
            if without_training || beginning.run.fast_dev_run {
                return Ok(Begun { removed_checkpoints: self.removed_before(), ..Begun::default() });
            }
        }
        if self.open.is_none() {
            self.open = Some(self.opened(beginning)?);
        }
        let Some(open) = &mut self.open else { return Ok(Begun::default()) };
        if stage == Stage::Test && open.record.trained.is_some() {
            // A resumed test is compared with it.
            open.record.identity.data.extend(beginning.identity.data.clone());
            open.write_record()?;
        }
        self.waiting.drain(..).chain([start]).try_for_each(|entry| open.push(entry))?;
        Ok(Begun { removed_checkpoints: open.removed.clone(), ..std::mem::take(&mut open.begun) })
    }

    fn metrics(&mut self, line: &Line<'_>) -> Result<(), BoxError> {
        let Some(open) = &mut self.open else { return Ok(()) };
        Ok(open.files.metrics.push(line, line.time)?)
    }

    fn histograms(&mut self, line: &HistogramLine<'_>) -> Result<(), BoxError> {
        let Some(open) = &mut self.open else { return Ok(()) };
        open.files.histograms.push(line, line.time)
    }

    fn updates(&mut self, touched: &[GradientChange], time: f64) -> Result<(), BoxError> {
        let Some(open) = &mut self.open else { return Ok(()) };
        touched.iter().try_for_each(|touched| open.files.updates.push(touched, time))
    }

    fn happened(&mut self, entry: Entry) -> Result<(), BoxError> {
        let Some(open) = &mut self.open else {
            self.waiting.push(entry);
            return Ok(());
        };
        open.push(entry)
    }

    fn weights(&mut self, weights: &TensorMap) -> Result<(), BoxError> {
        let Some(open) = &self.open else { return Ok(()) };
        let path = open.path().join("weights.safetensors");
        let content = weights.as_file()?;
        Ok(write_durably(&path, |file| content.write_to(file)).map_err(cannot("write", &path))?)
    }

    fn flush(&mut self) -> Result<(), BoxError> {
        let Some(open) = &mut self.open else { return Ok(()) };
        open.files.flush()?;
        self.untold.take().map_or(Ok(()), Err)
    }

    fn end(&mut self, ending: &Ending<'_>) -> Result<(), BoxError> {
        self.waiting.clear();
        let Some(open) = &mut self.open else { return Ok(()) };
        let Ending { stage, outcome, progress, time, .. } = ending;
        let what = Happening::End { stage: *stage, outcome: (*outcome).clone() };
        let end = Entry { step: progress.step, epoch: progress.epoch, time: *time, what };
        let told = open.push(end);
        let flushed = open.files.flush().and_then(|()| open.files.sync());
        let is_the_run = *stage == open.made_for;
        let directory = open.path().to_owned();
        open.record.note(ending, &directory, is_the_run, self.plan.then_test);
        let written = open.write_record();
        told?;
        flushed?;
        written?;
        self.untold.take().map_or(Ok(()), Err)
    }

    fn lost(&self) -> u64 {
        self.lost + self.open.as_ref().map_or(0, |open| open.files.lost())
    }

    fn marks(&mut self) -> Result<Vec<FilePosition>, BoxError> {
        let Some(open) = &mut self.open else { return Ok(Vec::new()) };
        // What could not be written is cut off again, so the lengths are right all the same, and a checkpoint without
        // them would lose what was written.
        if let Err(error) = open.files.flush() {
            self.untold.get_or_insert(error.into());
        }
        open.files.positions()
    }

    fn next_place(&mut self) -> Option<Place> {
        // An evaluation may have been first; the training after it is a run of its own all the same.
        self.open.as_ref()?;
        self.lost = self.lost();
        (self.id, self.open, self.resumes) = (new_id(), None, false);
        Some(self.place())
    }
}
