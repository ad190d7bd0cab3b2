//! Saving: takes checkpoints on the training thread, passes them to the writer, and announces them once they are
//! durable.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tenterhook_core::runner::HookStates;
use tenterhook_core::{BoxError, CheckpointEntries, Event, Failure, HookRunner, Origin, Phase, Progress};
use tenterhook_files::RelPath;

use super::{Callee, Loop, LoopState, Window};
use crate::call::Call;
use crate::checkpoint::{
    Announcement, CheckpointContents, CheckpointPath, FORMAT, FinishedSave, PendingSave, PostSave, Removals,
    ResumePoint, Roots, Save, SaveJob, SavePaths, WeightsToSave, emergencies_in, emergency_name,
    finished_on_all_ranks,
};
use crate::data::DataState;
use crate::journal::RunNotice;
use crate::module::{Module, OptimizerState, SnapshotParts};
use crate::resume::SavedLoopState;
use crate::run::JournalEvent;
use crate::settings::{Limits, OnSaveError};
use crate::tensors::TensorMap;

impl<M: Module> Loop<M> {
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
        let requested = self.checkpointer.take_valid(self.ending.signal.is_some());
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
    fn save_now(&mut self, module: &mut M, point: ResumePoint, save: &Save) -> Result<(), Failure> {
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
            let requested = self.checkpointer.take_valid(self.ending.signal.is_some());
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
    fn save_noted(
        &mut self,
        module: &mut M,
        request: &Save,
        mut noted: CheckpointContents,
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
    fn save_contents(
        &mut self,
        module: &mut M,
        request: &Save,
        mut contents: CheckpointContents,
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
        let progress = self.state.progress;
        let weights = match self.weights.own.clone() {
            Some(own) if !weights_only => WeightsToSave::Own(own),
            None if weights_only => {
                WeightsToSave::Modules(self.hooks.eval_weights(&progress)?.unwrap_or_default())
            }
            _ => WeightsToSave::modules(),
        };
        let gradients = if weights_only {
            Ok(false)
        } else {
            keeps_gradients(&self.state, &self.limits, &self.hooks, module)
        };
        let gradients = match gradients {
            Ok(gradients) => gradients,
            Err(error) => return self.fail(Callee::Module, "gradients_state", error),
        };
        let wanted = SnapshotParts {
            weights: !matches!(weights, WeightsToSave::Own(_)),
            optimizers: !weights_only,
            gradients,
        };
        let snapshot = call!(self, Module, "snapshot", module.snapshot(wanted))?;
        self.enter(Callee::Trainer, "save");
        let roots = Roots::of(&self.shared.run, &self.hooks);
        let emergencies = self.journal.recording.is_some();
        let (name, replaces) =
            self.checked(names_of(request, &progress, emergencies.then_some(roots.own())))?;
        let paths = self.checked(SavePaths::of(&roots, &name, &replaces, request))?;
        contents.post_save = PostSave { replaces, link: request.link.clone() };
        let saved = Announcement::of(&contents, name, request.best_score);
        contents.unannounced = self.checkpointer.announcements.with(&saved);
        self.checkpointer.announcements.in_flight.push(saved.clone());
        if self.ranks.world.is_main() {
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
        }
        // The save has begun, here or on rank 0.
        if self.limits.background_saves { Ok(()) } else { self.collect_saves(true) }
    }

    /// The current contents, without tensors and entries.
    fn contents(&self, hooks: HookStates, resume_point: ResumePoint) -> Result<CheckpointContents, BoxError> {
        let file_positions = match &self.journal.recording {
            Some(recording) => recording.recorder().file_positions()?,
            None => Vec::new(),
        };
        Ok(CheckpointContents {
            format: FORMAT,
            number: self.checkpointer.number,
            weights_only: false,
            progress: self.state.progress,
            resume_point,
            loops: SavedLoopState::of(&self.state, &self.flow, &self.checkpointer.pending, &self.weights),
            elapsed: self.shared.elapsed(),
            weights: TensorMap::default(),
            gradients: TensorMap::default(),
            optimizers: OptimizerState::default(),
            data: self.checkpointer.data.as_ref().map(DataState::saved),
            hooks,
            runner: self.hooks.state(),
            entries: BTreeMap::new(),
            metrics: self.shared.metrics.state(),
            losses: self.values.losses.state(),
            board: self.shared.board.to_json()?,
            board_kept: self.shared.board.protected_keys(),
            board_taken: self.shared.board.taken_keys(),
            streams: self.shared.streams.borrow().positions(),
            config: self.shared.run.config.clone(),
            identity: self.journal.identity.clone(),
            file_positions,
            unannounced: Vec::new(),
            post_save: PostSave::default(),
        })
    }

    /// Handles the saves that the writer has finished, or waits for all of them.
    #[inline]
    pub(crate) fn collect_saves(&mut self, wait: bool) -> Result<(), Failure> {
        if self.checkpointer.announcements.in_flight.is_empty() {
            return Ok(());
        }
        let mut first = Ok(());
        let finished = self.checkpointer.writer.finished(wait);
        let finished = if self.ranks.several {
            self.collective("saves", |ranks| finished_on_all_ranks(ranks, finished))?
        } else {
            finished
        };
        for save in finished {
            let handled = self.handle_finished(save);
            first = self.ending.first_of(first, handled);
        }
        first
    }

    fn handle_finished(&mut self, save: FinishedSave) -> Result<(), Failure> {
        let FinishedSave { saved, path, weights_only, set_aside, result } = save;
        self.note_texts(set_aside);
        let Announcement { step, epoch, .. } = saved;
        let is_it = |other: &Announcement| other.step == step && other.path == saved.path;
        self.checkpointer.announcements.in_flight.retain(|other| !is_it(other));
        match result {
            Ok(removed) => {
                let what = JournalEvent::Checkpoint { path, weights_only };
                self.journal.record_event(&self.shared, step, epoch, what);
                self.note_removed(step, epoch, removed);
                self.checkpointer.announcements.durable.push(saved);
                Ok(())
            }
            Err(error) => self.save_failed(path, error),
        }
    }

    /// Reports a failed save. The checkpoints that it would have replaced stay, and the hook that requested
    /// it is notified.
    fn save_failed(&mut self, path: PathBuf, error: BoxError) -> Result<(), Failure> {
        self.shared.run.unsaved_checkpoints.push(path.clone());
        if self.limits.on_save_error == OnSaveError::Stop {
            let Progress { step, epoch, .. } = self.state.progress;
            let what = JournalEvent::CheckpointFailed { path, error: error.to_string() };
            self.journal.record_event(&self.shared, step, epoch, what);
            self.enter(Callee::Trainer, "save");
            return Err(self.failed(error, false));
        }
        self.note(RunNotice::SaveFailed { path, error });
        Ok(())
    }

    /// Records removed checkpoints, and reports those that could not be removed.
    pub(super) fn note_removed(&mut self, step: u64, epoch: u64, Removals { removed, notices }: Removals) {
        for path in removed {
            self.shared.run.removed_checkpoints.push(path.clone());
            let what = JournalEvent::CheckpointRemoved { path };
            self.journal.record_event(&self.shared, step, epoch, what);
        }
        self.note_texts(notices);
    }

    /// Emits notices of the trainer.
    pub(super) fn note_texts(&mut self, texts: Vec<String>) {
        for text in texts {
            self.note(RunNotice::Said { hook: Origin::TRAINER.into(), text });
        }
    }

    /// Takes the emergency checkpoint, once, if the run keeps checkpoints and has trained.
    pub(crate) fn save_emergency(&mut self, module: &mut M, point: ResumePoint) -> Result<(), Failure> {
        self.ending.epoch_interrupted |= point.is_within_epoch();
        let nothing = self.state.progress.total_batches == 0 || !self.checkpointer.kept;
        if nothing || std::mem::replace(&mut self.checkpointer.emergency.taken, true) {
            return Ok(());
        }
        let name = self.checked(emergency_name(&self.state.progress))?;
        let request = Save { path: Some(name), ..Save::default() };
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
}

impl<M: Module> Call<'_, M> {
    /// Announces the checkpoints that have become durable, at a step boundary.
    #[inline]
    pub(crate) fn announce_checkpoints(&mut self) -> Result<(), Failure> {
        self.run.collect_saves(false)?;
        self.announce_durable()
    }

    /// Waits for the writer, and announces all durable checkpoints.
    pub(crate) fn finish_saves(&mut self) -> Result<(), Failure> {
        let collected = self.run.collect_saves(true);
        let announced = self.announce_durable();
        self.run.ending.first_of(collected, announced)
    }

    fn announce_durable(&mut self) -> Result<(), Failure> {
        if self.run.checkpointer.announcements.durable.is_empty() {
            return Ok(());
        }
        for saved in std::mem::take(&mut self.run.checkpointer.announcements.durable) {
            let path = Roots::of(&self.run.shared.run, &self.run.hooks).resolve(&saved.path);
            let path = self.run.checked(path)?;
            emit!(
                self.run,
                self.module,
                CheckpointSaved {
                    saved_step: saved.step,
                    saved_epoch: saved.epoch,
                    saved_metrics: &saved.metrics,
                    saved_metric_steps: &saved.metric_steps,
                    path: &path,
                    root: &self.run.shared.run.checkpoints,
                    best_score: saved.best_score,
                    redelivered: saved.redelivered,
                }
            );
        }
        Ok(())
    }
}

/// The path of a checkpoint, and those of the checkpoints that it replaces.
/// `emergencies` is the directory of this run's emergency checkpoints.
fn names_of(
    request: &Save,
    progress: &Progress,
    emergencies: Option<&Path>,
) -> Result<(CheckpointPath, Vec<CheckpointPath>), BoxError> {
    let Progress { epoch, step, .. } = progress;
    let name = match &request.path {
        Some(path) => path.clone(),
        None => RelPath::new(format!("epoch={epoch}-step={step}"))?.into(),
    };
    let mut replaces = request.replaces.clone();
    if let Some(root) = emergencies.filter(|_| !request.weights_only) {
        // Emergency checkpoints are only needed until the next save.
        replaces.extend(emergencies_in(root)?);
    }
    replaces.retain(|old| *old != name);
    Ok((name, replaces))
}

/// Whether the checkpoint needs gradients: an accumulation window is open, or a hook or the module will read them.
fn keeps_gradients(
    state: &LoopState,
    limits: &Limits,
    hooks: &HookRunner,
    module: &impl Module,
) -> Result<bool, BoxError> {
    let within_window = state.is_within_window(limits, module);
    if within_window && !module.saves_gradients() {
        let error = "this module cannot save gradients, so no checkpoint can be taken before an accumulation \
                     window ends; implement `saves_gradients`, `gradients_state` and `load_gradients`";
        return Err(error.into());
    }
    let looked_at = hooks.wants(Event::BeforeZeroGrad) || !module.automatic_optimization();
    Ok(within_window || (looked_at && module.saves_gradients()))
}
