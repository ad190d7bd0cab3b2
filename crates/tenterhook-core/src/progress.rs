//! The progress and the outcome of a run as plain values.

use std::borrow::Cow;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::effect::EffectPermit;
use crate::plan::TRAIN_LOSS;

/// One of the trainer's four calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// `fit`
    Fit,
    /// `validate`
    Validate,
    /// `test`
    Test,
    /// `predict`
    Predict,
}

impl std::fmt::Display for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.serialize(f)
    }
}

/// A loop. Within `fit`, training, validations and the sanity check alternate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The sanity check: a few validation batches before training, whose results are discarded.
    SanityCheck,
    /// Training.
    #[default]
    Train,
    /// Validation.
    Validate,
    /// Test.
    Test,
    /// Prediction.
    Predict,
}

impl Phase {
    /// The metric under which the loss of this loop is logged.
    #[must_use]
    pub fn loss_metric(self) -> &'static str {
        match self {
            Phase::Train => TRAIN_LOSS,
            Phase::Validate | Phase::SanityCheck => "val/loss",
            Phase::Test => "test/loss",
            Phase::Predict => "predict/loss",
        }
    }
}

impl std::fmt::Display for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.serialize(f)
    }
}

/// The status of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Status {
    /// Before the first batch.
    #[default]
    Starting,
    /// In progress.
    Training,
    /// Ended, by a limit or a request to stop.
    Completed,
    /// Ended, by a signal.
    Interrupted,
    /// Failed.
    Error,
}

/// An epoch as text for people, such as `epoch 1/30`.
///
/// Texts for people count epochs from 1. Contexts, files, JSON, templates and names of checkpoints count them
/// from 0, as Lightning does.
#[must_use]
pub fn epoch_label(epoch: u64, total: Option<u64>) -> String {
    let number = epoch.saturating_add(1);
    total.map_or_else(|| format!("epoch {number}"), |total| format!("epoch {number}/{total}"))
}

/// How a run ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
#[non_exhaustive]
pub enum Outcome {
    /// The run reached its limit.
    #[default]
    Completed,
    /// A hook or the module requested a stop.
    Stopped {
        /// The hook's name, or `module`.
        by: String,
        /// The reason.
        reason: String,
    },
    /// A signal ended the run after the current batch.
    Interrupted {
        /// The signal, such as `SIGINT`.
        signal: String,
    },
    /// The run failed.
    Failed {
        /// The first error.
        error: String,
    },
}

/// Facts about a run as a whole. The loop fills them in before the first epoch.
#[derive(Clone, Debug, Default)]
pub struct RunInfo {
    /// The run's id.
    pub id: String,
    /// The run directory, if there is one.
    pub directory: Option<PathBuf>,
    /// The directory of the checkpoints.
    pub checkpoints: PathBuf,
    /// The device on which the module computes.
    pub device: String,
    /// The number of trained parameters, without buffers and frozen parameters.
    pub parameters: u64,
    /// The full, resolved configuration.
    pub config: serde_json::Value,
    /// The maximum number of epochs, if known.
    pub total_epochs: Option<u64>,
    /// The maximum number of optimizer steps, if known.
    pub total_steps: Option<u64>,
    /// The maximum number of micro-batches in all epochs, if known.
    pub total_batches: Option<u64>,
    /// The number of micro-batches per optimizer step; 0 counts as 1.
    pub accumulate_grad_batches: u64,
    /// The number of epochs before a requested stop takes effect.
    pub min_epochs: u64,
    /// The number of optimizer steps before a requested stop takes effect.
    pub min_steps: u64,
    /// The number of micro-batches per epoch, if known.
    pub epoch_batches: Option<u64>,
    /// When `fit` validates.
    pub validation: Validation,
    /// A dry run over a few batches, in which no hook stops early and nothing is written.
    pub fast_dev_run: bool,
    /// A dry run in a scratch directory that is removed afterwards. Nothing is written outside of it.
    pub rehearsal: bool,
    /// The paths of the checkpoints that this run removed, including before a resume.
    pub removed_checkpoints: Vec<PathBuf>,
    /// The paths of the requested checkpoints that could not be written.
    pub unsaved_checkpoints: Vec<PathBuf>,
    /// The paths of the checkpoints that a resumed run still has to save at its starting point.
    pub pending_checkpoints: Vec<PathBuf>,
}

