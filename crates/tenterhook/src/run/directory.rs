//! The run directory: `runs/<run-id>/`, and `runs/latest` that points at the newest.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;
use tenterhook_core::update::Touched;
use tenterhook_core::{BoxError, Stage};

use super::lines::Lines;
use super::record::{RunRecord, write_whole};
use super::{
    Beginning, Ending, Entry, Happening, HistogramLine, Introduction, Line, Place, Recorder, new_id,
};
use crate::tensors::TensorMap;

/// What a run directory needs to know beyond what the trainer knows. Nothing is made before training
/// really begins.
#[derive(Clone, Debug, Default)]
pub struct RunDirectoryPlan {
    /// The directory of all runs, such as `runs`.
    pub runs_dir: PathBuf,
    /// The run's id; unset, a new one.
    pub id: Option<String>,
    /// The resolved configuration, which becomes `config.toml`.
    pub config: String,
    /// The configuration's hash; unset, that of the text, and without a text that of the trainer's settings.
    pub config_hash: Option<String>,
    /// The task's name.
    pub task: Option<String>,
    /// The device, as it stands in `run.json` and in the events.
    pub device: Option<String>,
    /// The engine and its version, such as `burn 0.22.1`.
    pub engine: Option<String>,
    /// The command line.
    pub command: Vec<String>,
    /// An evaluation without a training before it gets a directory, too.
    pub for_evaluations: bool,
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
    /// What happened before it began.
    waiting: Vec<Entry>,
    open: Option<Open>,
    /// What it lost in earlier runs.
    lost: u64,
    /// Why `latest` does not point at it.
    unlinked: Option<String>,
}

/// A directory that exists.
struct Open {
    path: PathBuf,
    record: RunRecord,
    metrics: Lines,
    events: Lines,
    histograms: Later,
    updates: Later,
    /// The call that it was made for.
    made_for: Stage,
}

impl Open {
    fn flush(&mut self) -> std::io::Result<()> {
        let later = self.histograms.flush().and(self.updates.flush());
        self.metrics.flush().and(self.events.flush()).and(later)
    }

    fn lost(&self) -> u64 {
        self.metrics.lost() + self.events.lost() + self.histograms.lost() + self.updates.lost()
    }
}

/// A file that is made when its first line is written.
struct Later {
    path: PathBuf,
    lines: Option<Lines>,
}

impl Later {
    fn at(path: PathBuf) -> Later {
        Later { path, lines: None }
    }

    fn push(&mut self, line: &impl Serialize, time: f64) -> Result<(), BoxError> {
        let lines = match &mut self.lines {
            Some(lines) => lines,
            unmade => unmade.insert(Lines::append_to(&self.path).map_err(cannot("open", &self.path))?),
        };
        Ok(lines.push(line, time)?)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.lines.as_mut().map_or(Ok(()), Lines::flush)
    }

    fn lost(&self) -> u64 {
        self.lines.as_ref().map_or(0, Lines::lost)
    }
}

fn cannot(what: &str, path: &Path) -> impl FnOnce(std::io::Error) -> String {
    move |error| format!("cannot {what} {}: {error}", path.display())
}

impl RunDirectory {
    /// One that will be made by this plan.
    #[must_use]
    pub fn new(plan: RunDirectoryPlan) -> RunDirectory {
        let id = plan.id.clone().unwrap_or_else(new_id);
        RunDirectory { plan, id, waiting: Vec::new(), open: None, lost: 0, unlinked: None }
    }

    /// Where it will be.
    #[must_use]
    pub fn place(&self) -> Place {
        let directory = self.plan.runs_dir.join(&self.id);
        Place { id: self.id.clone(), checkpoints: directory.join("checkpoints"), directory }
    }

    /// Makes the directory with its first files, whole or not at all.
    fn create(plan: &RunDirectoryPlan, id: &str, record: RunRecord, stage: Stage) -> Result<Open, BoxError> {
        let runs = &plan.runs_dir;
        // What cannot be made is told about where the user named it, not under a temporary name.
        let no_place = |error: std::io::Error| {
            format!(
                "cannot make a run directory in {}: {error}; make it writable, or choose another `runs_dir`",
                runs.display()
            )
        };
        fs::create_dir_all(runs).map_err(no_place)?;
        let (path, unfinished) = (runs.join(id), runs.join(format!(".{id}.unfinished")));
        let made = || -> Result<(), BoxError> {
            fs::create_dir(&unfinished).map_err(no_place)?;
            fs::create_dir(unfinished.join("checkpoints")).map_err(cannot("make", &unfinished))?;
            for (file, text) in
                [("config.toml", plan.config.as_bytes()), ("metrics.jsonl", b""), ("events.jsonl", b"")]
            {
                write_whole(&unfinished.join(file), text).map_err(cannot("write", &path.join(file)))?;
            }
            record.write(&unfinished.join("run.json")).map_err(cannot("write", &path.join("run.json")))?;
            fs::rename(&unfinished, &path).map_err(cannot("make", &path))?;
            Ok(())
        };
        if let Err(error) = made() {
            // It is the first error that matters.
            let _ = fs::remove_dir_all(&unfinished);
            return Err(error);
        }
        let lines = |file: &str| Lines::append_to(&path.join(file)).map_err(cannot("open", &path.join(file)));
        let opened = lines("metrics.jsonl").and_then(|metrics| Ok((metrics, lines("events.jsonl")?)));
        let (metrics, events) = opened.inspect_err(|_| {
            // Nobody would write an end to it.
            let _ = fs::remove_dir_all(&path);
        })?;
        let [histograms, updates] =
            ["histograms.jsonl", "updates.jsonl"].map(|file| Later::at(path.join(file)));
        Ok(Open { path, record, metrics, events, histograms, updates, made_for: stage })
    }

