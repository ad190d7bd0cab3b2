//! When a checkpoint is due, and when a save is deferred until the monitored metric is logged.

use std::time::Duration;

use tenterhook_core::{Phase, RunContext, Stage, Status};

use super::options::SaveInterval;
use super::{Checkpoint, nanoseconds};

impl Checkpoint {
    pub(super) fn saves_at_epoch_end(&self, run_cx: &RunContext<'_>) -> bool {
        self.options.save_on_train_epoch_end.unwrap_or_else(|| {
            let validation = &run_cx.run.validation;
            validation.every_n_epochs == Some(1) && (!validation.enabled || validation.at_epoch_end)
        })
    }

    /// Whether no save is due: outside training, in a dry run, after a signal, or if this step is already saved.
    pub(super) fn nothing_to_save(&self, run_cx: &RunContext<'_>) -> bool {
        let inactive =
            run_cx.stage != Stage::Fit || run_cx.phase == Phase::SanityCheck || run_cx.run.fast_dev_run;
        inactive || is_interrupted(run_cx) || run_cx.step == self.state.last_step
    }

    pub(super) fn batch_is_due(&mut self, run_cx: &RunContext<'_>) -> bool {
        match self.interval {
            SaveInterval::Steps(n) => run_cx.step.is_multiple_of(n) || self.state.deferred,
            SaveInterval::Time(interval) => {
                let now = run_cx.elapsed();
                let due = now.saturating_sub(Duration::from_nanos(self.state.last_time_ns)) >= interval;
                if due {
                    self.state.last_time_ns = nanoseconds(now);
                }
                due || self.state.deferred
            }
            SaveInterval::Epochs(_) | SaveInterval::Never => self.state.deferred,
        }
    }

    pub(super) fn epoch_is_due(&self, run_cx: &RunContext<'_>) -> bool {
        matches!(self.interval, SaveInterval::Epochs(n) if (run_cx.epoch + 1).is_multiple_of(n))
    }

    /// Whether the monitored metric has no value of this step yet.
    pub(super) fn awaits_metric(&self, run_cx: &RunContext<'_>) -> bool {
        let monitor = self.options.monitor.as_ref();
        monitor.is_some_and(|name| run_cx.metrics().step_of(name).is_none_or(|step| step < run_cx.step))
    }

    /// Whether a deferred save is due now: the metric was logged, or is missing after a validation. If so, clears it.
    pub(super) fn take_deferred(&mut self, run_cx: &RunContext<'_>) -> bool {
        let monitor = self.options.monitor.as_ref();
        let is_missing = monitor.is_some_and(|name| run_cx.metrics().get(name).is_none());
        let over = !self.awaits_metric(run_cx) || (is_missing && self.state.validated);
        if over { std::mem::take(&mut self.state.deferred) } else { false }
    }
}

/// Whether a signal ends the run. The trainer then saves a checkpoint itself, and the end events that follow would not
/// occur in an uninterrupted run.
pub(super) fn is_interrupted(run_cx: &RunContext<'_>) -> bool {
    run_cx.status == Status::Interrupted
}
