//! Taking checkpoints: they are assembled on the training thread and passed to the writer.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tenterhook_core::runner::HookStates;
use tenterhook_core::{BoxError, CheckpointEntries, Event, Failure, Phase, Progress};
use tenterhook_files::RelPath;

use super::announcements::{Announcement, Announcements};
use super::contents::Contents;
use super::emergency::Emergency;
use super::post_save::{PendingPostSave, PostSave};
use super::roots::{CheckpointPath, Save};
use super::writer::{SaveJob, SavePaths, Weights, Writer};
use crate::data::DataState;
use crate::loops::{Callee, Loop, Window};
use crate::module::{Module, Snapshot, SnapshotParts};
use crate::resume::ResumePoint;
use crate::settings::OnSaveError;

/// A requested save that is not taken yet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PendingSave {
    /// The save.
    pub save: Save,
    /// The hook that requested it and is charged for its time; `module` for the module.
    pub by: String,
    /// The event at which it was requested.
    pub event: Event,
}

/// The saves of a run.
#[derive(Default)]
pub(crate) struct Checkpointer {
    pub(super) writer: Writer,
    /// The number of the last save.
    pub(crate) number: u64,
    /// The state of the data module, if it has one.
    pub(crate) data: Option<DataState>,
    /// The saves to take at the next resume point.
    pub(crate) pending: Vec<PendingSave>,
    pub(crate) announcements: Announcements,
    /// Training has begun or has resumed, so checkpoints may be taken.
    pub(crate) ready: bool,
    /// The work after the save of the checkpoint that training resumes from.
    pub(crate) pending_post_save: Option<PendingPostSave>,
    /// Whether the run keeps checkpoints, so that a signal leaves one.
    pub(crate) kept: bool,
    pub(crate) emergency: Emergency,
}

impl<M: Module> Loop<M> {
    /// Whether a checkpoint may be taken now. After a signal, the end events run in the middle of an epoch, and the
    /// run resumes from the checkpoint that was taken before them.
    fn is_valid_now(&self, save: &Save) -> bool {
        save.weights_only || self.ending.signal.is_none()
    }

    /// Takes the pending saves at this point of the loop.
    ///
    /// Saves wait for the next point if they are requested in `on_train_start` of a resume, which comes
    /// before the state is restored, or in a sanity check, which does not count as a validation.
    pub(crate) fn save_requested(&mut self, module: &mut M, point: ResumePoint) -> Result<(), Failure> {
        let waits = match point {
            ResumePoint::TrainStart => !self.checkpointer.ready,
            ResumePoint::ValidationEnd => self.state.phase == Phase::SanityCheck,
            _ => false,
        };
        if waits || self.checkpointer.pending.is_empty() {
            return Ok(());
        }
        let mut requested = std::mem::take(&mut self.checkpointer.pending);
        requested.retain(|requested| self.is_valid_now(&requested.save));
        let first = requested.first().map(|first| (first.by.clone(), first.event));
        if first.is_none() || self.shared.run.fast_dev_run {
            return Ok(());
        }
        // Wait once for earlier saves; saves at the same point do not wait for each other.
        self.charging(first, |run| run.collect_saves(true))?;
        self.checkpointer.pending = requested;
        let saved = self.with_notices_delayed(module, |run, module| {
            while !run.checkpointer.pending.is_empty() {
                // The checkpoint stores the saves that are still pending.
                let PendingSave { save, by, event } = run.checkpointer.pending.remove(0);
                run.charging(Some((by, event)), |run| run.save(module, &save, point))?;
            }
            Ok(())
        });
        self.checkpointer.pending.clear();
        self.shared.run.pending_checkpoints.clear();
        saved
    }

    /// Takes one checkpoint now.
    pub(super) fn save_now(
        &mut self,
        module: &mut M,
        point: ResumePoint,
        save: &Save,
    ) -> Result<(), Failure> {
        if self.shared.run.fast_dev_run {
            return Ok(());
        }
        self.collect_saves(true)?;
        self.with_notices_delayed(module, |run, module| run.save(module, save, point))
    }

