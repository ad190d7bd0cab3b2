//! Reading run directories.
//!
//! Every prefix of a run's files can be read, so a run that is running or was killed is read as far as it was
//! written. A damaged run does not hide the others.

mod fields;
mod logs;
mod runs;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use tenterhook_files::{SMALL_FILE, read_bounded, read_bounded_text};

pub use fields::{FIELDS, RunFields, flatten_config, hook_names};
pub use logs::{Curves, EventLog, Point};
pub use runs::Runs;

use super::lock::{LOCK, read_holder};
use super::record::{FORMAT, RunRecord, RunStatus};
use super::startup;
use crate::checkpoint::CheckpointError;

/// A run, read from its directory.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Run {
    /// The name of its directory: its id, unless the directory was renamed.
    pub name: String,
    /// Its directory.
    pub directory: PathBuf,
    /// The content of `run.json`. For a run without an end, steps, epochs, seconds and metrics come from the last
    /// lines of `metrics.jsonl`, and the status is `killed` if the run has no [`holder`](super::holder).
    pub record: RunRecord,
}

/// Why a run cannot be read or found.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The system cannot read it.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        source: Arc<io::Error>,
    },
    /// The file is damaged.
    #[error("{} is damaged: {why}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The problem.
        why: String,
    },
    /// A newer version wrote it.
    #[error("{} is of format {format}, and this version reads up to {FORMAT}; use a newer one", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        format: u64,
    },
    /// The directory is not a run of this program; another tool may have created it.
    #[error("{} is not a tenterhook run: it has no run.json of this program", path.display())]
    NotARun {
        /// The directory.
        path: PathBuf,
    },
    /// There is no such directory of runs.
    #[error("there is no directory {}; train something first, or name the directory of the runs", path.display())]
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
    /// There is no such run.
    #[error("no run is called `{wanted}`; there are: {there_are}")]
    Unknown {
        /// The requested name.
        wanted: String,
        /// The existing runs, newest first.
        there_are: String,
    },
    /// Several runs match.
    #[error("`{wanted}` could be any of: {candidates}; write more of its id")]
    Ambiguous {
        /// The requested name.
        wanted: String,
        /// The matching runs, newest first.
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
    /// Reads the run in this directory; links are followed.
    pub fn read(directory: impl AsRef<Path>) -> Result<Run, ReadError> {
        let directory = directory.as_ref();
        let pending = startup::pending_latest(directory).map_err(ReadError::unreadable(directory))?;
        let mut directory = pending.unwrap_or_else(|| directory.to_owned());
        let real = directory.canonicalize().map_err(ReadError::unreadable(&directory))?;
        let name = real.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if directory.is_symlink() {
            // Keep the path as the user wrote it if the link leads to a neighbour, as `latest` does.
            let neighbour = directory.with_file_name(&name);
            directory = if neighbour.is_dir() { neighbour } else { real };
        }
        let path = directory.join("run.json");
        let mut record = read_record(&path)?;
        let held = || read_holder(&directory).map_err(ReadError::unreadable(&directory.join(LOCK)));
        let is_dead = record.status == RunStatus::Running && held()?.is_none();
        if is_dead {
            // It may have written its end before it released the lock.
            record = read_record(&path)?;
        }
        if record.id.is_empty() {
            record.id.clone_from(&name);
        }
        let mut run = Run { name, directory, record };
        if run.record.status == RunStatus::Running {
            run.update_from_metrics()?;
            run.record.status = if is_dead { RunStatus::Killed } else { RunStatus::Running };
        }
        Ok(run)
    }

    /// Updates the record of a run that has not ended from the last lines of its metrics, as `run.json` is only
    /// written at the start and at the end.
    fn update_from_metrics(&mut self) -> Result<(), ReadError> {
        let path = self.directory.join("metrics.jsonl");
        let record = &mut self.record;
        for line in logs::last(&path)? {
            record.steps = record.steps.max(line.step);
            record.epochs = record.epochs.max(line.epoch + u64::from(line.epoch_end));
            record.seconds = Some(record.seconds.map_or(line.time, |seconds| seconds.max(line.time)));
            record.metrics.extend(line.metrics);
        }
        Ok(())
    }

    /// The logged metrics, as curves.
    pub fn curves(&self) -> Result<Curves, ReadError> {
        Curves::read(&self.directory.join("metrics.jsonl"))
    }

    /// The journal.
    pub fn event_log(&self) -> Result<EventLog, ReadError> {
        EventLog::read(&self.directory.join("events.jsonl"))
    }

    /// The resolved configuration; empty if the run has none.
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

    /// The paths of the checkpoints below `checkpoints/`, whole or not, sorted, without links to them.
    pub fn checkpoints(&self) -> Result<Vec<PathBuf>, CheckpointError> {
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
        // The file of another tool.
        None => Err(ReadError::NotARun { path: path.parent().unwrap_or(path).to_owned() }),
        Some(format) if format > u64::from(FORMAT) => Err(ReadError::Newer { path: path.to_owned(), format }),
        Some(_) => serde_json::from_value(value).map_err(|error| ReadError::damaged(path, &error)),
    }
}
