//! The checkpoints of a run, from `events.jsonl` and from its directory.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tenterhook::run::reading::EventLog;
use tenterhook::run::{JournalEvent, Run};

use crate::error::CommandError;

/// A checkpoint in the journal or in the directory.
#[derive(Debug, PartialEq)]
pub(super) struct SavedCheckpoint {
    /// Relative to the run directory if the checkpoint is inside it.
    pub(super) path: PathBuf,
    /// The step when it was saved; unknown for links, and for checkpoints that are not in the journal.
    pub(super) step: Option<u64>,
    pub(super) weights_only: bool,
    pub(super) state: CheckpointState,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CheckpointState {
    Present,
    /// A symbolic link to another checkpoint.
    Link(PathBuf),
    /// Removed by the run because of a better or newer one.
    Removed,
    /// Missing, although the run did not remove it.
    Missing,
}

/// The links to checkpoints, such as `latest`.
fn links(run: &Run) -> Result<Vec<(PathBuf, CheckpointState)>, CommandError> {
    let root = run.directory.join("checkpoints");
    let entries = match std::fs::read_dir(&root) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries
            .and_then(Iterator::collect::<io::Result<Vec<_>>>)
            .map_err(CommandError::cannot("read", &root))?,
    };
    let mut links = Vec::new();
    for path in entries.into_iter().map(|entry| entry.path()).filter(|path| path.is_symlink()) {
        let to = std::fs::read_link(&path).map_err(CommandError::cannot("read", &path))?;
        if is_directory(&path)?
            && let Ok(name) = path.strip_prefix(&run.directory)
        {
            links.push((name.to_owned(), CheckpointState::Link(to)));
        }
    }
    links.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(links)
}

/// Whether a path is a directory. An invalid path is not; other errors are reported.
fn is_directory(path: &Path) -> Result<bool, CommandError> {
    use ErrorKind::{InvalidFilename, InvalidInput, NotADirectory, NotFound};
    match path.metadata() {
        Ok(found) => Ok(found.is_dir()),
        Err(error) if matches!(error.kind(), NotFound | NotADirectory | InvalidInput | InvalidFilename) => {
            Ok(false)
        }
        Err(error) => Err(CommandError::cannot("read", path)(error)),
    }
}

impl SavedCheckpoint {
    /// All checkpoints of the journal in order, then those that are only in the directory.
    pub(super) fn all(run: &Run, event_log: &EventLog) -> Result<Vec<SavedCheckpoint>, CommandError> {
        let mut all: Vec<SavedCheckpoint> = Vec::new();
        for entry in &event_log.entries {
            match &entry.what {
                JournalEvent::Checkpoint { path, weights_only } => {
                    all.retain(|saved| saved.path != *path);
                    let is_present = is_directory(&run.directory.join(path))?;
                    let state = if is_present { CheckpointState::Present } else { CheckpointState::Missing };
                    let (path, step) = (path.clone(), Some(entry.step));
                    all.push(SavedCheckpoint { path, step, weights_only: *weights_only, state });
                }
                JournalEvent::CheckpointRemoved { path } => {
                    let path = path.strip_prefix(&run.directory).unwrap_or(path);
                    for saved in all.iter_mut().filter(|saved| saved.path == path) {
                        saved.state = CheckpointState::Removed;
                    }
                }
                _ => {}
            }
        }
        let present = run.checkpoints()?.into_iter().map(|path| (path, CheckpointState::Present));
        for (path, state) in present.chain(links(run)?) {
            if !all.iter().any(|saved| saved.path == path) {
                all.push(SavedCheckpoint { path, step: None, weights_only: false, state });
            }
        }
        Ok(all)
    }

    pub(super) fn to_json(&self) -> Value {
        let (state, to): (_, Option<&Path>) = match &self.state {
            CheckpointState::Present => ("present", None),
            CheckpointState::Link(to) => ("link", Some(to)),
            CheckpointState::Removed => ("removed", None),
            CheckpointState::Missing => ("missing", None),
        };
        let SavedCheckpoint { path, step, weights_only, .. } = self;
        json!({ "path": path, "step": step, "weights_only": weights_only, "state": state, "to": to })
    }
}
