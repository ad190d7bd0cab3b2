//! Assembling, writing and announcing checkpoints.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tenterhook_core::metrics::MetricsState;
use tenterhook_core::random::Positions;
use tenterhook_core::runner::HookStates;
use tenterhook_core::{BoxError, Entries, Failure, Progress, SaveRequest};

pub use crate::losses::LossesState;
use crate::module::Module;
use crate::running::{Running, Saved, Who};
use crate::session::Session;

/// The version of the format that this program writes.
pub const FORMAT: u32 = 1;

/// The name of the file within a checkpoint's directory.
const STATE: &str = "state.json";

/// Everything a checkpoint holds.
#[derive(Debug, Serialize, Deserialize)]
pub struct Contents {
    /// The version of the format.
    pub format: u32,
    /// Only weights: nothing to resume from.
    pub weights_only: bool,
    /// Where the run stood.
    pub progress: Progress,
    /// Weights and optimizer state.
    pub module: serde_json::Value,
    /// The states of the hooks, by name.
    pub hooks: HookStates,
    /// What hooks and module added.
    pub entries: std::collections::BTreeMap<String, serde_json::Value>,
    /// The metrics.
    pub metrics: MetricsState,
    /// The losses of the epoch so far.
    pub losses: LossesState,
    /// The board.
    pub board: std::collections::BTreeMap<String, serde_json::Value>,
    /// Where the random streams stood.
    pub streams: Positions,
}

impl<M: Module> Running<M> {
    /// Assembles and writes a checkpoint: every hook's state, `on_save_checkpoint` of every hook, then
    /// of the module.
    pub(crate) fn save(&mut self, module: &mut M, request: &SaveRequest) -> Result<(), Failure> {
        let weights_only = request.weights_only;
        let mut hooks = HookStates::new();
        let entries = Entries::default();
        if !weights_only {
            hooks = self.hooks.states(&self.progress)?;
            emit!(self, module, SaveCheckpoint { entries: &entries });
        }
        self.at(Who::Module, "on_save_checkpoint");
        let told = module.on_save_checkpoint(&entries);
        self.checked(told)?;
        self.at(Who::Module, "state");
        let state = module.state(weights_only);
        let state = self.checked(state)?;
        self.at(Who::Trainer, "save");
        let contents = (|| -> Result<Contents, BoxError> {
            Ok(Contents {
                format: FORMAT,
                weights_only,
                progress: self.progress,
                module: state,
                hooks,
                entries: entries.into_map(),
                metrics: self.shared.metrics.state(),
                losses: self.losses.state(),
                board: self.shared.board.to_json()?,
                streams: self.shared.streams.borrow().positions(),
            })
        })();
        let contents = self.checked(contents)?;
        let path = self.path_of(request);
        let written = write(&path, &contents).map_err(|error| cannot("write", &path, &error));
        self.checked(written)?;
        for old in request
            .replaces
            .iter()
            .map(|old| self.shared.run.checkpoints.join(old))
            .filter(|old| *old != path)
        {
            let removed = remove(&old).map_err(|error| cannot("remove", &old, &error));
            self.checked(removed)?;
        }
        if let Some(link) = &request.link {
            let link = self.shared.run.checkpoints.join(link);
            let linked = relink(&link, &path).map_err(|error| cannot("link", &link, &error));
            self.checked(linked)?;
        }
        self.saved.push(Saved { step: self.progress.step, path });
        Ok(())
    }

    fn path_of(&self, request: &SaveRequest) -> PathBuf {
        let Progress { epoch, step, .. } = self.progress;
        let name = request.path.clone().unwrap_or_else(|| format!("epoch={epoch}-step={step}").into());
        self.shared.run.checkpoints.join(name)
    }
}

