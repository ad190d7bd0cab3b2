//! The checkpoint that a signal asks for.

use std::fs::DirEntry;
use std::path::PathBuf;

use tenterhook_core::{Failure, Phase, Progress, SaveRequest};

use super::position::{Place, Position};
use super::store::EMERGENCY;
use crate::module::Module;
use crate::running::Running;

impl<M: Module> Running<M> {
    /// Takes a checkpoint because of a signal, once, where the run keeps checkpoints and has something to keep.
    pub(crate) fn save_emergency(&mut self, module: &mut M, place: Place) -> Result<(), Failure> {
        self.cut_short |= place.is_within_epoch();
        let nothing = self.progress.total_batches == 0 || !self.saves.kept;
        if nothing || std::mem::replace(&mut self.saves.emergency, true) {
            return Ok(());
        }
        let Progress { epoch, step, .. } = self.progress;
        let name = format!("{EMERGENCY}epoch={epoch}-step={step}");
        let request = SaveRequest { path: Some(name.into()), ..SaveRequest::default() };
        // An interrupted validation runs again whole, so the checkpoint is of before it.
        match self.saves.before_validation.take().filter(|_| place == Place::ValidationDue) {
            Some(noted) => self.save_noted(module, &request, *noted),
            None => self.save_all(module, place, None, &[request]),
        }
    }

    /// A signal may come while a validation runs, and then its beginning must be known.
    pub(crate) fn note_before_validation(&mut self, phase: Phase) -> Result<(), Failure> {
        self.saves.before_validation = None;
        if phase == Phase::Validate && self.saves.kept && self.saves.interruptible {
            let hooks = self.hooks.states(&self.progress)?;
            let contents = self.contents(hooks, Position::at(Place::ValidationDue));
            self.saves.before_validation = Some(Box::new(self.checked(contents)?));
        }
        Ok(())
    }

    /// Those of this run, where the directory is its own.
    pub(super) fn earlier_emergencies(&self) -> Vec<PathBuf> {
        if self.recording.is_none() {
            return Vec::new();
        }
        let Ok(entries) = std::fs::read_dir(&self.shared.run.checkpoints) else { return Vec::new() };
        let is_one = |entry: &DirEntry| entry.file_name().to_string_lossy().starts_with(EMERGENCY);
        let mut paths: Vec<_> = entries.flatten().filter(is_one).map(|entry| entry.path()).collect();
        paths.sort();
        paths
    }
}
