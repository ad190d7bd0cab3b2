//! Notices when a metric has stopped moving.

use std::collections::VecDeque;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook_core::{
    Cadence, FromOptions, HookResult, HookSpec, Observer, OptionError, RunContext, Status, Tier,
    TrainEpochEnd, hook,
};

use crate::checks;

/// The options of [`PlateauDetector`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PlateauDetectorOptions {
    /// The metric to watch.
    #[schemars(length(min = 1))]
    pub monitor: String,
    /// Over how many epochs: 2 or more. Epochs in which the metric was not logged do not count.
    #[schemars(range(min = 2))]
    pub window: usize,
    /// It is a plateau when the largest and the smallest value of the window differ by less than this.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub threshold: f64,
    /// The threshold is a share of the values' mean: 0.01 is one percent.
    pub relative: bool,
    /// After a plateau was said, say none for so many epochs.
    pub cooldown: u64,
}

impl Default for PlateauDetectorOptions {
    fn default() -> PlateauDetectorOptions {
        let (monitor, threshold) = ("train/loss".to_owned(), 0.001);
        PlateauDetectorOptions { monitor, window: 5, threshold, relative: false, cooldown: 0 }
    }
}

/// Says when a metric has hardly moved for some epochs.
///
/// - **Fires** at `on_train_epoch_end`. A monitor: it comes after the module, so it sees what that logs there.
/// - **Reads** the metric it monitors; **writes** `plateau/<monitor>`: 1 while there is a plateau, else 0. It
///   says so once per plateau: a new one begins when the range has been wider in between.
/// - **Cost**: one look-up per epoch.
/// - **When it fails** it is disabled after three failures, and training goes on. A metric that is missing
///   is said once and is no failure.
///
/// It changes nothing. To act on a plateau use `early_stopping`, or a schedule of the kind `plateau`.
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
    /// What it logs under.
    logged_as: String,
    memory: Memory,
}

/// What a checkpoint keeps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Memory {
    /// The last values, the newest last.
    values: VecDeque<Value>,
    /// The step at the end of the last epoch: what was logged before it is old.
    step: u64,
    on_plateau: bool,
    /// This plateau has been said.
    said: bool,
    /// The epoch from which on plateaus are said again.
    quiet_until: u64,
    /// That the metric is missing has been said.
    #[serde(default)]
    missed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Value(#[serde(with = "tenterhook_core::number")] f64);

impl FromOptions for PlateauDetector {
    type Options = PlateauDetectorOptions;
    const PURPOSE: &str = "says when a metric has hardly moved for some epochs";
    const EXAMPLE: &str = r#"
monitor = "val/loss"
window = 5
threshold = 0.01
relative = true
"#;

    fn from_options(options: PlateauDetectorOptions) -> Result<PlateauDetector, OptionError> {
        PlateauDetector::new(options)
    }
}

impl PlateauDetector {
    /// With these options, which are checked.
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
        let logged_as = format!("plateau/{}", options.monitor);
        Ok(PlateauDetector { options, logged_as, memory: Memory::default() })
    }

    /// Whether the metric is on a plateau now.
    #[must_use]
    pub fn is_on_plateau(&self) -> bool {
        self.memory.on_plateau
    }

    /// The metric, if it was logged since the end of the last epoch.
    fn fresh(&mut self, run_cx: &RunContext<'_>) -> Option<f64> {
        let (monitor, metrics) = (&self.options.monitor, run_cx.metrics());
        let Some(value) = metrics.get(monitor) else {
            // What a validation logs that comes only every few epochs is not missed before it is due.
            let validation = &run_cx.run.validation;
            if !self.memory.missed && (!validation.enabled || validation.due_in(run_cx.epoch)) {
                self.memory.missed = true;
                let known = metrics.names().join("`, `");
                run_cx.say(format!("warning: metric `{monitor}` was not logged; there are: `{known}`"));
            }
            return None;
        };
        let before = std::mem::replace(&mut self.memory.step, run_cx.step);
        metrics.step_of(monitor).is_none_or(|step| step > before || before == 0).then_some(value)
    }

    /// The range of the window when it is a plateau.
    fn plateau(&self) -> Option<f64> {
        let values = || self.memory.values.iter().map(|value| value.0);
        if self.memory.values.len() < self.options.window || !values().all(f64::is_finite) {
            return None;
        }
        let (low, high) = values()
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        let mean = values().sum::<f64>() / self.memory.values.len() as f64;
        let unit = if self.options.relative { mean.abs() } else { 1.0 };
        // Values that do not differ at all are a plateau also where the unit is 0.
        let (range, limit) = (high - low, self.options.threshold * unit);
        (range < limit || range == 0.0).then_some(range)
    }

    fn say(&self, run_cx: &RunContext<'_>, range: f64) {
        let PlateauDetectorOptions { monitor, window, threshold, relative, .. } = &self.options;
        let of = if *relative { " of their mean" } else { "" };
        let newest = self.memory.values.back().map_or(f64::NAN, |value| value.0);
        run_cx.say(format!(
            "plateau: `{monitor}` = {newest} has moved by {range} in the last {window} epochs, less than \
             {threshold}{of}"
        ));
    }
}

#[hook(state = "memory")]
impl Observer for PlateauDetector {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        let spec = spec.tier(Tier::BuiltInMonitor);
        let spec = spec.monitors(&self.options.monitor).writes(&self.logged_as);
        let window = self.options.window;
        spec.needs_run_length("window", Cadence::Epochs(window as u64))
    }

    fn on_train_epoch_end(&mut self, cx: &TrainEpochEnd) -> HookResult {
        if cx.status == Status::Interrupted {
            // The epoch was cut short, and what it logged is of a part of it.
            return Ok(());
        }
        let Some(value) = self.fresh(cx) else { return Ok(()) };
        self.memory.values.push_back(Value(value));
        if self.memory.values.len() > self.options.window {
            self.memory.values.pop_front();
        }
        let plateau = self.plateau();
        self.memory.on_plateau = plateau.is_some();
        self.memory.said &= plateau.is_some();
        cx.log(&self.logged_as, f64::from(u8::from(plateau.is_some())));
        let silent = self.memory.said || cx.epoch < self.memory.quiet_until;
        if let Some(range) = plateau.filter(|_| !silent) {
            self.say(cx, range);
            self.memory.said = true;
            self.memory.quiet_until = (cx.epoch + 1).saturating_add(self.options.cooldown);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
