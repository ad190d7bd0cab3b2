//! Taking checkpoints: assembled on the training thread, written by the writer, announced when they are durable.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};
use tenterhook_core::runner::HookStates;
use tenterhook_core::{BoxError, Entries, Event, Failure, NamedTensors, Phase, Progress, SaveRequest};
use tenterhook_files::RelPath;

use super::afterwards::{Afterwards, LeftOpen, Removed, unrecorded_removals};
use super::contents::Contents;
use super::position::{Place, Position};
use super::roots::{CheckpointPath, Save};
use super::store::{RealDisk, largest_number, tidy};
use super::writer::{Done, Job, Weights, Writer};
use crate::data::DataState;
use crate::module::{Module, Wanted};
use crate::notice::Notice;
use crate::run::Happening;
use crate::running::{Running, Who};
use crate::session::Session;
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

/// What a run knows of its saves.
#[derive(Default)]
pub(crate) struct Saves {
    pub(super) writer: Writer,
    /// How many there have been.
    pub(crate) number: u64,
    /// The state of the data module, where it has one.
    pub(crate) data: Option<DataState>,
    /// Asked for by hooks, for the next place in which a checkpoint can be taken.
    pub(crate) asked: Vec<Save>,
    /// Who was the first to ask for that, and at which event.
    pub(crate) asked_by: Option<(String, Event)>,
    /// The same as a checkpoint held them, until the event goes on that it was taken in.
    pub(super) held: Vec<Save>,
    /// Handed to the writer and not yet known to be durable.
    in_flight: Vec<Announcement>,
    /// Durable and not yet announced.
    pub(crate) durable: Vec<Announcement>,
    /// Training has begun, or gone on from its position, so that what is saved from here on is true.
    pub(crate) ready: bool,
    /// What the process may not have done that saved the checkpoint that training goes on from.
    pub(super) left_open: Option<LeftOpen>,
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

impl<M: Module> Running<M> {
    /// Saves for the checkpoint hook, within its own turn; the plan stays as it is until then. After a failure it
    /// is at the last place from which training can go on.
    pub(crate) fn save_within(
        &mut self,
        module: &mut M,
        event: Event,
        saves: &[SaveRequest],
    ) -> Result<(), Failure> {
        let by = self.hooks.current(&self.shared).map(|hook| (hook.to_owned(), event));
        self.charging(by, |run| {
            let saves: Result<Vec<_>, _> = saves.iter().map(|save| run.checked_save(save)).collect();
            let saves = run.checked(saves)?;
            run.save_in_turn(module, event, &saves)
        })
    }

    fn save_in_turn(&mut self, module: &mut M, event: Event, saves: &[Save]) -> Result<(), Failure> {
        if event == Event::Exception {
            return self.save_after_failure(module, saves);
        }
        let place = Place::of(event).filter(|place| *place != Place::TrainStart || self.saves.ready);
        let Some(place) = place else {
            self.saves.asked.extend_from_slice(saves);
            return Ok(());
        };
        let by = self.hooks.current(&self.shared).map(str::to_owned);
        let saves: Vec<_> = saves.iter().filter(|save| self.is_true_now(save)).cloned().collect();
        self.save_all(module, place, by.as_deref(), &saves)
    }

    /// Whether a checkpoint taken now would be true. The ends of a run that a signal ends are not those of its epoch:
    /// to go on, there is the checkpoint that was taken before them.
    fn is_true_now(&self, save: &Save) -> bool {
        save.weights_only || self.signals.interrupted.is_none()
    }

    /// Carries out what other hooks, or the module, asked for, now that all hooks have received the event.
    pub(crate) fn save_asked(&mut self, module: &mut M, place: Place) -> Result<(), Failure> {
        if self.saves.asked.is_empty() {
            return Ok(());
        }
        let mut asked = std::mem::take(&mut self.saves.asked);
        asked.retain(|save| self.is_true_now(save));
        let by = self.saves.asked_by.take();
        self.charging(by, |run| run.save_all(module, place, None, &asked))
    }

