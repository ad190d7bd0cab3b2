//! The limits of the loops, computed from the settings.

use std::time::Duration;

use tenterhook_core::{ClipRule, Progress};

use super::{BatchLimit, OnSaveError, Settings, ValInterval};
use crate::data::Split;
use crate::module::Horizon;

/// The settings as used by the loops, with `fast_dev_run`, `overfit_batches` and defaults applied.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pub(crate) max_epochs: Option<u64>,
    pub(crate) min_epochs: u64,
    pub(crate) max_steps: Option<u64>,
    pub(crate) min_steps: u64,
    pub(crate) max_time: Option<Duration>,
    pub(crate) val_check: ValInterval,
    pub(crate) check_val_every_n_epoch: Option<u64>,
    pub(crate) sanity_steps: u64,
    pub(crate) accumulate: u64,
    pub(crate) clip: Option<ClipRule>,
    pub(crate) log_every: u64,
    pub(crate) fast_dev_run: bool,
    pub(crate) shuffled: bool,
    pub(crate) trace_updates: bool,
    pub(crate) on_save_error: OnSaveError,
    pub(crate) background_saves: bool,
    pub(crate) stall_warning: Duration,
    train: BatchLimit,
    val: BatchLimit,
    test: BatchLimit,
    predict: BatchLimit,
}

fn limit(count: i64) -> Option<u64> {
    u64::try_from(count).ok()
}

/// A limit that cannot be applied to the data.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LimitError {
    #[error(
        "`limit_{key}_batches = {fraction}` of {batches} batches is less than one; use a count, or at least {least:.3}"
    )]
    LessThanOne { key: &'static str, fraction: f64, batches: u64, least: f64 },
    #[error(
        "`limit_{key}_batches = {fraction}` is a fraction of a loader whose length is unknown; use a count"
    )]
    UnknownLength { key: &'static str, fraction: f64 },
    #[error(
        "`val_check_interval = {interval}` is more than the {batches} batches of an epoch; lower it, or set \
         `check_val_every_n_epoch = \"none\"` to count across epochs"
    )]
    BeyondEpoch { interval: u64, batches: u64 },
    #[error(
        "`val_check_interval = {fraction}` is a fraction of an epoch whose length is unknown; use a count of batches"
    )]
    UnknownEpoch { fraction: f64 },
}

impl Limits {
    /// The length of training, as far as limits and data determine it. With manual optimization the number of steps
    /// per batch is unknown.
    pub(crate) fn horizon(&self, batches: Option<u64>, automatic_optimization: bool) -> Horizon {
        let batches = batches.filter(|_| automatic_optimization);
        let per_epoch = batches.map(|batches| batches.div_ceil(self.accumulate));
        Horizon::of(self.max_steps, self.max_epochs, per_epoch)
    }

    /// Whether `max_steps` is reached.
    #[inline]
    pub(crate) fn steps_are_done(&self, progress: &Progress) -> bool {
        self.max_steps.is_some_and(|max| progress.step >= max)
    }

    pub(crate) fn of(settings: &Settings) -> Limits {
        let unlimited = settings.max_steps >= 0 || settings.max_time.is_some();
        let max_epochs = settings.max_epochs.unwrap_or(if unlimited { -1 } else { 1000 });
        // With `min_steps`, a stop that is requested before training still trains one epoch.
        let min_epochs = settings.min_epochs.unwrap_or(u64::from(settings.min_steps.is_some()));
        let of = |limit: Option<BatchLimit>| limit.unwrap_or(BatchLimit::ALL);
        let mut limits = Limits {
            max_epochs: limit(max_epochs),
            min_epochs,
            max_steps: limit(settings.max_steps),
            min_steps: settings.min_steps.unwrap_or(0),
            max_time: settings.max_time.map(|time| time.0),
            val_check: settings.val_check_interval.unwrap_or(ValInterval::Batches(BatchLimit::ALL)),
            check_val_every_n_epoch: settings.check_val_every_n_epoch,
            sanity_steps: limit(settings.num_sanity_val_steps).unwrap_or(u64::MAX),
            accumulate: settings.accumulate_grad_batches.max(1),
            clip: settings.clip(),
            log_every: settings.log_every_n_steps,
            fast_dev_run: settings.fast_dev_run.0 > 0,
            shuffled: settings.overfit_batches.is_zero(),
            trace_updates: settings.trace_updates,
            on_save_error: settings.on_save_error,
            background_saves: settings.background_saves,
            stall_warning: settings.stall_warning.0,
            train: of(settings.limit_train_batches),
            val: of(settings.limit_val_batches),
            test: of(settings.limit_test_batches),
            predict: of(settings.limit_predict_batches),
        };
        if limits.fast_dev_run {
            let few = BatchLimit::Count(settings.fast_dev_run.0);
            (limits.train, limits.val, limits.test, limits.predict) = (few, few, few, few);
            limits.max_steps = Some(settings.fast_dev_run.0);
            limits.max_epochs = Some(1);
            limits.sanity_steps = 0;
            limits.val_check = ValInterval::Batches(BatchLimit::ALL);
            limits.check_val_every_n_epoch = Some(1);
        }
        if !settings.overfit_batches.is_zero() {
            (limits.train, limits.val) = (settings.overfit_batches, settings.overfit_batches);
        }
        limits
    }

