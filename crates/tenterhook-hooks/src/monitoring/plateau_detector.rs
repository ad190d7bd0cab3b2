//! Detects when a metric stops changing.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use tenterhook_core::{
    Cadence, HookResult, HookSpec, Observer, OptionError, RunContext, Status, Tier, TrainEpochEnd, hook,
};

use crate::support::checks;
use crate::support::{from_options, options};

options! {
    /// The options of [`PlateauDetector`].
    pub struct PlateauDetectorOptions {
        /// The metric to monitor.
        #[schemars(length(min = 1))]
        pub monitor: String = "train/loss".to_owned(),
        /// Number of epochs to compare, 2 or more. Epochs without a value of the metric do not count.
        #[schemars(range(min = 2))]
        pub window: usize = 5,
        /// The metric is on a plateau if the range of its values in the window is below this.
        #[schemars(extend("exclusiveMinimum" = 0))]
        pub threshold: f64 = 0.001,
        /// Interpret `threshold` relative to the mean of the values: 0.01 is one percent.
        pub relative: bool = false,
        /// Number of epochs after a report in which no further plateau is reported.
        pub cooldown: u64 = 0,
    }
}

/// Reports when a metric has hardly changed for some epochs.
///
/// - **Fires** at `on_train_epoch_end`, as a monitor: after the module, so it sees metrics that the module logs there.
/// - **Reads** the monitored metric; **writes** `plateau/<monitor>`: 1 on a plateau, else 0. Each plateau is reported once;
///   it ends when the range is wide enough again.
/// - **Cost**: one lookup per epoch.
/// - **When it fails** it is disabled after three failures; training continues. A missing metric is reported once and is
///   not a failure.
///
/// It does not affect training. To act on a plateau, use `early_stopping` or a scheduler of the kind `plateau`.
///
/// ```toml
/// [[hooks]]
/// use = "plateau_detector"
/// monitor = "train/loss"
/// window = 5
/// threshold = 0.001
/// relative = false
/// cooldown = 0
/// ```
#[derive(Clone, Debug)]
pub struct PlateauDetector {
    options: PlateauDetectorOptions,
    /// The name of the metric that it writes.
    metric: String,
    state: SavedState,
}

/// State saved in checkpoints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct SavedState {
    /// The last values, newest last.
    values: VecDeque<Value>,
    /// The step at the end of the last epoch: values logged before it are old.
    step: u64,
    on_plateau: bool,
    /// Whether this plateau was reported.
    reported: bool,
    /// The first epoch in which a plateau is reported again.
    cooldown_until: u64,
    /// Whether the missing metric was reported.
    #[serde(default)]
    missing_reported: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Value(#[serde(with = "tenterhook_core::number")] f64);

from_options! {
    PlateauDetector from PlateauDetectorOptions,
    purpose: "reports when a metric has hardly changed for some epochs",
    example: r#"
monitor = "val/loss"
window = 5
threshold = 0.01
relative = true
"#
}

impl PlateauDetector {
    /// Creates the hook, or reports an invalid option.
    pub fn new(options: PlateauDetectorOptions) -> Result<PlateauDetector, OptionError> {
        checks::filled("monitor", options.monitor.is_empty(), "name a metric, such as \"train/loss\"")?;
        if options.window < 2 {
            return Err(OptionError::new(
                "window",
                "`window` must be 2 or more: a single value has no range",
            ));
        }
        let threshold = options.threshold;
        checks::fits("threshold", threshold, threshold.is_finite() && threshold > 0.0, "it must be above 0")?;
        let metric = format!("plateau/{}", options.monitor);
        Ok(PlateauDetector { options, metric, state: SavedState::default() })
    }

    /// Whether the metric is on a plateau now.
    #[must_use]
    pub fn is_on_plateau(&self) -> bool {
        self.state.on_plateau
    }

    /// The metric's value, if it was logged since the end of the last epoch.
    fn new_value(&mut self, run_cx: &RunContext<'_>) -> Option<f64> {
        let (monitor, metrics) = (&self.options.monitor, run_cx.metrics());
        let Some(value) = metrics.get(monitor) else {
            // Before the first validation is due, its metric is not missing.
            let validation = &run_cx.run.validation;
            if !self.state.missing_reported && (!validation.enabled || validation.due_in(run_cx.epoch)) {
                self.state.missing_reported = true;
                let known = metrics.names().join("`, `");
                run_cx.say(format!("warning: metric `{monitor}` was not logged; logged metrics: `{known}`"));
            }
            return None;
        };
        let before = std::mem::replace(&mut self.state.step, run_cx.step);
        metrics.step_of(monitor).is_none_or(|step| step > before || before == 0).then_some(value)
    }

    /// The range of the values, if they are a plateau.
    fn plateau(&self) -> Option<f64> {
        let values = || self.state.values.iter().map(|value| value.0);
        if self.state.values.len() < self.options.window || !values().all(f64::is_finite) {
            return None;
        }
        let (low, high) = values()
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        let mean = values().sum::<f64>() / self.state.values.len() as f64;
        let unit = if self.options.relative { mean.abs() } else { 1.0 };
        // Equal values are a plateau even if their mean is 0.
        let (range, limit) = (high - low, self.options.threshold * unit);
        (range < limit || range == 0.0).then_some(range)
    }

    fn report(&self, run_cx: &RunContext<'_>, range: f64) {
        let PlateauDetectorOptions { monitor, window, threshold, relative, .. } = &self.options;
        let of = if *relative { " of their mean" } else { "" };
        let newest = self.state.values.back().map_or(f64::NAN, |value| value.0);
        run_cx.say(format!(
            "plateau: `{monitor}` = {newest} has changed by {range} in the last {window} epochs, less than \
             {threshold}{of}"
        ));
    }
}

#[hook(state = "state", version = 2)]
impl Observer for PlateauDetector {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        let spec = spec.tier(Tier::BuiltInMonitor);
        let spec = spec.monitors(&self.options.monitor).writes(&self.metric);
        let window = self.options.window;
        spec.min_run_length("window", Cadence::Epochs(window as u64))
    }

    fn on_train_epoch_end(&mut self, cx: &TrainEpochEnd) -> HookResult {
        if cx.status == Status::Interrupted {
            // The metrics of an interrupted epoch cover only a part of it.
            return Ok(());
        }
        let Some(value) = self.new_value(cx) else { return Ok(()) };
        self.state.values.push_back(Value(value));
        if self.state.values.len() > self.options.window {
            self.state.values.pop_front();
        }
        let plateau = self.plateau();
        self.state.on_plateau = plateau.is_some();
        self.state.reported &= plateau.is_some();
        cx.log(&self.metric, f64::from(u8::from(plateau.is_some())));
        let is_silent = self.state.reported || cx.epoch < self.state.cooldown_until;
        if let Some(range) = plateau.filter(|_| !is_silent) {
            self.report(cx, range);
            self.state.reported = true;
            self.state.cooldown_until = (cx.epoch + 1).saturating_add(self.options.cooldown);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
