//! When a checkpoint is due, and what it waits for.

use std::time::Duration;

use tenterhook_core::{Phase, RunContext, Stage, Status};

use super::options::Rhythm;
use super::{Checkpoint, nanoseconds};

impl Checkpoint {
    pub(super) fn saves_at_epoch_end(&self, run_cx: &RunContext<'_>) -> bool {
        self.options.save_on_train_epoch_end.unwrap_or_else(|| {
            let validation = &run_cx.run.validation;
            validation.every_n_epochs == Some(1) && (!validation.enabled || validation.at_epoch_end)
        })
    }

    /// Whether there is nothing new to save.
    pub(super) fn is_saved(&self, run_cx: &RunContext<'_>) -> bool {
        let rests =
            run_cx.stage != Stage::Fit || run_cx.phase == Phase::SanityCheck || run_cx.run.fast_dev_run;
        rests || is_interrupted(run_cx) || run_cx.step == self.memory.last_step
    }

    pub(super) fn batch_is_due(&mut self, run_cx: &RunContext<'_>) -> bool {
        match self.rhythm {
            Rhythm::Steps(n) => run_cx.step.is_multiple_of(n) || self.memory.deferred,
            Rhythm::Time(interval) => {
                let now = run_cx.elapsed();
                let due = now.saturating_sub(Duration::from_nanos(self.memory.last_time_ns)) >= interval;
                if due {
                    self.memory.last_time_ns = nanoseconds(now);
                }
                due || self.memory.deferred
            }
            Rhythm::Epochs(_) | Rhythm::Never => self.memory.deferred,
        }
    }

    pub(super) fn epoch_is_due(&self, run_cx: &RunContext<'_>) -> bool {
        matches!(self.rhythm, Rhythm::Epochs(n) if (run_cx.epoch + 1).is_multiple_of(n))
    }

    /// Whether the metric that a checkpoint is judged by has no value of this step.
    pub(super) fn awaits_metric(&self, run_cx: &RunContext<'_>) -> bool {
        let monitor = self.options.monitor.as_ref();
        monitor.is_some_and(|name| run_cx.metrics().step_of(name).is_none_or(|step| step < run_cx.step))
    }

    /// Whether a save waited until now: the metric has come, or should have.
    pub(super) fn wait_is_over(&mut self, run_cx: &RunContext<'_>) -> bool {
        let monitor = self.options.monitor.as_ref();
        let is_missing = monitor.is_some_and(|name| run_cx.metrics().get(name).is_none());
        let over = !self.awaits_metric(run_cx) || (is_missing && self.memory.validated);
        if over { std::mem::take(&mut self.memory.deferred) } else { false }
    }
}

/// Whether the run is being ended by a signal. The trainer has saved what there is to resume from, and the ends that
/// follow are none that training would have come to.
pub(super) fn is_interrupted(run_cx: &RunContext<'_>) -> bool {
    run_cx.status == Status::Interrupted
}