    fn push(open: &mut Open, mut entry: Entry) -> Result<(), BoxError> {
        if let Happening::Checkpoint { path, .. }
        | Happening::CheckpointFailed { path, .. }
        | Happening::CheckpointRemoved { path } = &mut entry.what
            && let Ok(below) = path.strip_prefix(&open.path)
        {
            *path = below.to_owned();
        }
        open.events.push(&entry, entry.time)?;
        // A hook may decide something at every step; everything else is rare, and may be the last there is.
        if !matches!(entry.what, Happening::Decision { .. }) {
            open.events.flush()?;
        }
        Ok(())
    }
}

/// Points a link at a neighbour, at one stroke.
fn point(link: &Path, to: &str) -> std::io::Result<()> {
    let unfinished = link.with_file_name(format!(".latest-{to}"));
    std::os::unix::fs::symlink(to, &unfinished)?;
    fs::rename(&unfinished, link).inspect_err(|_| {
        let _ = fs::remove_file(&unfinished);
    })
}

impl Recorder for RunDirectory {
    fn begin(&mut self, beginning: &Beginning<'_>) -> Result<(), BoxError> {
        let stage = beginning.stage;
        let resumed_from = beginning.resumed_from.map(Path::to_owned);
        let what = Happening::Start { stage, resumed_from };
        let start = Entry {
            step: beginning.progress.step,
            epoch: beginning.progress.epoch,
            time: beginning.time,
            what,
        };
        if self.open.is_none() {
            if stage != Stage::Fit && !self.plan.for_evaluations {
                return Ok(());
            }
            let record = RunRecord::new(&self.plan, beginning);
            self.open = Some(RunDirectory::create(&self.plan, &self.id, record, stage)?);
            let latest = self.plan.runs_dir.join("latest");
            // The run is whole without it.
            let unlinked = point(&latest, &self.id).map_err(cannot("link", &latest)).err();
            self.unlinked = unlinked.map(|why| format!("{why}; move it away"));
        }
        let Some(open) = &mut self.open else { return Ok(()) };
        for entry in self.waiting.drain(..).chain([start]) {
            RunDirectory::push(open, entry)?;
        }
        Ok(())
    }

    fn metrics(&mut self, line: &Line<'_>) -> Result<(), BoxError> {
        let Some(open) = &mut self.open else { return Ok(()) };
        Ok(open.metrics.push(line, line.time)?)
    }

    fn histograms(&mut self, line: &HistogramLine<'_>) -> Result<(), BoxError> {
        let Some(open) = &mut self.open else { return Ok(()) };
        open.histograms.push(line, line.time)
    }

    fn updates(&mut self, touched: &[Touched], time: f64) -> Result<(), BoxError> {
        let Some(open) = &mut self.open else { return Ok(()) };
        touched.iter().try_for_each(|touched| open.updates.push(touched, time))
    }

    fn lacks(&mut self) -> Option<BoxError> {
        self.unlinked.take().map(BoxError::from)
    }

    fn introduction(&self) -> Option<Introduction> {
        let open = self.open.as_ref()?;
        Some(Introduction::from(&open.record))
    }

    fn happened(&mut self, entry: Entry) -> Result<(), BoxError> {
        let Some(open) = &mut self.open else {
            self.waiting.push(entry);
            return Ok(());
        };
        RunDirectory::push(open, entry)
    }

    fn weights(&mut self, weights: &TensorMap) -> Result<(), BoxError> {
        let Some(open) = &self.open else { return Ok(()) };
        let (unfinished, path) =
            (open.path.join(".weights.unfinished"), open.path.join("weights.safetensors"));
        weights.write(&unfinished)?;
        Ok(fs::rename(&unfinished, &path).map_err(cannot("write", &path))?)
    }

    fn flush(&mut self) -> Result<(), BoxError> {
        let Some(open) = &mut self.open else { return Ok(()) };
        Ok(open.flush()?)
    }

    fn end(&mut self, ending: &Ending<'_>) -> Result<(), BoxError> {
        self.waiting.clear();
        let Some(open) = &mut self.open else { return Ok(()) };
        let Ending { stage, outcome, progress, time, .. } = ending;
        let what = Happening::End { stage: *stage, outcome: (*outcome).clone() };
        let end = Entry { step: progress.step, epoch: progress.epoch, time: *time, what };
        let told = RunDirectory::push(open, end);
        let flushed = open.flush();
        let is_the_run = *stage == open.made_for;
        open.record.note(ending, is_the_run);
        let path = open.path.join("run.json");
        let written = open.record.write(&path).map_err(cannot("write", &path));
        told?;
        flushed?;
        Ok(written?)
    }

    fn lost(&self) -> u64 {
        self.lost + self.open.as_ref().map_or(0, Open::lost)
    }

    fn next_place(&mut self) -> Option<Place> {
        // An evaluation may have been first; the training after it is a run of its own all the same.
        self.open.as_ref()?;
        self.lost = self.lost();
        (self.id, self.open) = (new_id(), None);
        Some(self.place())
    }
}
