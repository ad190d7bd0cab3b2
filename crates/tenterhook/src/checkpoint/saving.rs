//! Taking checkpoints: assembled on the training thread, and handed to the writer.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tenterhook_core::runner::HookStates;
use tenterhook_core::{BoxError, Entries, Event, Failure, Phase, Progress};
use tenterhook_files::RelPath;

use super::afterwards::{Afterwards, LeftOpen};
use super::announcing::{Announcement, Announcements};
use super::contents::Contents;
use super::emergency::Emergency;
use super::roots::{CheckpointPath, Save};
use super::writer::{Job, Places, Weights, Writer};
use crate::data::DataState;
use crate::loops::{Callee, Loop, Window};
use crate::module::{Module, Snapshot, Wanted};
use crate::resume::ResumePoint;
use crate::settings::OnSaveError;

/// A save that was requested, and by which hook at which event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Requested {
    /// The save.
    pub save: Save,
    /// The name of the hook that is charged for it; `module` where the module asked.
    pub by: String,
    /// The event at which it was requested.
    pub event: Event,
}

/// What a run knows of its saves.
#[derive(Default)]
pub(crate) struct Checkpointer {
    pub(super) writer: Writer,
    /// How many there have been.
    pub(crate) number: u64,
    /// The state of the data module, where it has one.
    pub(crate) data: Option<DataState>,
    /// The saves to take at the next point at which a checkpoint can be taken.
    pub(crate) requested: Vec<Requested>,
    pub(crate) announcements: Announcements,
    /// Training has begun, or has resumed, so checkpoints may be taken from here.
    pub(crate) ready: bool,
    /// What the process may not have done that saved the checkpoint that training resumes from.
    pub(crate) left_open: Option<LeftOpen>,
    /// The run keeps checkpoints at all, so that a signal should leave one.
    pub(crate) kept: bool,
    pub(crate) emergency: Emergency,
}

impl<M: Module> Loop<M> {
    /// Whether a checkpoint taken now would be true. The ends of a run that a signal ends are not those of its epoch:
    /// such a run resumes from the checkpoint that was taken before them.
    fn is_true_now(&self, save: &Save) -> bool {
        save.weights_only || self.ending.signal.is_none()
    }

    /// Takes the saves that were requested up to this point of the loop.
    ///
    /// On a resume, `on_train_start` comes before the run is where the checkpoint was taken, and a sanity check is no
    /// validation of the run: what is requested there waits for the next point.
    pub(crate) fn save_requested(&mut self, module: &mut M, point: ResumePoint) -> Result<(), Failure> {
        let waits = match point {
            ResumePoint::TrainStart => !self.checkpointer.ready,
            ResumePoint::ValidationEnd => self.state.phase == Phase::SanityCheck,
            _ => false,
        };
        if waits || self.checkpointer.requested.is_empty() {
            return Ok(());
        }
        let mut requested = std::mem::take(&mut self.checkpointer.requested);
        requested.retain(|requested| self.is_true_now(&requested.save));
        let first = requested.first().map(|first| (first.by.clone(), first.event));
        if first.is_none() || self.shared.run.fast_dev_run {
            return Ok(());
        }
        // Several saves of one moment wait together for the one before, and not for each other.
        self.charging(first, |run| run.collect_saves(true))?;
        self.checkpointer.requested = requested;
        let saved = self.with_news_held(module, |run, module| {
            while !run.checkpointer.requested.is_empty() {
                // The queue holds those that are still pending, so the checkpoint does, too.
                let Requested { save, by, event } = run.checkpointer.requested.remove(0);
                run.charging(Some((by, event)), |run| run.save(module, &save, point))?;
            }
            Ok(())
        });
        self.checkpointer.requested.clear();
        self.shared.run.pending_checkpoints.clear();
        saved
    }