    /// Takes the saves that were requested in `on_exception`, so that training can resume after a failure. Saves
    /// nothing before the run has begun or is restored.
    ///
    /// A batch that failed before its update is repeated after the resume. Its accumulation window starts
    /// again, because the batch may have added to the gradients. The end events of an epoch are delivered
    /// again, and a validation runs again from its start.
    pub(crate) fn save_after_failure(&mut self, module: &mut M) -> Result<(), Failure> {
        let ready = self.checkpointer.ready;
        self.checkpointer.pending.retain(|requested| ready && requested.event == Event::Exception);
        if let Some(noted) = self.checkpointer.emergency.before_validation.take() {
            let mut requested = std::mem::take(&mut self.checkpointer.pending);
            requested.retain(|requested| self.is_valid_now(&requested.save));
            return requested
                .iter()
                .try_for_each(|requested| self.save_noted(module, &requested.save, (*noted).clone()));
        }
        let (progress, window) = (self.state.progress, self.state.window);
        if let Some(before) = self.state.before_batch.filter(|_| !self.state.progress.step_counted) {
            (self.state.progress, self.state.window) = (before, Window::Closed);
        }
        let ended = self.state.progress.epochs_done > self.state.progress.epoch;
        self.state.progress.epochs_done -= u64::from(ended);
        let point = if self.state.phase == Phase::Validate {
            ResumePoint::ValidationDue
        } else {
            ResumePoint::of(&self.state.progress)
        };
        let done = self.save_requested(module, point);
        (self.state.progress, self.state.window) = (progress, window);
        done
    }

    /// Takes a checkpoint of the state before the current validation.
    pub(super) fn save_noted(
        &mut self,
        module: &mut M,
        request: &Save,
        mut noted: Contents,
    ) -> Result<(), Failure> {
        self.checkpointer.number += 1;
        noted.number = self.checkpointer.number;
        self.collect_saves(true)?;
        self.with_notices_delayed(module, |run, module| run.save_contents(module, request, noted))
    }

    /// Assembles a checkpoint and passes it to the writer.
    fn save(&mut self, module: &mut M, request: &Save, point: ResumePoint) -> Result<(), Failure> {
        let hooks =
            if request.weights_only { HookStates::new() } else { self.hooks.states(&self.state.progress)? };
        self.enter(Callee::Trainer, "save");
        self.checkpointer.number += 1;
        let contents = self.contents(hooks, point);
        let contents = self.checked(contents)?;
        self.save_contents(module, request, contents)
    }

    /// Completes these contents and passes them to the writer: `on_save_checkpoint` of the hooks, then of the module,
    /// then its snapshot.
    pub(super) fn save_contents(
        &mut self,
        module: &mut M,
        request: &Save,
        mut contents: Contents,
    ) -> Result<(), Failure> {
        let weights_only = request.weights_only;
        contents.weights_only = weights_only;
        let entries = CheckpointEntries::default();
        if !weights_only {
            emit!(self, module, SaveCheckpoint { entries: &entries });
        }
        self.enter(Callee::Module, "on_save_checkpoint");
        let told = module.on_save_checkpoint(&entries);
        self.checked(told)?;
        contents.entries = entries.into_map();
        let weights = if weights_only {
            self.evaluation_weights()?
        } else {
            self.weights.own.clone().map_or_else(Weights::modules, Weights::Own)
        };
        let snapshot = self.snapshot(module, weights_only, &weights)?;
        self.enter(Callee::Trainer, "save");
        let (name, replaces) = self.checked(self.checkpoint_paths(request))?;
        let paths = self.checked(self.paths(&name, &replaces, request))?;
        contents.post_save = PostSave { replaces, link: request.link.clone() };
        let saved = Announcement::of(&contents, name, request.best_score);
        contents.unannounced = self.checkpointer.announcements.with(&saved);
        self.checkpointer.announcements.in_flight.push(saved.clone());
        if !self.ranks.world.is_main() {
            return self.save_begun();
        }
        let job = SaveJob {
            saved,
            paths,
            contents,
            snapshot,
            weights,
            run: self.shared.run.directory.clone(),
            retries: self.limits.on_save_error == OnSaveError::Retry,
            hurry: Arc::clone(&self.checkpointer.emergency.hurry),
        };
        self.checkpointer.writer.start(job, self.limits.background_saves);
        self.save_begun()
    }