impl RunInfo {
    /// The directory for files of hooks: the run directory or, if there is none, the parent of the
    /// checkpoints' directory.
    #[must_use]
    pub fn files(&self) -> Option<&Path> {
        self.directory.as_deref().or_else(|| self.checkpoints.parent())
    }

    /// The path of a hook's file. A relative path is below [`files`](RunInfo::files); in a rehearsal an
    /// absolute path is too. `None` in a `fast_dev_run`, which writes nothing.
    #[must_use]
    pub fn file(&self, path: &Path) -> Option<PathBuf> {
        let path = self.contained(path);
        (!self.fast_dev_run)
            .then(|| self.files().map_or_else(|| path.to_path_buf(), |files| files.join(&path)))
    }

    /// Returns the path. In a rehearsal an absolute path becomes relative, so it stays in the scratch
    /// directory.
    #[must_use]
    pub fn contained<'p>(&self, path: &'p Path) -> Cow<'p, Path> {
        let is_below = path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        if !self.rehearsal || is_below {
            return Cow::Borrowed(path);
        }
        let named = path.components().filter(|part| matches!(part, Component::Normal(_)));
        Cow::Owned(Path::new("elsewhere").join(named.collect::<PathBuf>()))
    }

    /// The permission to act outside of the run directory. `None` in a dry run, which is a `fast_dev_run` or
    /// a rehearsal.
    #[must_use]
    pub fn effect_permit(&self) -> Option<EffectPermit> {
        (!self.fast_dev_run && !self.rehearsal).then_some(EffectPermit(()))
    }
}

/// When `fit` validates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validation {
    /// Whether there is validation data.
    pub enabled: bool,
    /// The interval in epochs; `None` if the interval is in batches across epochs.
    pub every_n_epochs: Option<u64>,
    /// Whether the validation runs once, after the epoch's batches.
    pub at_epoch_end: bool,
}

impl Default for Validation {
    fn default() -> Validation {
        Validation { enabled: true, every_n_epochs: Some(1), at_epoch_end: true }
    }
}

impl Validation {
    /// Whether there is a validation in this epoch.
    #[must_use]
    pub fn due_in(&self, epoch: u64) -> bool {
        self.enabled && self.every_n_epochs.is_none_or(|n| (epoch + 1).is_multiple_of(n))
    }

    /// Whether exactly one validation runs before each `on_train_epoch_end`. If so, monitors decide at that
    /// event by default.
    #[must_use]
    pub fn once_per_epoch(&self) -> bool {
        self.at_epoch_end && self.every_n_epochs == Some(1)
    }
}

/// The progress of a run, as plain numbers that a checkpoint saves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The current epoch, from 0.
    pub epoch: u64,
    /// The number of epochs whose batches are done; one more than `epoch` from `on_train_epoch_end` on.
    pub epochs_done: u64,
    /// The number of completed optimizer steps: 1 at the first `on_step_end`.
    pub step: u64,
    /// The number of micro-batches of this epoch that were started; the index of the current one is one less.
    pub batches: u64,
    /// The number of micro-batches that were started in all epochs.
    pub total_batches: u64,
    /// The number of samples seen in training.
    pub samples: u64,
    /// The number of tokens seen in training, if the data counts them.
    pub tokens: u64,
    /// Whether the current step has already been counted.
    pub step_counted: bool,
}

impl Progress {
    /// The step that the current event belongs to, from 1: the step in progress before `on_step_end`, and the
    /// completed step from there to the end of the batch. If the module steps its optimizers itself, the next
    /// step begins as soon as its training step continues.
    #[must_use]
    pub fn current_step(&self) -> u64 {
        if self.step_counted { self.step } else { self.step + 1 }
    }

    /// Whether some batches of the current epoch are done, but not all.
    pub(crate) fn is_within_batches(&self) -> bool {
        self.batches > 0 && self.epochs_done == self.epoch
    }

    /// Whether batches of the current epoch were started. Also true after its end, when the next epoch is
    /// current.
    pub(crate) fn is_within_epoch(&self) -> bool {
        self.batches > 0 || self.epochs_done > self.epoch
    }
}
