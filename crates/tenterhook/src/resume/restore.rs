//! Restoring a checkpoint.

use std::path::Path;
use std::sync::Arc;

use tenterhook_core::random::RandomStreams;
use tenterhook_core::{CheckpointEntries, Failure, Stage, Weights};

use crate::call::Call;
use crate::checkpoint::{CheckpointContents, PendingPostSave, Roots, STATE};
use crate::module::Module;

impl<M: Module> Call<'_, M> {
    /// Delivers `on_checkpoint_loaded`.
    pub(crate) fn announce_restored(&mut self) -> Result<(), Failure> {
        let Some(path) = self.resume.to_announce.take() else { return Ok(()) };
        let root = path.parent().unwrap_or_else(|| Path::new("."));
        emit!(self.run, self.module, CheckpointLoaded { path: &path, root });
        Ok(())
    }

    /// Restores the optimizers, which now exist, and the gradients of an open accumulation window.
    pub(crate) fn restore_optimizers(&mut self) -> Result<(), Failure> {
        let Some((state, gradients)) = self.resume.optimizers.take() else { return Ok(()) };
        call!(self.run, Module, "load_optimizer_state", self.module.load_optimizer_state(&state))?;
        if !gradients.is_empty() {
            call!(self.run, Module, "load_gradients", self.module.load_gradients(&gradients))?;
        }
        Ok(())
    }

    /// Restores the validated checkpoint: the module, the data module, the state of the run, then the hooks.
    pub(crate) fn restore(&mut self) -> Result<(), Failure> {
        let Some((path, mut contents)) = self.resume.validated.take() else { return Ok(()) };
        let entries = CheckpointEntries::new(std::mem::take(&mut contents.entries));
        call!(self.run, Module, "on_load_checkpoint", self.module.on_load_checkpoint(&entries))?;
        call!(self.run, Module, "load_weights", self.module.load_weights(&contents.weights))?;
        (self.resume.to_announce, self.resume.from) = (Some(path.clone()), Some(path));
        if contents.weights_only {
            return Ok(());
        }
        if let Some(saved) = contents.data.as_ref().filter(|_| self.run.checkpointer.data.is_some()) {
            call!(self.run, Data, "load_state", self.data.load_state(saved))?;
            self.run.checkpointer.data = self.data.state();
        }
        self.restore_run(contents, &entries)
    }

    /// Restores everything except the weights. The optimizers are restored when they exist.
    fn restore_run(
        &mut self,
        mut contents: CheckpointContents,
        entries: &CheckpointEntries,
    ) -> Result<(), Failure> {
        let run = &mut self.run;
        self.resume.optimizers = Some((contents.optimizers, contents.gradients));
        run.state.progress = contents.progress;
        if run.state.stage == Stage::Fit {
            self.resume.file_positions = contents.file_positions;
            run.checkpointer.number = contents.number;
            run.checkpointer.pending_post_save = self.resume.from.clone().map(|checkpoint| PendingPostSave {
                checkpoint,
                number: contents.number,
                post_save: contents.post_save,
            });
            let roots = Roots::of(&run.shared.run, &run.hooks);
            run.checkpointer.announcements.durable = contents.unannounced;
            run.checkpointer.announcements.durable.iter_mut().for_each(|saved| saved.redelivered = true);
            run.checkpointer.announcements.durable.retain(|saved| roots.is_declared(&saved.path));
            let swapped = contents.loops.swapped_by.as_ref().and_then(|hook| contents.hooks.get(hook));
            self.resume.swap_in = swapped.map(|state| Weights(Arc::new(state.tensors.clone())));
            run.weights.by.clone_from(&contents.loops.swapped_by);
            // Pending saves of removed hooks are dropped.
            contents.loops.requested.retain(|requested| requested.save.is_known(&roots));
            let pending =
                contents.loops.requested.iter().filter_map(|requested| requested.save.path.as_ref());
            run.shared.run.pending_checkpoints =
                pending.filter_map(|path| roots.resolve(path).ok()).collect();
            run.checkpointer.pending = contents.loops.restore(&mut run.state, &mut run.flow);
            self.resume.point = Some(contents.resume_point);
        }
        run.shared.elapsed_before = contents.elapsed;
        run.shared.metrics.restore(contents.metrics);
        run.values.losses.restore(contents.losses);
        run.shared.board.restore(contents.board, contents.board_taken);
        run.shared.board.protect_keys(&contents.board_kept);
        run.shared.streams.replace(RandomStreams::at(&contents.streams));
        emit!(run, self.module, LoadCheckpoint { entries });
        let restored = run.hooks.restore(&contents.runner, &contents.hooks, &run.state.progress, &run.shared);
        restored.map_err(|failure| match &self.resume.from {
            Some(from) => in_state_of(from, failure),
            None => failure,
        })?;
        run.after_event(self.module)
    }
}

/// Adds the file of the state to a failure.
pub(super) fn in_state_of(checkpoint: &Path, mut failure: Failure) -> Failure {
    failure.error = format!("{} (in {})", failure.error, checkpoint.join(STATE).display()).into();
    failure
}