    /// Several saves of one moment. They wait together for the one before, and not for each other.
    pub(super) fn save_all(
        &mut self,
        module: &mut M,
        place: Place,
        by: Option<&str>,
        saves: &[Save],
    ) -> Result<(), Failure> {
        if self.shared.run.fast_dev_run {
            return Ok(());
        }
        self.with_hooks_paused(|run| {
            saves.iter().enumerate().try_for_each(|(at, save)| {
                let rest = saves[at + 1..].to_vec();
                run.save(module, save, Position { place, by: by.map(str::to_owned), saves: rest })
            })
        })
    }

    /// Waits for the saves before, and takes others. The plan stays as it is meanwhile.
    pub(super) fn with_hooks_paused(
        &mut self,
        save: impl FnOnce(&mut Running<M>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.hooks.pause();
        // A panic of the module must not leave the hooks paused.
        let done = catch_unwind(AssertUnwindSafe(|| {
            self.collect_saves(true)?;
            save(self)
        }));
        self.hooks.resume();
        done.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Where training can go on after a failure. Nothing is saved before the run has begun, or has come to where it was.
    ///
    /// A batch that failed before its update has not been seen: it comes again. What it added to the gradients of its
    /// window cannot be told from the rest, so that window begins anew. The end of an epoch is told again to everybody,
    /// and a validation runs again whole.
    fn save_after_failure(&mut self, module: &mut M, saves: &[Save]) -> Result<(), Failure> {
        let saves: Vec<_> = saves.iter().filter(|save| self.is_true_now(save)).cloned().collect();
        if !self.saves.ready || saves.is_empty() {
            return Ok(());
        }
        if let Some(noted) = self.saves.before_validation.take() {
            return saves.iter().try_for_each(|save| self.save_noted(module, save, (*noted).clone()));
        }
        let (progress, window) = (self.progress, self.window_open);
        if self.within_batch && !self.progress.step_counted {
            self.progress = self.before_batch;
            self.window_open = false;
        }
        let ended = self.progress.epochs_done > self.progress.epoch;
        self.progress.epochs_done -= u64::from(ended);
        let place = if self.phase == Phase::Validate {
            Place::ValidationDue
        } else {
            Position::guessed(&self.progress).place
        };
        let done = self.save_all(module, place, None, &saves);
        (self.progress, self.window_open) = (progress, window);
        done
    }

    /// Takes a checkpoint of what was noted before the validation that is under way.
    pub(super) fn save_noted(
        &mut self,
        module: &mut M,
        request: &Save,
        mut noted: Contents,
    ) -> Result<(), Failure> {
        self.saves.number += 1;
        noted.number = self.saves.number;
        self.with_hooks_paused(|run| run.save_contents(module, request, noted))
    }

    /// Assembles a checkpoint and hands it to the writer: every hook's state, `on_save_checkpoint` of every hook,
    /// then of the module.
    fn save(&mut self, module: &mut M, request: &Save, position: Position) -> Result<(), Failure> {
        let hooks =
            if request.weights_only { HookStates::new() } else { self.hooks.states(&self.progress)? };
        self.at(Who::Trainer, "save");
        self.saves.number += 1;
        let contents = self.contents(hooks, position);
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
            // What was decided at the event at hand waits until that has reached everyone.
            let decided = self.hooks.take_decisions();
            emit!(self, module, SaveCheckpoint { entries: &entries });
            self.hooks.give_back_decisions(decided);
        }
        self.at(Who::Module, "on_save_checkpoint");
        let told = module.on_save_checkpoint(&entries);
        self.checked(told)?;
        let weights =
            if weights_only { self.scored_weights()? } else { Weights::of(self.own_weights.clone()) };
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
        contents.weights_only = weights_only;
        contents.entries = entries.into_map();
        let Saves { durable, in_flight, .. } = &self.saves;
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
            hurry: Arc::clone(&self.saves.hurry),
            path,
        };
        self.saves.in_flight.push(announcement);
        self.saves.writer.start(job, self.limits.background_saves);
        if self.limits.background_saves { Ok(()) } else { self.collect_saves(true) }
    }