impl<M: Module> Session<'_, M> {
    /// Announces the checkpoints that have become durable, at a step boundary.
    pub(crate) fn announce_checkpoints(&mut self) -> Result<(), Failure> {
        if self.run.saved.is_empty() {
            return Ok(());
        }
        for saved in std::mem::take(&mut self.run.saved) {
            emit!(
                self.run,
                self.module,
                CheckpointSaved {
                    saved_step: saved.step,
                    path: &saved.path,
                    root: &self.run.shared.run.checkpoints,
                }
            );
        }
        Ok(())
    }

    /// Announces that a checkpoint has been applied.
    pub(crate) fn announce_restored(&mut self) -> Result<(), Failure> {
        let Some(path) = self.restored.take() else { return Ok(()) };
        let root = path.parent().unwrap_or_else(|| Path::new("."));
        emit!(self.run, self.module, CheckpointLoaded { path: &path, root });
        Ok(())
    }

    /// Restores a checkpoint: module, data position, hooks, in that order.
    pub(crate) fn restore(&mut self) -> Result<(), Failure> {
        let Some(path) = self.restore_from.take() else { return Ok(()) };
        self.run.at(Who::Trainer, "restore");
        let contents = read(&path);
        let contents = self.run.checked(contents)?;
        let entries = Entries::new(contents.entries);
        self.run.at(Who::Module, "on_load_checkpoint");
        let told = self.module.on_load_checkpoint(&entries);
        self.run.checked(told)?;
        self.run.at(Who::Module, "load_state");
        let loaded = self.module.load_state(&contents.module);
        self.run.checked(loaded)?;
        self.restored = Some(path);
        if contents.weights_only {
            return Ok(());
        }
        self.run.progress = next_unseen(contents.progress);
        self.run.shared.metrics.restore(contents.metrics);
        self.run.losses.restore(contents.losses);
        self.run.shared.board.restore(contents.board);
        self.run.shared.streams.replace(tenterhook_core::random::Streams::at(&contents.streams));
        emit!(self.run, self.module, LoadCheckpoint { entries: &entries });
        self.run.hooks.load_states(&contents.hooks, &self.run.progress)
    }
}

/// Where training goes on: a checkpoint of a finished epoch continues with the next one.
fn next_unseen(progress: Progress) -> Progress {
    if progress.epochs_done > progress.epoch {
        Progress { epoch: progress.epoch + 1, batches: 0, ..progress }
    } else {
        progress
    }
}

fn cannot(what: &str, path: &Path, error: &std::io::Error) -> BoxError {
    format!("cannot {what} checkpoint {}: {error}", path.display()).into()
}

/// Writes a checkpoint whole or not at all: to a temporary name, synced, renamed.
fn write(path: &Path, contents: &Contents) -> std::io::Result<()> {
    let parent = path.parent().unwrap_or_else(|| Path::new("."));
    fs::create_dir_all(parent)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let unfinished = parent.join(format!(".{name}.unfinished"));
    remove(&unfinished)?;
    fs::create_dir(&unfinished)?;
    let mut file = File::create(unfinished.join(STATE))?;
    serde_json::to_writer_pretty(&mut file, contents)?;
    file.write_all(b"\n")?;
    file.sync_all()?;
    remove(path)?;
    fs::rename(&unfinished, path)?;
    File::open(parent)?.sync_all()
}

/// Removes a checkpoint, or a link to one. That somebody else has done so already is no error.
fn remove(path: &Path) -> std::io::Result<()> {
    match path.symlink_metadata() {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Points a link at a checkpoint, replacing whatever stood there.
fn relink(link: &Path, checkpoint: &Path) -> std::io::Result<()> {
    let target = match (checkpoint.parent(), checkpoint.file_name()) {
        (parent, Some(name)) if parent == link.parent() => PathBuf::from(name),
        _ => checkpoint.canonicalize()?,
    };
    remove(link)?;
    std::os::unix::fs::symlink(target, link)
}

/// Reads a checkpoint.
pub fn read(path: &Path) -> Result<Contents, BoxError> {
    let file = path.join(STATE);
    let text = fs::read_to_string(&file).map_err(|error| cannot("read", &file, &error))?;
    let contents: Contents = serde_json::from_str(&text)
        .map_err(|error| format!("checkpoint {} is damaged: {error}", file.display()))?;
    if contents.format > FORMAT {
        let (found, known) = (contents.format, FORMAT);
        return Err(format!(
            "checkpoint {} has format {found}, this program reads up to {known}; use a newer one",
            file.display()
        )
        .into());
    }
    Ok(contents)
}
