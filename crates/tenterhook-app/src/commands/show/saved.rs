//! The checkpoints of a run: what `events.jsonl` says of them, and what is there.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tenterhook::run::reading::EventLog;
use tenterhook::run::{JournalEvent, Run};

use crate::error::CommandError;

/// A checkpoint that was saved, or is there.
#[derive(Debug, PartialEq)]
pub(super) struct Saved {
    /// Below the run directory, if it is there.
    pub(super) path: PathBuf,
    /// When it was saved; a link, or one that somebody put there, has none.
    pub(super) step: Option<u64>,
    pub(super) weights_only: bool,
    pub(super) state: State,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    There,
    /// It points at another one.
    Link(PathBuf),
    /// The run removed it for a better or newer one.
    Removed,
    /// Nobody said that it was removed.
    Missing,
}

/// The links beside the checkpoints, such as `latest`, that lead to one.
fn links(run: &Run) -> Result<Vec<(PathBuf, State)>, CommandError> {
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
            links.push((name.to_owned(), State::Link(to)));
        }
    }
    links.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(links)
}

/// Whether a directory has this name. A name that no file can have is one that no directory has.
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

impl Saved {
    /// In the order in which they were saved, then those that only the directory knows.
    pub(super) fn all(run: &Run, event_log: &EventLog) -> Result<Vec<Saved>, CommandError> {
        let mut all: Vec<Saved> = Vec::new();
        for entry in &event_log.entries {
            match &entry.what {
                JournalEvent::Checkpoint { path, weights_only } => {
                    all.retain(|saved| saved.path != *path);
                    let state =
                        if is_directory(&run.directory.join(path))? { State::There } else { State::Missing };
                    let (path, step) = (path.clone(), Some(entry.step));
                    all.push(Saved { path, step, weights_only: *weights_only, state });
                }
                JournalEvent::CheckpointRemoved { path } => {
                    let path = path.strip_prefix(&run.directory).unwrap_or(path);
                    for saved in all.iter_mut().filter(|saved| saved.path == path) {
                        saved.state = State::Removed;
                    }
                }
                _ => {}
            }
        }
        let there = run.checkpoints()?.into_iter().map(|path| (path, State::There));
        for (path, state) in there.chain(links(run)?) {
            if !all.iter().any(|saved| saved.path == path) {
                all.push(Saved { path, step: None, weights_only: false, state });
            }
        }
        Ok(all)
    }

    pub(super) fn is_there(&self) -> bool {
        matches!(self.state, State::There | State::Link(_))
    }

    pub(super) fn for_programs(&self) -> Value {
        let (state, to): (_, Option<&Path>) = match &self.state {
            State::There => ("there", None),
            State::Link(to) => ("link", Some(to)),
            State::Removed => ("removed", None),
            State::Missing => ("missing", None),
        };
        let Saved { path, step, weights_only, .. } = self;
        json!({ "path": path, "step": step, "weights_only": weights_only, "state": state, "to": to })
    }
}
