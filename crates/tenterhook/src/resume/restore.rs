//! Going on from a checkpoint.

use std::path::Path;
use std::sync::Arc;

use tenterhook_core::random::Streams;
use tenterhook_core::{Entries, Failure, Stage, Weights};

use crate::call::Call;
use crate::checkpoint::{Contents, PendingPostSave, STATE};
use crate::loops::Who;
use crate::module::Module;

impl<M: Module> Call<'_, M> {
    /// Announces that a checkpoint has been applied.
    pub(crate) fn announce_restored(&mut self) -> Result<(), Failure> {
        let Some(path) = self.resume.to_announce.take() else { return Ok(()) };
        let root = path.parent().unwrap_or_else(|| Path::new("."));
        emit!(self.run, self.module, CheckpointLoaded { path: &path, root });
        Ok(())
    }

    /// Restores the optimizers, which exist only now, and the gradients of a window that had not ended.
    pub(crate) fn restore_optimizers(&mut self) -> Result<(), Failure> {
        let Some((state, gradients)) = self.resume.optimizers.take() else { return Ok(()) };
        self.run.at(Who::Module, "load_optimizer_state");
        let loaded = self.module.load_optimizer_state(&state);
        self.run.checked(loaded)?;
        if !gradients.is_empty() {
            self.run.at(Who::Module, "load_gradients");
            let loaded = self.module.load_gradients(&gradients);
            self.run.checked(loaded)?;
        }
        Ok(())
    }

    /// Restores the admitted checkpoint: the module, the data module, where the run stood, then the hooks.
    pub(crate) fn restore(&mut self) -> Result<(), Failure> {
        let Some((path, mut contents)) = self.resume.admitted.take() else { return Ok(()) };
        let entries = Entries::new(std::mem::take(&mut contents.entries));
        self.run.at(Who::Module, "on_load_checkpoint");
        let told = self.module.on_load_checkpoint(&entries);
        self.run.checked(told)?;
        self.run.at(Who::Module, "load_weights");
        let loaded = self.module.load_weights(&contents.weights);
        self.run.checked(loaded)?;
        (self.resume.to_announce, self.resume.from) = (Some(path.clone()), Some(path));
        if contents.weights_only {
            return Ok(());
        }
        if let Some(saved) = contents.data.as_ref().filter(|_| self.run.checkpointer.data.is_some()) {
            self.run.at(Who::Data, "load_state");
            let loaded = self.data.load_state(saved);
            self.run.checked(loaded)?;
            self.run.checkpointer.data = self.data.state();
        }
        self.restore_run(contents, &entries)
    }

    /// Everything but the weights; the optimizers wait until they exist.
    fn restore_run(&mut self, mut contents: Contents, entries: &Entries) -> Result<(), Failure> {
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
            let roots = run.roots();
            run.checkpointer.announcements.durable = contents.unannounced;
            run.checkpointer.announcements.durable.iter_mut().for_each(|saved| saved.again = true);
            run.checkpointer.announcements.durable.retain(|saved| roots.is_declared(&saved.path));
            let swapped = contents.loops.swapped_by.as_ref().and_then(|hook| contents.hooks.get(hook));
            self.resume.swap_in = swapped.map(|state| Weights(Arc::new(state.tensors.clone())));
            run.weights.by.clone_from(&contents.loops.swapped_by);
            // A save into the directory of a hook that is gone is no longer wanted.
            contents.loops.requested.retain(|requested| requested.save.is_known(&roots));
            let pending =
                contents.loops.requested.iter().filter_map(|requested| requested.save.path.as_ref());
            run.shared.run.pending_checkpoints =
                pending.filter_map(|path| roots.resolve(path).ok()).collect();
            run.restore_loops(contents.loops);
            self.resume.point = Some(contents.resume_point);
        }
        run.shared.elapsed_before = contents.elapsed;
        run.shared.metrics.restore(contents.metrics);
        run.values.losses.restore(contents.losses);
        run.shared.board.restore(contents.board, contents.board_taken);
        run.shared.board.keep_from_observers(contents.board_kept);
        run.shared.streams.replace(Streams::at(&contents.streams));
        emit!(run, self.module, LoadCheckpoint { entries });
        let restored = run.hooks.restore(&contents.runner, &contents.hooks, &run.state.progress, &run.shared);
        restored.map_err(|failure| match &self.resume.from {
            Some(from) => in_state_of(from, failure),
            None => failure,
        })?;
        run.after_event(self.module)
    }
}

/// Names the file that a state was read from.
pub(super) fn in_state_of(checkpoint: &Path, mut failure: Failure) -> Failure {
    failure.error = format!("{} (in {})", failure.error, checkpoint.join(STATE).display()).into();
    failure
}