    /// Whether an accumulation window is under way.
    pub(crate) fn is_within_window(&self, module: &M) -> bool {
        module.automatic_optimization()
            && self.window_open
            && !self.training_batch().is_last
            && !self.progress.batches.is_multiple_of(self.limits.accumulate)
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
        if self.own_weights.is_some() {
            return Ok(Weights::Modules(NamedTensors::default()));
        }
        Ok(Weights::Modules(self.hooks.weights_to_evaluate(&self.progress)?.unwrap_or_default()))
    }

    fn name_of(&self, request: &Save) -> Result<CheckpointPath, BoxError> {
        let Progress { epoch, step, .. } = self.progress;
        let by_progress = || Ok(RelPath::new(format!("epoch={epoch}-step={step}"))?.into());
        request.path.clone().map_or_else(by_progress, Ok)
    }

    /// Counts on from what is there.
    pub(crate) fn count_on(&mut self) -> Result<(), Failure> {
        let largest = largest_number(&self.shared.run.checkpoints);
        self.at(Who::Trainer, "begin");
        self.saves.number = self.saves.number.max(self.checked(largest.map_err(BoxError::from))?);
        Ok(())
    }

    /// Nobody else saves here from now on: removes what a killed process left, and finishes what it had begun.
    pub(crate) fn take_over_checkpoints(&mut self) -> Result<(), Failure> {
        if self.shared.run.fast_dev_run {
            return Ok(());
        }
        self.count_on()?;
        let roots = self.roots();
        let left_open = self.saves.left_open.take();
        let finish = || {
            // Also refuses a directory of checkpoints that is a symbolic link.
            roots.latest()?;
            tidy(&RealDisk, roots.own())?;
            left_open.map_or_else(|| Ok(Removed::default()), |left| left.finish(&roots))
        };
        let mut finished = self.checked(finish())?;
        finished.removed.extend(unrecorded_removals(&roots, &self.shared.run.removed_checkpoints));
        let Progress { step, epoch, .. } = self.progress;
        self.note_removed(step, epoch, finished);
        Ok(())
    }

    /// Records what was removed, and reports what could not be.
    fn note_removed(&mut self, step: u64, epoch: u64, Removed { removed, kept }: Removed) {
        for path in removed {
            self.shared.run.removed_checkpoints.push(path.clone());
            self.record_happening_at(step, epoch, Happening::CheckpointRemoved { path });
        }
        for error in kept {
            self.note(Notice::Said { hook: "trainer".into(), text: error.to_string() });
        }
    }

    /// Looks what has become of the saves that were handed to the writer; waits for all of them where that is said.
    #[inline]
    pub(crate) fn collect_saves(&mut self, wait: bool) -> Result<(), Failure> {
        if self.saves.in_flight.is_empty() {
            return Ok(());
        }
        let mut first = Ok(());
        for done in self.saves.writer.finished(wait) {
            let judged = self.judge(done);
            first = self.first_of(first, judged);
        }
        first
    }

    fn judge(&mut self, done: Done) -> Result<(), Failure> {
        let Done { name, path, step, epoch, weights_only, result } = done;
        let is_it = |saved: &Announcement| saved.step == step && saved.path == name;
        let announcement = self.saves.in_flight.iter().find(|saved| is_it(saved)).cloned();
        self.saves.in_flight.retain(|saved| !is_it(saved));
        match result {
            Ok(removed) => {
                self.record_happening_at(step, epoch, Happening::Checkpoint { path, weights_only });
                self.note_removed(step, epoch, removed);
                self.saves.durable.extend(announcement);
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
        self.note(Notice::Unsaved { path, error });
        Ok(())
    }
}

impl<M: Module> Session<'_, M> {
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
        if self.run.saves.durable.is_empty() {
            return Ok(());
        }
        for saved in std::mem::take(&mut self.run.saves.durable) {
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
