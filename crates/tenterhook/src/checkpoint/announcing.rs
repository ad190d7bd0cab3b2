//! What becomes of checkpoints that were handed to the writer: recorded and announced once they are durable.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tenterhook_core::{BoxError, Failure, Progress};

use super::afterwards::Removed;
use super::contents::Contents;
use super::roots::CheckpointPath;
use super::writer::Done;
use crate::call::Call;
use crate::journal::RunNotice;
use crate::loops::{Loop, Who};
use crate::module::Module;
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

impl Announcement {
    pub(super) fn of(contents: &Contents, path: CheckpointPath, best_score: Option<f64>) -> Announcement {
        let (metrics, metric_steps) = contents.latest_metrics();
        let Progress { step, epoch, .. } = contents.progress;
        Announcement { step, epoch, metrics, metric_steps, path, best_score, again: false }
    }
}

/// The checkpoints that hooks have not been told about yet.
#[derive(Default)]
pub(crate) struct Announcements {
    /// Handed to the writer and not yet known to be durable.
    pub(super) in_flight: Vec<Announcement>,
    /// Durable and not yet announced.
    pub(crate) durable: Vec<Announcement>,
}

impl Announcements {
    /// As the checkpoint holds them that is announced last.
    pub(super) fn with(&self, last: &Announcement) -> Vec<Announcement> {
        self.durable.iter().chain(&self.in_flight).chain([last]).cloned().collect()
    }
}

impl<M: Module> Loop<M> {
    /// Records what was removed, and reports what could not be.
    pub(super) fn note_removed(&mut self, step: u64, epoch: u64, Removed { removed, notices }: Removed) {
        for path in removed {
            self.shared.run.removed_checkpoints.push(path.clone());
            self.record_happening_at(step, epoch, Happening::CheckpointRemoved { path });
        }
        self.note_texts(notices);
    }

    /// Says something that has no notice of its own.
    pub(super) fn note_texts(&mut self, texts: Vec<String>) {
        for text in texts {
            self.note(RunNotice::Said { hook: "trainer".into(), text });
        }
    }

    /// Looks what has become of the saves that were handed to the writer; waits for all of them where that is said.
    #[inline]
    pub(crate) fn collect_saves(&mut self, wait: bool) -> Result<(), Failure> {
        if self.checkpointer.announcements.in_flight.is_empty() {
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
        let Done { saved, path, weights_only, set_aside, result } = done;
        self.note_texts(set_aside);
        let Announcement { step, epoch, .. } = saved;
        let is_it = |other: &Announcement| other.step == step && other.path == saved.path;
        self.checkpointer.announcements.in_flight.retain(|other| !is_it(other));
        match result {
            Ok(removed) => {
                self.record_happening_at(step, epoch, Happening::Checkpoint { path, weights_only });
                self.note_removed(step, epoch, removed);
                self.checkpointer.announcements.durable.push(saved);
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
        if self.run.checkpointer.announcements.durable.is_empty() {
            return Ok(());
        }
        for saved in std::mem::take(&mut self.run.checkpointer.announcements.durable) {
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
