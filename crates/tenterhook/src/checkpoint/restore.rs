//! Going on from a checkpoint.

use std::path::Path;
use std::sync::Arc;

use tenterhook_core::random::Streams;
use tenterhook_core::{Cursor, Entries, Event, Failure, Stage, Weights};

use super::afterwards::LeftOpen;
use super::contents::Contents;
use super::position::{Place, Position};
use super::store::STATE;
use crate::module::Module;
use crate::running::{Running, Who};
use crate::session::Session;

impl<M: Module> Session<'_, M> {
    /// Announces that a checkpoint has been applied.
    pub(crate) fn announce_restored(&mut self) -> Result<(), Failure> {
        let Some(path) = self.restored.take() else { return Ok(()) };
        let root = path.parent().unwrap_or_else(|| Path::new("."));
        emit!(self.run, self.module, CheckpointLoaded { path: &path, root });
        Ok(())
    }

    /// Restores the optimizers, which exist only now, and the gradients of a window that had not ended.
    pub(crate) fn restore_optimizers(&mut self) -> Result<(), Failure> {
        let Some((state, gradients)) = self.optimizers_to_restore.take() else { return Ok(()) };
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
        let Some((path, mut contents)) = self.admitted.take() else { return Ok(()) };
        let entries = Entries::new(std::mem::take(&mut contents.entries));
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
        if let Some(saved) = contents.data.as_ref().filter(|_| self.run.saves.data.is_some()) {
            self.run.at(Who::Data, "load_state");
            let loaded = self.data.load_state(saved);
            self.run.checked(loaded)?;
            self.run.saves.data = self.data.state();
        }
        self.restore_run(contents, &entries)
    }

    /// Everything but the weights; the optimizers wait until they exist.
    fn restore_run(&mut self, mut contents: Contents, entries: &Entries) -> Result<(), Failure> {
        let run = &mut self.run;
        self.optimizers_to_restore = Some((contents.optimizers, contents.gradients));
        run.progress = contents.progress;
        if run.stage == Stage::Fit {
            let old = contents.position.is_none();
            let mut position = contents.position.unwrap_or_else(|| Position::guessed(&run.progress));
            self.marks = contents.marks;
            run.saves.number = contents.number;
            run.saves.left_open = self.resumed_from.clone().map(|checkpoint| LeftOpen {
                checkpoint,
                number: contents.number,
                afterwards: contents.afterwards,
            });
            let roots = run.roots();
            run.saves.durable = contents.unannounced;
            run.saves.durable.iter_mut().for_each(|saved| saved.again = true);
            run.saves.durable.retain(|saved| roots.knows(&saved.path));
            let swapped = contents.loops.swapped_by.as_ref().and_then(|hook| contents.hooks.get(hook));
            self.to_swap_in = swapped.map(|state| Weights(Arc::new(state.tensors.clone())));
            run.swapped_by.clone_from(&contents.loops.swapped_by);
            // A save into the directory of a hook that is gone is no longer wanted.
            position.saves.retain(|save| save.is_known(&roots));
            contents.loops.asked.retain(|save| save.is_known(&roots));
            run.restore_loops(contents.loops);
            // Format 1 had no loops, and an epoch whose end is told has had its last batch.
            run.batch.is_last |= old && position.place == Place::EpochEnd;
            if !position.place.has_event() {
                run.saves.asked = std::mem::take(&mut run.saves.held);
            }
            self.resumed_at = Some(position);
        }
        run.shared.elapsed_before = contents.elapsed;
        run.shared.metrics.restore(contents.metrics);
        run.losses.restore(contents.losses);
        run.shared.board.restore(contents.board, contents.board_taken);
        run.shared.board.keep_from_observers(contents.board_kept);
        run.shared.streams.replace(Streams::at(&contents.streams));
        emit!(run, self.module, LoadCheckpoint { entries });
        let restored = run.hooks.restore(contents.runner, &contents.hooks, &run.progress, &run.shared);
        restored.map_err(|failure| match &self.resumed_from {
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

impl<M: Module> Running<M> {
    /// Where the delivery of an event goes on that a checkpoint was taken in, after what else was to be saved then.
    /// `None` when nobody is left.
    pub(crate) fn rest_of(
        &mut self,
        module: &mut M,
        position: &Position,
        event: Event,
    ) -> Result<Option<Cursor>, Failure> {
        self.hooks.take_up_event(&self.shared);
        let held = std::mem::take(&mut self.saves.held);
        self.saves.asked.splice(..0, held);
        if !position.saves.is_empty() {
            self.save_all(module, position.place, position.by.as_deref(), &position.saves)?;
        }
        let Some(by) = &position.by else { return Ok(None) };
        Ok(Some(self.hooks.cursor_behind(event, by)).filter(|cursor| !cursor.is_at_end()))
    }
}
