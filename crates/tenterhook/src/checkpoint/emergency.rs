//! The emergency checkpoint, which is taken on a signal.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tenterhook_core::{BoxError, Failure, Phase, Progress};
use tenterhook_files::{RelPath, cannot};

use super::contents::CheckpointContents;
use super::roots::{CheckpointPath, Save};
use super::store::EMERGENCY;
use crate::loops::Loop;
use crate::module::Module;
use crate::resume::ResumePoint;

/// The state for taking an emergency checkpoint.
#[derive(Default)]
pub(crate) struct Emergency {
    /// Whether the program watches signals.
    pub(crate) is_armed: bool,
    /// A signal has arrived, so saves retry without pauses.
    pub(crate) hurry: Arc<AtomicBool>,
    /// The contents without tensors before the current validation, which a signal may interrupt.
    pub(crate) before_validation: Option<Box<CheckpointContents>>,
    /// Whether the checkpoint has been taken.
    taken: bool,
}

impl<M: Module> Loop<M> {
    /// Takes the emergency checkpoint, once, if the run keeps checkpoints and has trained.
    pub(crate) fn save_emergency(&mut self, module: &mut M, point: ResumePoint) -> Result<(), Failure> {
        self.ending.epoch_interrupted |= point.is_within_epoch();
        let nothing = self.state.progress.total_batches == 0 || !self.checkpointer.kept;
        if nothing || std::mem::replace(&mut self.checkpointer.emergency.taken, true) {
            return Ok(());
        }
        let Progress { epoch, step, .. } = self.state.progress;
        let name = RelPath::new(format!("{EMERGENCY}epoch={epoch}-step={step}")).map_err(BoxError::from);
        let name = self.checked(name)?;
        let request = Save { path: Some(name.into()), ..Save::default() };
        // An interrupted validation runs again from its start, so the checkpoint is of the state before it.
        let before_validation = self.checkpointer.emergency.before_validation.take();
        match before_validation.filter(|_| point == ResumePoint::ValidationDue) {
            Some(noted) => self.save_noted(module, &request, *noted),
            None => self.save_now(module, point, &request),
        }
    }

    /// Keeps the state before a validation, in case a signal interrupts it.
    pub(crate) fn note_before_validation(&mut self, phase: Phase) -> Result<(), Failure> {
        self.checkpointer.emergency.before_validation = None;
        if phase == Phase::Validate && self.checkpointer.kept && self.checkpointer.emergency.is_armed {
            let hooks = self.hooks.states(&self.state.progress)?;
            let contents = self.contents(hooks, ResumePoint::ValidationDue);
            self.checkpointer.emergency.before_validation = Some(Box::new(self.checked(contents)?));
        }
        Ok(())
    }

    /// The emergency checkpoints of this run, if the directory belongs to it.
    pub(super) fn earlier_emergencies(&self) -> Result<Vec<CheckpointPath>, BoxError> {
        if self.journal.recording.is_none() {
            return Ok(Vec::new());
        }
        let root = &self.shared.run.checkpoints;
        let entries = match std::fs::read_dir(root) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.and_then(Iterator::collect::<io::Result<Vec<_>>>),
        };
        let entries = entries.map_err(cannot("read", root))?;
        let names = entries.into_iter().filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<_> = names.filter(|name| name.starts_with(EMERGENCY)).collect();
        names.sort();
        Ok(names.into_iter().filter_map(|name| Some(RelPath::new(name).ok()?.into())).collect())
    }
}
