//! Where a run stands, as plain values: which loop, which epoch, which step, and how it ended.

use std::borrow::Cow;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::effect::EffectPermit;
use crate::plan::TRAIN_LOSS;

/// Which of the trainer's four calls is running.
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
        f.pad(match self {
            Stage::Fit => "fit",
            Stage::Validate => "validate",
            Stage::Test => "test",
            Stage::Predict => "predict",
        })
    }
}

/// Which loop is running: within `fit`, training, validation and the sanity check take turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// A few validation batches before training; leaves no trace.
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
        f.pad(match self {
            Phase::SanityCheck => "sanity_check",
            Phase::Train => "train",
            Phase::Validate => "validate",
            Phase::Test => "test",
            Phase::Predict => "predict",
        })
    }
}

/// How the run is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Status {
    /// Before the first batch.
    #[default]
    Starting,
    /// Under way.
    Training,
    /// Ended by a limit or by a request to stop.
    Completed,
    /// Ended by a signal.
    Interrupted,
    /// Failed.
    Error,
}

/// An epoch as people read it, such as `epoch 1/30`.
///
/// Texts for people count epochs from 1. Data counts them from 0, as Lightning does: contexts, files, JSON, templates
/// and names of checkpoints.
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
    /// It reached its limit.
    #[default]
    Completed,
    /// Somebody asked to stop.
    Stopped {
        /// Who: a hook's name, or `module`.
        by: String,
        /// Why.
        reason: String,
    },
    /// A signal ended it: what was under way was completed, and nothing more begun.
    Interrupted {
        /// Which, such as `SIGINT`.
        signal: String,
    },
    /// It failed.
    Failed {
        /// The first error.
        error: String,
    },
}

/// What is known of a run as a whole; the loop fills it in before the first epoch.
#[derive(Clone, Debug, Default)]
pub struct RunInfo {
    /// The run's id.
    pub id: String,
    /// Its directory, where it has one.
    pub directory: Option<PathBuf>,
    /// The directory of its checkpoints.
    pub checkpoints: PathBuf,
    /// The device it computes on.
    pub device: String,
    /// The number of trained parameters of the model: buffers and frozen ones do not count.
    pub parameters: u64,
    /// The full configuration, resolved.
    pub config: serde_json::Value,
    /// How many epochs training will last at most, where that is known.
    pub total_epochs: Option<u64>,
    /// How many optimizer steps training will last at most, where that is known.
    pub total_steps: Option<u64>,
    /// How many micro-batches training will last at most, where that is known.
    pub total_batches: Option<u64>,
    /// How many micro-batches an optimizer step is made of; 0 counts as 1.
    pub accumulate_grad_batches: u64,
    /// A request to stop waits until this many epochs are done.
    pub min_epochs: u64,
    /// A request to stop waits until this many optimizer steps are done.
    pub min_steps: u64,
    /// How many micro-batches an epoch has, where that is known.
    pub epoch_batches: Option<u64>,
    /// When `fit` validates.
    pub validation: Validation,
    /// A dry run over a few batches: no hook stops it early, and nothing is written.
    pub fast_dev_run: bool,
    /// A dry run in a scratch directory that is removed afterwards: nothing is written outside of it.
    pub rehearsal: bool,
    /// The checkpoints that this run has removed itself, in all its parts, as their paths.
    pub removed_checkpoints: Vec<PathBuf>,
    /// The checkpoints that were asked for and could not be written, as their paths.
    pub unsaved_checkpoints: Vec<PathBuf>,
    /// The checkpoints that a resumed run still has to save where it continues.
    pub pending_checkpoints: Vec<PathBuf>,
}

impl RunInfo {
    /// Where hooks put their files: the run's directory or, where it has none, beside its checkpoints.
    #[must_use]
    pub fn files(&self) -> Option<&Path> {
        self.directory.as_deref().or_else(|| self.checkpoints.parent())
    }

    /// Where a hook's file goes; a relative path is below [`files`](RunInfo::files). In a rehearsal an absolute one is
    /// below it as well. `None` in a `fast_dev_run`, which writes nothing.
    #[must_use]
    pub fn file(&self, path: &Path) -> Option<PathBuf> {
        let path = self.contained(path);
        (!self.fast_dev_run)
            .then(|| self.files().map_or_else(|| path.to_path_buf(), |files| files.join(&path)))
    }

    /// The same path; in a rehearsal an absolute one becomes relative, so that it is below the scratch directory.
    #[must_use]
    pub fn contained<'p>(&self, path: &'p Path) -> Cow<'p, Path> {
        let is_below = path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        if !self.rehearsal || is_below {
            return Cow::Borrowed(path);
        }
        let named = path.components().filter(|part| matches!(part, Component::Normal(_)));
        Cow::Owned(Path::new("elsewhere").join(named.collect::<PathBuf>()))
    }

    /// The permission to act outside of the run directory. `None` in a dry run: a `fast_dev_run` or a rehearsal.
    #[must_use]
    pub fn effect_permit(&self) -> Option<EffectPermit> {
        (!self.fast_dev_run && !self.rehearsal).then_some(EffectPermit(()))
    }
}

/// When `fit` validates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validation {
    /// There is something to validate on.
    pub enabled: bool,
    /// In every how many epochs; `None` counts batches across epochs instead.
    pub every_n_epochs: Option<u64>,
    /// Once, when the epoch's batches are done.
    pub at_epoch_end: bool,
}

impl Default for Validation {
    fn default() -> Validation {
        Validation { enabled: true, every_n_epochs: Some(1), at_epoch_end: true }
    }
}

impl Validation {
    /// Whether this epoch is one in which it validates.
    #[must_use]
    pub fn due_in(&self, epoch: u64) -> bool {
        self.enabled && self.every_n_epochs.is_none_or(|n| (epoch + 1).is_multiple_of(n))
    }

    /// Whether a monitor that was not told better should judge at `on_train_epoch_end`: validation,
    /// if there is any, has happened exactly once by then.
    #[must_use]
    pub fn once_per_epoch(&self) -> bool {
        self.at_epoch_end && self.every_n_epochs == Some(1)
    }
}

/// Where the run stands. Everything here is a number that a checkpoint can hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The current epoch, from 0.
    pub epoch: u64,
    /// Epochs whose batches are done; one more than `epoch` from `on_train_epoch_end` on.
    pub epochs_done: u64,
    /// Completed optimizer steps: 1 at the first `on_step_end`.
    pub step: u64,
    /// Micro-batches of this epoch that have been started; the current batch's index is one less.
    pub batches: u64,
    /// Micro-batches started in all epochs.
    pub total_batches: u64,
    /// Samples seen in training.
    pub samples: u64,
    /// Tokens seen in training, where the data counts them.
    pub tokens: u64,
    /// Whether the step being worked on has been counted already.
    pub step_counted: bool,
}

impl Progress {
    /// The number of the step that the current event belongs to: the one being worked on before
    /// `on_step_end`, the one just completed from there to the end of the batch. A module that steps its
    /// optimizers itself works on the next one as soon as it goes on with its training step.
    #[must_use]
    pub fn current_step(&self) -> u64 {
        if self.step_counted { self.step } else { self.step + 1 }
    }

    /// Some batches of the current epoch are done, and not yet all.
    pub(crate) fn is_within_batches(&self) -> bool {
        self.batches > 0 && self.epochs_done == self.epoch
    }

    /// The current epoch has seen batches; after its end the next one is current.
    pub(crate) fn is_within_epoch(&self) -> bool {
        self.batches > 0 || self.epochs_done > self.epoch
    }
}
