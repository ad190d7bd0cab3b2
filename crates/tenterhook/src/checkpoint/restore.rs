//! Going on from a checkpoint.

use std::path::Path;

use tenterhook_core::random::Streams;
use tenterhook_core::runner::HookStates;
use tenterhook_core::{Entries, Failure, Progress, Stage};

use super::read;
use crate::module::Module;
use crate::running::Who;
use crate::session::Session;

impl<M: Module> Session<'_, M> {
    /// Announces that a checkpoint has been applied.
    pub(crate) fn announce_restored(&mut self) -> Result<(), Failure> {
        let Some(path) = self.restored.take() else { return Ok(()) };
        let root = path.parent().unwrap_or_else(|| Path::new("."));
        emit!(self.run, self.module, CheckpointLoaded { path: &path, root });
        Ok(())
    }

    /// Restores the optimizers, which exist only now.
    pub(crate) fn restore_optimizers(&mut self) -> Result<(), Failure> {
        let Some(state) = self.optimizers_to_restore.take() else { return Ok(()) };
        self.run.at(Who::Module, "load_optimizer_state");
        let loaded = self.module.load_optimizer_state(&state);
        self.run.checked(loaded)
    }

    /// Restores a checkpoint: the module's weights, where the run stood (and with it the data), then the hooks.
    pub(crate) fn restore(&mut self) -> Result<(), Failure> {
        let Some(path) = self.restore_from.take() else { return Ok(()) };
        self.run.at(Who::Trainer, "restore");
        let contents = read(&path);
        let contents = self.run.checked(contents)?;
        let entries = Entries::new(contents.entries);
        self.run.at(Who::Module, "on_load_checkpoint");
        let told = self.module.on_load_checkpoint(&entries);
        self.run.checked(told)?;
        self.run.at(Who::Module, "load_weights");
        let loaded = self.module.load_weights(&contents.weights);
        self.run.checked(loaded)?;
        (self.restored, self.resumed_from) = (Some(path.clone()), Some(path));
        if contents.weights_only {
            return Ok(());
        }
        self.check_hooks(&contents.hooks)?;
        self.optimizers_to_restore = Some(contents.optimizers);
        self.run.progress = next_unseen(contents.progress);
        self.run.shared.elapsed_before = contents.elapsed;
        self.run.shared.metrics.restore(contents.metrics);
        self.run.shared.metrics.set_step(self.run.progress.step);
        self.run.losses.restore(contents.losses);
        self.run.shared.board.restore(contents.board);
        self.run.shared.board.keep_from_observers(contents.board_kept);
        self.run.shared.streams.replace(Streams::at(&contents.streams));
        emit!(self.run, self.module, LoadCheckpoint { entries: &entries });
        self.run.hooks.load_states(&contents.hooks, &self.run.progress)
    }

    /// A hook on one side only would begin anew, or be forgotten, without a word. An evaluation goes on with nothing.
    fn check_hooks(&mut self, saved: &HookStates) -> Result<(), Failure> {
        if self.accepts_other_hooks || self.run.stage != Stage::Fit {
            return Ok(());
        }
        let registered = self.run.hooks.stateful();
        let gone = saved.keys().filter(|name| !registered.contains(name));
        let new = registered.iter().filter(|name| !saved.contains_key(*name));
        let gone = gone.map(|name| format!("`{name}` is in the checkpoint and not registered"));
        let new = new.map(|name| format!("`{name}` is registered and not in the checkpoint"));
        let all: Vec<_> = gone.chain(new).collect();
        if all.is_empty() {
            return Ok(());
        }
        self.run.at(Who::Trainer, "restore");
        let error = format!(
            "the hooks are not those of the checkpoint: {}; register the same ones, or accept it with \
             `Trainer::accepting_other_hooks`",
            all.join(", ")
        );
        Err(self.run.failed(error.into(), false))
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
