//! Reading runs back: what stands below a runs directory, and what each run left there.
//!
//! Any prefix of a run's files is a valid run: a run that is under way, or was killed, reads as far as it
//! was written. One damaged run never hides the others.

mod facts;
mod lines;
mod runs;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use tenterhook_files::{SMALL_FILE, read_bounded, read_bounded_text};

pub use facts::{FIELDS, Facts, flat, hook_names};
pub use lines::{Curves, Happenings, Point};
pub use runs::Runs;

use super::lock::{LOCK, read_holder};
use super::record::{FORMAT, RunRecord, RunStatus};
use super::starting;
use crate::checkpoint::Unreadable;

/// A run, as its directory tells it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Run {
    /// The name of its directory: its id, unless somebody renamed it.
    pub name: String,
    /// Its directory.
    pub directory: PathBuf,
    /// What `run.json` holds. Of a run without an end, steps, epochs, seconds and metrics are those of the
    /// last lines of `metrics.jsonl`. One that nobody [holds](super::holder) was killed.
    pub record: RunRecord,
}

/// Why a run cannot be read or found.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The system does not let us.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// What.
        path: PathBuf,
        /// Why.
        source: Arc<io::Error>,
    },
    /// It is not what it should be.
    #[error("{} is damaged: {why}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// It was written by a newer version.
    #[error("{} is of format {format}, and this version reads up to {FORMAT}; use a newer one", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        format: u64,
    },
    /// It is a directory, and no run of ours: another tool may have made it.
    #[error("{} is not a tenterhook run: it holds no run.json of ours", path.display())]
    NotARun {
        /// The directory.
        path: PathBuf,
    },
    /// There is no such directory of runs.
    #[error("there is no directory {}; train something first, or say where the runs are", path.display())]
    NoDirectory {
        /// The directory.
        path: PathBuf,
    },
    /// The directory holds no runs.
    #[error("there are no runs in {}", path.display())]
    NoRuns {
        /// The directory.
        path: PathBuf,
    },
    /// No run is called so.
    #[error("no run is called `{wanted}`; there are: {there_are}")]
    Unknown {
        /// What was asked for.
        wanted: String,
        /// The runs there are, newest first.
        there_are: String,
    },
    /// Several runs could be meant.
    #[error("`{wanted}` could be any of: {candidates}; write more of its id")]
    Ambiguous {
        /// What was asked for.
        wanted: String,
        /// The runs that fit, newest first.
        candidates: String,
    },
}

impl ReadError {
    pub(super) fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> ReadError {
        move |source| ReadError::Unreadable { path: path.to_owned(), source: Arc::new(source) }
    }

    pub(super) fn damaged(path: &Path, why: &(impl ToString + ?Sized)) -> ReadError {
        ReadError::Damaged { path: path.to_owned(), why: why.to_string() }
    }
}

impl Run {
    /// The run in this directory, or behind this link to one.
    pub fn read(directory: impl AsRef<Path>) -> Result<Run, ReadError> {
        let directory = directory.as_ref();
        let pending = starting::pending_latest(directory).map_err(ReadError::unreadable(directory))?;
        let mut directory = pending.unwrap_or_else(|| directory.to_owned());
        let real = directory.canonicalize().map_err(ReadError::unreadable(&directory))?;
        let name = real.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if directory.is_symlink() {
            // As people write it, if the link points at a neighbour, as `latest` does.
            let neighbour = directory.with_file_name(&name);
            directory = if neighbour.is_dir() { neighbour } else { real };
        }
        let path = directory.join("run.json");
        let mut record = read_record(&path)?;
        let held = || read_holder(&directory).map_err(ReadError::unreadable(&directory.join(LOCK)));
        let nobody = record.status == RunStatus::Running && held()?.is_none();
        if nobody {
            // It may have written its end in between.
            record = read_record(&path)?;
        }
        if record.id.is_empty() {
            record.id.clone_from(&name);
        }
        let mut run = Run { name, directory, record };
        if run.record.status == RunStatus::Running {
            run.catch_up()?;
            run.record.status = if nobody { RunStatus::Killed } else { RunStatus::Running };
        }
        Ok(run)
    }

    /// `run.json` is written at the beginning and at the end; in between, the metrics know more. Only the last
    /// lines are read: a long run has very many.
    fn catch_up(&mut self) -> Result<(), ReadError> {
        let path = self.directory.join("metrics.jsonl");
        let record = &mut self.record;
        for line in lines::last(&path)? {
            record.steps = record.steps.max(line.step);
            record.epochs = record.epochs.max(line.epoch + u64::from(line.epoch_end));
            record.seconds = Some(record.seconds.map_or(line.time, |seconds| seconds.max(line.time)));
            record.metrics.extend(line.metrics);
        }
        Ok(())
    }

    /// What was logged, as curves.
    pub fn curves(&self) -> Result<Curves, ReadError> {
        Curves::read(&self.directory.join("metrics.jsonl"))
    }

    /// What happened besides numbers.
    pub fn happenings(&self) -> Result<Happenings, ReadError> {
        Happenings::read(&self.directory.join("events.jsonl"))
    }

    /// The resolved configuration that it ran with; empty where none was written.
    pub fn config(&self) -> Result<toml::Table, ReadError> {
        let path = self.directory.join("config.toml");
        match read_bounded_text(&path, SMALL_FILE) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(toml::Table::new()),
            Err(error) => Err(ReadError::unreadable(&path)(error)),
            Ok(text) => text.parse().map_err(|error: toml::de::Error| {
                let line = error.span().map(|span| text[..span.start.min(text.len())].lines().count().max(1));
                let line = line.map(|line| format!(" in line {line}")).unwrap_or_default();
                ReadError::damaged(&path, &format!("{}{line}", error.message()))
            }),
        }
    }

    /// The checkpoints below `checkpoints/`, whole or not, in order of their path; links to them are not named.
    pub fn checkpoints(&self) -> Result<Vec<PathBuf>, Unreadable> {
        let all = crate::checkpoint::paths(&self.directory.join("checkpoints"))?;
        let mut found: Vec<_> = all
            .into_iter()
            .map(|path| path.strip_prefix(&self.directory).map_or_else(|_| path.clone(), Path::to_owned))
            .collect();
        found.sort();
        Ok(found)
    }
}

pub(super) fn read_record(path: &Path) -> Result<RunRecord, ReadError> {
    let text = read_bounded(path, SMALL_FILE).map_err(|error| match (error.kind(), path.parent()) {
        (io::ErrorKind::NotFound, Some(directory)) => ReadError::NotARun { path: directory.to_owned() },
        _ => ReadError::unreadable(path)(error),
    })?;
    let value: Value = serde_json::from_slice(&text).map_err(|error| ReadError::damaged(path, &error))?;
    match value.get("format").and_then(Value::as_u64) {
        // Another tool's, which is left alone.
        None => Err(ReadError::NotARun { path: path.parent().unwrap_or(path).to_owned() }),
        Some(format) if format > u64::from(FORMAT) => Err(ReadError::Newer { path: path.to_owned(), format }),
        Some(_) => serde_json::from_value(value).map_err(|error| ReadError::damaged(path, &error)),
    }
}
