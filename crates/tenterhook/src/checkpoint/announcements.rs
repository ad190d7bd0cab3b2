//! Announcing checkpoints: they are recorded and announced to hooks once they are durable.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tenterhook_core::{BoxError, Failure, Origin, Progress};

use super::contents::Contents;
use super::post_save::Removals;
use super::roots::CheckpointPath;
use super::writer::FinishedSave;
use crate::call::Call;
use crate::journal::RunNotice;
use crate::loops::{Callee, Loop};
use crate::module::Module;
use crate::run::JournalEvent;
use crate::settings::OnSaveError;

/// The announcement of a checkpoint to hooks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Announcement {
    /// The completed steps at the save.
    pub step: u64,
    /// The epoch of the save, from 0.
    pub epoch: u64,
    /// The latest value of every metric at the save.
    #[serde(with = "tenterhook_core::number::map")]
    pub metrics: BTreeMap<String, f64>,
    /// The step of each value.
    #[serde(default)]
    pub metric_steps: BTreeMap<String, u64>,
    /// The path of the checkpoint.
    pub path: CheckpointPath,
    /// Its score if it was the best checkpoint at the save.
    #[serde(default, with = "tenterhook_core::number::option")]
    pub best_score: Option<f64>,
    /// It was read from a checkpoint, so a killed process may have announced it already.
    #[serde(skip)]
    pub again: bool,
}

impl Announcement {
    pub(super) fn of(contents: &Contents, path: CheckpointPath, best_score: Option<f64>) -> Announcement {
        let (metrics, metric_steps) = contents.latest_metrics();
        let Progress { step, epoch, .. } = contents.progress;
        Announcement { step, epoch, metrics, metric_steps, path, best_score, again: false }
    }
}

/// The checkpoints that are not announced yet.
#[derive(Default)]
pub(crate) struct Announcements {
    /// Handed to the writer and not yet known to be durable.
    pub(super) in_flight: Vec<Announcement>,
    /// Durable and not yet announced.
    pub(crate) durable: Vec<Announcement>,
}

impl Announcements {
    /// All of them, followed by `last`, as that checkpoint stores them.
    pub(super) fn with(&self, last: &Announcement) -> Vec<Announcement> {
        self.durable.iter().chain(&self.in_flight).chain([last]).cloned().collect()
    }
}

impl<M: Module> Loop<M> {
    /// Records removed checkpoints, and reports those that could not be removed.
    pub(super) fn note_removed(&mut self, step: u64, epoch: u64, Removals { removed, notices }: Removals) {
        for path in removed {
            self.shared.run.removed_checkpoints.push(path.clone());
            self.record_event_at(step, epoch, JournalEvent::CheckpointRemoved { path });
        }
        self.note_texts(notices);
    }

    /// Emits notices of the trainer.
    pub(super) fn note_texts(&mut self, texts: Vec<String>) {
        for text in texts {
            self.note(RunNotice::Said { hook: Origin::TRAINER.into(), text });
        }
    }

    /// Handles the saves that the writer has finished, or waits for all of them.
    #[inline]
    pub(crate) fn collect_saves(&mut self, wait: bool) -> Result<(), Failure> {
        if self.checkpointer.announcements.in_flight.is_empty() {
            return Ok(());
        }
        let mut first = Ok(());
        let finished = self.checkpointer.writer.finished(wait);
        for save in self.finished_on_all_ranks(finished)? {
            let handled = self.handle_finished(save);
            first = self.first_of(first, handled);
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
                self.record_event_at(step, epoch, JournalEvent::Checkpoint { path, weights_only });
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
            self.record_event(JournalEvent::CheckpointFailed { path, error: error.to_string() });
            self.enter(Callee::Trainer, "save");
            return Err(self.failed(error, false));
        }
        self.note(RunNotice::SaveFailed { path, error });
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
        self.run.first_of(collected, announced)
    }

    fn announce_durable(&mut self) -> Result<(), Failure> {
        if self.run.checkpointer.announcements.durable.is_empty() {
            return Ok(());
        }
        for saved in std::mem::take(&mut self.run.checkpointer.announcements.durable) {
            let path = self.run.roots().resolve(&saved.path);
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