    /// The maximum number of micro-batches of training, given those of an epoch.
    pub(crate) fn total_batches(&self, epoch: Option<u64>) -> Option<u64> {
        let by_epochs = epoch.zip(self.max_epochs).map(|(epoch, epochs)| epoch.saturating_mul(epochs));
        let by_steps = self.max_steps.map(|steps| steps.saturating_mul(self.accumulate));
        [by_epochs, by_steps].into_iter().flatten().min()
    }

    /// The limit of a split.
    pub(crate) fn batch_limit(&self, split: Split) -> BatchLimit {
        match split {
            Split::Train => self.train,
            Split::Validate => self.val,
            Split::Test => self.test,
            Split::Predict => self.predict,
        }
    }

    /// The number of batches of a loader to use; `None` means all.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub(crate) fn batches(&self, split: Split, length: Option<u64>) -> Result<Option<u64>, LimitError> {
        match (self.batch_limit(split), length) {
            (_, Some(0)) => Ok(Some(0)),
            (BatchLimit::Count(n), length) => Ok(Some(length.map_or(n, |length| length.min(n)))),
            (BatchLimit::Fraction(fraction), Some(length)) => {
                let batches = (length as f64 * fraction) as u64;
                if batches == 0 && fraction > 0.0 {
                    return Err(LimitError::LessThanOne {
                        key: split.key(),
                        fraction,
                        batches: length,
                        least: 1.0 / length as f64,
                    });
                }
                Ok(Some(batches))
            }
            (BatchLimit::Fraction(fraction), None) if fraction < 1.0 => {
                Err(LimitError::UnknownLength { key: split.key(), fraction })
            }
            (BatchLimit::Fraction(_), None) => Ok(None),
        }
    }

    /// The number of batches between validations; `None` if by time, or at the end of an epoch of unknown
    /// length.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub(crate) fn val_check_batches(&self, epoch: Option<u64>) -> Result<Option<u64>, LimitError> {
        match (self.val_check, epoch) {
            (ValInterval::Batches(BatchLimit::Count(n)), epoch) => {
                let validates = !self.val.is_zero() && self.check_val_every_n_epoch.is_some();
                if let Some(batches) = epoch.filter(|batches| validates && n > *batches) {
                    return Err(LimitError::BeyondEpoch { interval: n, batches });
                }
                Ok(Some(n))
            }
            (ValInterval::Batches(BatchLimit::Fraction(f)), Some(batches)) => {
                Ok(Some(((batches as f64 * f) as u64).max(1)))
            }
            (ValInterval::Batches(BatchLimit::Fraction(fraction)), None) if fraction < 1.0 => {
                Err(LimitError::UnknownEpoch { fraction })
            }
            (ValInterval::Batches(BatchLimit::Fraction(_)), None) | (ValInterval::Time(_), _) => Ok(None),
        }
    }

    /// Whether validation runs exactly at the end of an epoch. As in Lightning, the count 1 counts as the
    /// whole epoch here, although it validates after each batch.
    pub(crate) fn validates_at_epoch_end(&self) -> bool {
        match self.val_check {
            ValInterval::Batches(BatchLimit::Fraction(f)) => f >= 1.0,
            ValInterval::Batches(BatchLimit::Count(n)) => n == 1,
            ValInterval::Time(_) => false,
        }
    }
}