    /// Waits for the save that has begun, here or on rank 0, unless saves run in the background.
    fn save_begun(&mut self) -> Result<(), Failure> {
        if self.limits.background_saves { Ok(()) } else { self.collect_saves(true) }
    }

    /// The module's part of a checkpoint.
    fn snapshot(
        &mut self,
        module: &mut M,
        weights_only: bool,
        weights: &Weights,
    ) -> Result<Snapshot, Failure> {
        let gradients = !weights_only && self.keeps_gradients(module)?;
        let wanted = SnapshotParts {
            weights: !matches!(weights, Weights::Own(_)),
            optimizers: !weights_only,
            gradients,
        };
        self.enter(Callee::Module, "snapshot");
        let snapshot = module.snapshot(wanted);
        self.checked(snapshot)
    }

    /// The path of a checkpoint, and those of the checkpoints that it replaces.
    fn checkpoint_paths(&self, request: &Save) -> Result<(CheckpointPath, Vec<CheckpointPath>), BoxError> {
        let Progress { epoch, step, .. } = self.state.progress;
        let name = match &request.path {
            Some(path) => path.clone(),
            None => RelPath::new(format!("epoch={epoch}-step={step}"))?.into(),
        };
        let mut replaces = request.replaces.clone();
        if !request.weights_only {
            // Emergency checkpoints are only needed until the next save.
            replaces.extend(self.earlier_emergencies()?);
        }
        replaces.retain(|old| *old != name);
        Ok((name, replaces))
    }

    /// The paths of a save in the file system.
    fn paths(
        &self,
        name: &CheckpointPath,
        replaces: &[CheckpointPath],
        request: &Save,
    ) -> Result<SavePaths, BoxError> {
        let roots = self.roots();
        Ok(SavePaths {
            replaces: replaces.iter().map(|old| roots.for_writing(old)).collect::<Result<_, _>>()?,
            link: request.link.as_ref().map(|link| roots.for_writing(link)).transpose()?,
            latest: (!request.weights_only).then(|| roots.latest()).transpose()?,
            path: roots.for_writing(name)?,
        })
    }

    /// Whether the checkpoint needs gradients: an accumulation window is open, or a hook or the module will read them.
    fn keeps_gradients(&mut self, module: &M) -> Result<bool, Failure> {
        let within_window = self.state.is_within_window(&self.limits, module);
        if within_window && !module.saves_gradients() {
            self.enter(Callee::Module, "gradients_state");
            let error = "this module cannot save gradients, so no checkpoint can be taken before an accumulation \
                         window ends; implement `saves_gradients`, `gradients_state` and `load_gradients`";
            return Err(self.failed(error.into(), false));
        }
        let looked_at = self.hooks.wants(Event::BeforeZeroGrad) || !module.automatic_optimization();
        Ok(within_window || (looked_at && module.saves_gradients()))
    }

    /// The weights that are evaluated: those that are swapped in, or that a hook keeps for evaluation.
    fn evaluation_weights(&mut self) -> Result<Weights, Failure> {
        if self.weights.own.is_some() {
            return Ok(Weights::modules());
        }
        Ok(Weights::Modules(self.hooks.eval_weights(&self.state.progress)?.unwrap_or_default()))
    }
}