    /// Takes one checkpoint now, whatever else was requested.
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
        self.with_news_held(module, |run, module| run.save(module, save, point))
    }

    /// Where training can go on after a failure. Nothing is saved before the run has begun, or has come to where it was.
    ///
    /// A batch that failed before its update has not been seen: it comes again. What it added to the gradients of its
    /// window cannot be told from the rest, so that window begins anew. The end of an epoch is told again to everybody,
    /// and a validation runs again whole.
    pub(crate) fn save_after_failure(&mut self, module: &mut M) -> Result<(), Failure> {
        let ready = self.checkpointer.ready;
        self.checkpointer.requested.retain(|requested| ready && requested.event == Event::Exception);
        if let Some(noted) = self.checkpointer.emergency.before_validation.take() {
            let mut requested = std::mem::take(&mut self.checkpointer.requested);
            requested.retain(|requested| self.is_true_now(&requested.save));
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

    /// Takes a checkpoint of what was noted before the validation that is under way.
    pub(super) fn save_noted(
        &mut self,
        module: &mut M,
        request: &Save,
        mut noted: Contents,
    ) -> Result<(), Failure> {
        self.checkpointer.number += 1;
        noted.number = self.checkpointer.number;
        self.collect_saves(true)?;
        self.with_news_held(module, |run, module| run.save_contents(module, request, noted))
    }

    /// Assembles a checkpoint and hands it to the writer: every hook's state, `on_save_checkpoint` of every hook,
    /// then of the module.
    fn save(&mut self, module: &mut M, request: &Save, point: ResumePoint) -> Result<(), Failure> {
        let hooks =
            if request.weights_only { HookStates::new() } else { self.hooks.states(&self.state.progress)? };
        self.enter(Callee::Trainer, "save");
        self.checkpointer.number += 1;
        let contents = self.contents(hooks, point);
        let contents = self.checked(contents)?;
        self.save_contents(module, request, contents)
    }

    /// The same for contents that were noted earlier.
    pub(super) fn save_contents(
        &mut self,
        module: &mut M,
        request: &Save,
        mut contents: Contents,
    ) -> Result<(), Failure> {
        let weights_only = request.weights_only;
        contents.weights_only = weights_only;
        let entries = Entries::default();
        if !weights_only {
            emit!(self, module, SaveCheckpoint { entries: &entries });
        }
        self.enter(Callee::Module, "on_save_checkpoint");
        let told = module.on_save_checkpoint(&entries);
        self.checked(told)?;
        contents.entries = entries.into_map();
        let weights = if weights_only {
            self.scored_weights()?
        } else {
            self.weights.own.clone().map_or_else(Weights::modules, Weights::Own)
        };
        let snapshot = self.snapshot(module, weights_only, &weights)?;
        self.enter(Callee::Trainer, "save");
        let (name, replaces) = self.checked(self.names(request))?;
        let places = self.checked(self.places(&name, &replaces, request))?;
        contents.afterwards = Afterwards { replaces, link: request.link.clone() };
        let saved = Announcement::of(&contents, name, request.best_score);
        contents.unannounced = self.checkpointer.announcements.with(&saved);
        self.checkpointer.announcements.in_flight.push(saved.clone());
        if !self.ranks.world.is_main() {
            return self.save_begun();
        }
        let job = Job {
            saved,
            places,
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

    /// A save has begun, here or on rank 0.
    fn save_begun(&mut self) -> Result<(), Failure> {
        if self.limits.background_saves { Ok(()) } else { self.collect_saves(true) }
    }

    /// What the module takes part with.
    fn snapshot(
        &mut self,
        module: &mut M,
        weights_only: bool,
        weights: &Weights,
    ) -> Result<Snapshot, Failure> {
        let gradients = !weights_only && self.keeps_gradients(module)?;
        let wanted =
            Wanted { weights: !matches!(weights, Weights::Own(_)), optimizers: !weights_only, gradients };
        self.enter(Callee::Module, "snapshot");
        let snapshot = module.snapshot(wanted);
        self.checked(snapshot)
    }

    /// The name of a checkpoint, and those of the checkpoints that it replaces.
    fn names(&self, request: &Save) -> Result<(CheckpointPath, Vec<CheckpointPath>), BoxError> {
        let Progress { epoch, step, .. } = self.state.progress;
        let name = match &request.path {
            Some(path) => path.clone(),
            None => RelPath::new(format!("epoch={epoch}-step={step}"))?.into(),
        };
        let mut replaces = request.replaces.clone();
        if !request.weights_only {
            // What a signal left is no longer the newest.
            replaces.extend(self.earlier_emergencies()?);
        }
        replaces.retain(|old| *old != name);
        Ok((name, replaces))
    }

    /// Where a checkpoint goes.
    fn places(
        &self,
        name: &CheckpointPath,
        replaces: &[CheckpointPath],
        request: &Save,
    ) -> Result<Places, BoxError> {
        let roots = self.roots();
        Ok(Places {
            replaces: replaces.iter().map(|old| roots.for_writing(old)).collect::<Result<_, _>>()?,
            link: request.link.as_ref().map(|link| roots.for_writing(link)).transpose()?,
            latest: (!request.weights_only).then(|| roots.latest()).transpose()?,
            path: roots.for_writing(name)?,
        })
    }

    /// Whether an accumulation window is under way.
    pub(crate) fn is_within_window(&self, module: &M) -> bool {
        module.automatic_optimization()
            && self.state.window != Window::Closed
            && !self.state.training_batch().is_last
            && !self.state.progress.batches.is_multiple_of(self.limits.accumulate)
    }

    /// Whether gradients must be kept: an accumulation window is under way, or somebody will look at them.
    fn keeps_gradients(&mut self, module: &M) -> Result<bool, Failure> {
        let within_window = self.is_within_window(module);
        if within_window && !module.saves_gradients() {
            self.enter(Callee::Module, "gradients_state");
            let error = "this module cannot save gradients, so no checkpoint can be taken before an accumulation \
                         window ends; implement `saves_gradients`, `gradients_state` and `load_gradients`";
            return Err(self.failed(error.into(), false));
        }
        let looked_at = self.hooks.wants(Event::BeforeZeroGrad) || !module.automatic_optimization();
        Ok(within_window || (looked_at && module.saves_gradients()))
    }

    /// The weights as they are evaluated: those that are swapped in, or that a hook keeps for it.
    fn scored_weights(&mut self) -> Result<Weights, Failure> {
        if self.weights.own.is_some() {
            return Ok(Weights::modules());
        }
        Ok(Weights::Modules(self.hooks.weights_to_evaluate(&self.state.progress)?.unwrap_or_default()))
    }
}
