//! Taking checkpoints: assembled on the training thread, written by the writer, announced when they are durable.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};
use tenterhook_core::runner::HookStates;
use tenterhook_core::{BoxError, Entries, Event, Failure, NamedTensors, Phase, Progress};
use tenterhook_files::RelPath;

use super::afterwards::{Afterwards, LeftOpen, Removed, unrecorded_removals};
use super::contents::Contents;
use super::roots::{CheckpointPath, Save};
use super::store::{RealDisk, largest_number, tidy};
use super::writer::{Done, Job, Weights, Writer};
use crate::call::Call;
use crate::data::DataState;
use crate::journal::RunNotice;
use crate::loops::{Loop, Who, Window};
use crate::module::{Module, Wanted};
use crate::resume::ResumePoint;
use crate::run::Happening;
use crate::settings::OnSaveError;

/// A checkpoint that hooks are to be told about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Announcement {
    /// The completed steps at the save.
    pub step: u64,
    /// The epoch of the save, from 0.
    pub epoch: u64,
    /// The latest value of every metric at the save.
    #[serde(with = "tenterhook_core::number::map")]
    pub metrics: BTreeMap<String, f64>,
    /// The step that each of them belongs to.
    #[serde(default)]
    pub metric_steps: BTreeMap<String, u64>,
    /// Its path.
    pub path: CheckpointPath,
    /// Its score where it was the best at the save.
    #[serde(default, with = "tenterhook_core::number::option")]
    pub best_score: Option<f64>,
    /// It was read from a checkpoint, so a killed process may have announced it already.
    #[serde(skip)]
    pub again: bool,
}

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
    /// Handed to the writer and not yet known to be durable.
    in_flight: Vec<Announcement>,
    /// Durable and not yet announced.
    pub(crate) durable: Vec<Announcement>,
    /// Training has begun, or gone on from its position, so that what is saved from here on is true.
    pub(crate) ready: bool,
    /// What the process may not have done that saved the checkpoint that training goes on from.
    pub(crate) left_open: Option<LeftOpen>,
    /// Everything but tensors as it was before the validation that is under way, where a signal may cut it short.
    pub(crate) before_validation: Option<Box<Contents>>,
    /// The run keeps checkpoints at all, so that a signal should leave one.
    pub(crate) kept: bool,
    /// A signal may come.
    pub(crate) interruptible: bool,
    /// One has come, so nothing is to be waited for.
    pub(crate) hurry: Arc<AtomicBool>,
    /// The checkpoint that a signal asked for has been taken.
    pub(super) emergency: bool,
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
        if let Some(noted) = self.checkpointer.before_validation.take() {
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
        self.at(Who::Trainer, "save");
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
        let entries = Entries::default();
        if !weights_only {
            emit!(self, module, SaveCheckpoint { entries: &entries });
        }
        self.at(Who::Module, "on_save_checkpoint");
        let told = module.on_save_checkpoint(&entries);
        self.checked(told)?;
        let weights =
            if weights_only { self.scored_weights()? } else { Weights::of(self.weights.own.clone()) };
        let gradients = !weights_only && self.keeps_gradients(module)?;
        let wanted =
            Wanted { weights: !matches!(weights, Weights::Own(_)), optimizers: !weights_only, gradients };
        self.at(Who::Module, "snapshot");
        let snapshot = module.snapshot(wanted);
        let snapshot = self.checked(snapshot)?;
        let roots = self.roots();
        self.at(Who::Trainer, "save");
        let name = self.checked(self.name_of(request))?;
        let Progress { step, epoch, .. } = contents.progress;
        let (metrics, metric_steps) = contents.latest_metrics();
        let announcement = Announcement {
            step,
            epoch,
            metrics,
            metric_steps,
            path: name.clone(),
            best_score: request.best_score,
            again: false,
        };
        if !self.ranks.world.is_main() {
            return self.save_begun(announcement);
        }
        contents.weights_only = weights_only;
        contents.entries = entries.into_map();
        let Checkpointer { durable, in_flight, .. } = &self.checkpointer;
        contents.unannounced = durable.iter().chain(in_flight).chain([&announcement]).cloned().collect();
        let mut replaces = request.replaces.clone();
        if !weights_only {
            // What a signal left is no longer the newest.
            let emergencies = self.earlier_emergencies();
            replaces.extend(self.checked(emergencies)?);
        }
        replaces.retain(|old| *old != name);
        let places = || -> Result<_, BoxError> {
            let old = replaces.iter().map(|old| roots.for_writing(old)).collect::<Result<Vec<_>, _>>()?;
            let link = request.link.as_ref().map(|link| roots.for_writing(link)).transpose()?;
            let latest = (!weights_only).then(|| roots.latest()).transpose()?;
            Ok((roots.for_writing(&name)?, old, link, latest))
        };
        let (path, old, link, latest) = self.checked(places())?;
        contents.afterwards = Afterwards { replaces, link: request.link.clone() };
        let job = Job {
            name,
            contents,
            snapshot,
            weights,
            replaces: old,
            link,
            latest,
            run: self.shared.run.directory.clone(),
            retries: self.limits.on_save_error == OnSaveError::Retry,
            hurry: Arc::clone(&self.checkpointer.hurry),
            path,
        };
        self.checkpointer.writer.start(job, self.limits.background_saves);
        self.save_begun(announcement)
    }

    /// A save has begun, here or on rank 0.
    fn save_begun(&mut self, announcement: Announcement) -> Result<(), Failure> {
        self.checkpointer.in_flight.push(announcement);
        if self.limits.background_saves { Ok(()) } else { self.collect_saves(true) }
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
            self.at(Who::Module, "gradients_state");
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
            return Ok(Weights::Modules(NamedTensors::default()));
        }
        Ok(Weights::Modules(self.hooks.weights_to_evaluate(&self.state.progress)?.unwrap_or_default()))
    }

    fn name_of(&self, request: &Save) -> Result<CheckpointPath, BoxError> {
        let Progress { epoch, step, .. } = self.state.progress;
        let by_progress = || Ok(RelPath::new(format!("epoch={epoch}-step={step}"))?.into());
        request.path.clone().map_or_else(by_progress, Ok)
    }

    /// Counts on from what is there.
    pub(crate) fn count_on(&mut self) -> Result<(), Failure> {
        let largest = largest_number(&self.shared.run.checkpoints);
        self.at(Who::Trainer, "begin");
        self.checkpointer.number =
            self.checkpointer.number.max(self.checked(largest.map_err(BoxError::from))?);
        Ok(())
    }

    /// Nobody else saves here from now on: sets aside what the resume skips, removes what a killed process left, and
    /// finishes what it had begun.
    pub(crate) fn take_over_checkpoints(&mut self, unreadable: &[PathBuf]) -> Result<(), Failure> {
        if self.shared.run.fast_dev_run {
            return Ok(());
        }
        let roots = self.roots();
        self.at(Who::Trainer, "begin");
        let aside = self.checked(roots.set_aside(&RealDisk, unreadable))?;
        self.count_on()?;
        let left_open = self.checkpointer.left_open.take();
        let finish = || {
            // Also refuses a directory of checkpoints that is a symbolic link.
            roots.latest()?;
            tidy(&RealDisk, roots.own())?;
            left_open.map_or_else(|| Ok(Removed::default()), |left| left.finish(&RealDisk, &roots))
        };
        let mut finished = self.checked(finish())?;
        finished.removed.extend(unrecorded_removals(&roots, &self.shared.run.removed_checkpoints));
        let Progress { step, epoch, .. } = self.state.progress;
        self.note_removed(step, epoch, finished);
        for text in aside {
            self.note(RunNotice::Said { hook: "trainer".into(), text });
        }
        Ok(())
    }

    /// Records what was removed, and reports what could not be.
    fn note_removed(&mut self, step: u64, epoch: u64, Removed { removed, kept }: Removed) {
        for path in removed {
            self.shared.run.removed_checkpoints.push(path.clone());
            self.record_happening_at(step, epoch, Happening::CheckpointRemoved { path });
        }
        for error in kept {
            self.note(RunNotice::Said { hook: "trainer".into(), text: error.to_string() });
        }
    }

    /// Looks what has become of the saves that were handed to the writer; waits for all of them where that is said.
    #[inline]
    pub(crate) fn collect_saves(&mut self, wait: bool) -> Result<(), Failure> {
        if self.checkpointer.in_flight.is_empty() {
            return Ok(());
        }
        let mut first = Ok(());
        let finished = self.checkpointer.writer.finished(wait);
        for done in self.done_on_all(finished)? {
            let judged = self.judge(done);
            first = self.first_of(first, judged);
        }
        first
    }

    fn judge(&mut self, done: Done) -> Result<(), Failure> {
        let Done { name, path, step, epoch, weights_only, result } = done;
        let is_it = |saved: &Announcement| saved.step == step && saved.path == name;
        let announcement = self.checkpointer.in_flight.iter().find(|saved| is_it(saved)).cloned();
        self.checkpointer.in_flight.retain(|saved| !is_it(saved));
        match result {
            Ok(removed) => {
                self.record_happening_at(step, epoch, Happening::Checkpoint { path, weights_only });
                self.note_removed(step, epoch, removed);
                self.checkpointer.durable.extend(announcement);
                Ok(())
            }
            Err(error) => self.unsaved(path, error),
        }
    }

    /// Nothing older is lost by a save that failed: what it would have replaced stays, and whoever asked for it learns
    /// of it.
    fn unsaved(&mut self, path: PathBuf, error: BoxError) -> Result<(), Failure> {
        self.shared.run.unsaved_checkpoints.push(path.clone());
        if self.limits.on_save_error == OnSaveError::Stop {
            self.record_happening(Happening::CheckpointFailed { path, error: error.to_string() });
            self.at(Who::Trainer, "save");
            return Err(self.failed(error, false));
        }
        self.note(RunNotice::Unsaved { path, error });
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

    /// Waits for the writer, and announces all that is durable then.
    pub(crate) fn finish_saves(&mut self) -> Result<(), Failure> {
        let collected = self.run.collect_saves(true);
        let announced = self.announce_durable();
        self.run.first_of(collected, announced)
    }

    fn announce_durable(&mut self) -> Result<(), Failure> {
        if self.run.checkpointer.durable.is_empty() {
            return Ok(());
        }
        for saved in std::mem::take(&mut self.run.checkpointer.durable) {
            let path = self.run.roots().place(&saved.path);
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
                    again: saved.again,
                }
            );
        }
        Ok(())
    }
}

impl Weights {
    fn of(own: Option<Arc<crate::tensors::TensorMap>>) -> Weights {
        own.map_or_else(|| Weights::Modules(NamedTensors::default()), Weights::Own)
    }
}
