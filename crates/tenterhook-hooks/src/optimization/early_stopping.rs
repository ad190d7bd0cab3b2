//! Stops training when a monitored metric stops improving.

use serde::{Deserialize, Serialize};
use tenterhook_core::{
    Controller, Decision, HookResult, HookSpec, OptionError, Phase, Policy, RunContext, Stage, Status, Tier,
    TrainEpochEnd, ValidationEnd, hook,
};

use crate::support::checks;
use crate::support::mode::Mode;
use crate::support::text::{plural, significant as number};
use crate::support::{from_options, options};

options! {
    /// The options of [`EarlyStopping`].
    pub struct EarlyStoppingOptions {
        /// The metric to monitor.
        #[schemars(length(min = 1))]
        pub monitor: String,
        /// Minimum change of the metric that counts as an improvement.
        #[schemars(range(min = 0))]
        #[schemars(extend("x-harmless-change" = true))]
        pub min_delta: f64 = 0.0,
        /// Number of checks without improvement after which training stops. Checks, not epochs.
        #[schemars(extend("x-harmless-change" = true))]
        pub patience: u64 = 3,
        /// Whether lower (`min`) or higher (`max`) values of the metric are better. Unset: inferred from its name, such as
        /// `loss` or `accuracy`; an ambiguous name is an error.
        #[schemars(example = &"min")]
        pub mode: Option<Mode> = None,
        /// Fail instead of warning if the metric is missing. If no hook or module declares it, the run fails before the
        /// first step.
        #[schemars(extend("x-harmless-change" = true))]
        pub strict: bool = true,
        /// Stop training when the metric becomes NaN or infinite. Otherwise such a value counts as no improvement.
        #[schemars(extend("x-harmless-change" = true))]
        pub check_finite: bool = true,
        /// Stop training as soon as the metric is better than this.
        #[schemars(example = 0.01)]
        #[schemars(extend("x-harmless-change" = true))]
        pub stopping_threshold: Option<f64> = None,
        /// Stop training as soon as the metric is worse than this.
        #[schemars(example = 10.0)]
        #[schemars(extend("x-harmless-change" = true))]
        pub divergence_threshold: Option<f64> = None,
        /// Check at the end of the training epoch instead of after validation. Unset: only if there is exactly one
        /// validation per epoch.
        #[schemars(example = true)]
        pub check_on_train_epoch_end: Option<bool> = None,
        /// Report the result of every check.
        #[schemars(extend("x-harmless-change" = true))]
        pub verbose: bool = false,
    }
}

impl EarlyStoppingOptions {
    /// Default options for this metric.
    pub fn new(monitor: impl Into<String>) -> EarlyStoppingOptions {
        EarlyStoppingOptions::with_defaults(monitor.into())
    }

    /// Checks the options and returns the direction of the metric.
    fn check(&self) -> Result<Mode, OptionError> {
        checks::filled("monitor", self.monitor.is_empty(), "name a metric, such as \"val/loss\"")?;
        let fits = self.min_delta >= 0.0 && self.min_delta.is_finite();
        checks::fits("min_delta", self.min_delta, fits, "it must be 0 or more")?;
        for (key, threshold) in [
            ("stopping_threshold", self.stopping_threshold),
            ("divergence_threshold", self.divergence_threshold),
        ] {
            if threshold.is_some_and(f64::is_nan) {
                return Err(OptionError::new(key, format!("`{key}` must be a number, or left out")));
            }
        }
        Mode::resolve(self.mode, &self.monitor)
    }
}

/// Stops training when a monitored metric has not improved for `patience` checks.
///
/// - **Fires** at `on_validation_end`, or at `on_train_epoch_end` after the module (see `check_on_train_epoch_end`); never
///   in a sanity check or a dry run. A value is checked only once. Stopping is a request: `min_epochs` and `min_steps`
///   take precedence.
/// - **Reads** the monitored metric; writes nothing.
/// - **Cost**: one lookup per check.
/// - **When it fails** the run is aborted: with `strict`, a missing metric is an error that lists the existing ones.
///
/// ```toml
/// [[hooks]]
/// use = "early_stopping"
/// monitor = "val/loss"
/// patience = 3
/// min_delta = 0.0
/// strict = true
/// check_finite = true
/// verbose = false
/// # mode: unset is inferred from the name of `monitor`
/// # stopping_threshold, divergence_threshold, check_on_train_epoch_end: unset
/// ```
#[derive(Clone, Debug)]
pub struct EarlyStopping {
    options: EarlyStoppingOptions,
    mode: Mode,
    state: SavedState,
}

/// State saved in checkpoints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct SavedState {
    #[serde(with = "tenterhook_core::number::option")]
    best: Option<f64>,
    /// The number of checks without improvement.
    waited: u64,
    /// The step of the last checked value.
    #[serde(default)]
    checked: Option<u64>,
    /// The missing metric was reported.
    #[serde(default)]
    missing_reported: bool,
}

from_options! {
    EarlyStopping from EarlyStoppingOptions,
    purpose: "stops training when a metric stops improving",
    example: r#"
monitor = "val/loss"
mode = "min"
patience = 10
min_delta = 0.0001
"#
}

impl EarlyStopping {
    /// Creates the hook, or reports an invalid option.
    pub fn new(options: EarlyStoppingOptions) -> Result<EarlyStopping, OptionError> {
        let mode = options.check()?;
        Ok(EarlyStopping { options, mode, state: SavedState::default() })
    }

    fn checks_at_epoch_end(&self, run_cx: &RunContext<'_>) -> bool {
        self.options.check_on_train_epoch_end.unwrap_or_else(|| run_cx.run.validation.once_per_epoch())
    }

    fn check(&mut self, run_cx: &RunContext<'_>) -> HookResult<Decision> {
        if run_cx.stage != Stage::Fit || run_cx.phase == Phase::SanityCheck || run_cx.run.fast_dev_run {
            return Ok(Decision::CONTINUE);
        }
        if run_cx.status == Status::Interrupted {
            // The validation that logs the metric was interrupted or skipped.
            return Ok(Decision::CONTINUE);
        }
        let monitor = &self.options.monitor;
        let Some(value) = run_cx.metrics().get(monitor) else {
            let known = run_cx.metrics().names().join("`, `");
            let missing = format!("metric `{monitor}` was not logged; logged metrics: `{known}`");
            if self.options.strict {
                return Err(missing.into());
            }
            if !std::mem::replace(&mut self.state.missing_reported, true) {
                run_cx.say(format!("warning: {missing}; it is not checked"));
            }
            return Ok(Decision::CONTINUE);
        };
        // An old value is not checked again.
        let metric_step = run_cx.metrics().step_of(monitor);
        if metric_step.is_some_and(|step| step < run_cx.step) && self.state.checked == metric_step {
            return Ok(Decision::CONTINUE);
        }
        self.state.checked = metric_step;
        let best = self.state.best;
        let reason = self.stop_reason(value);
        if self.options.verbose {
            let (monitor, value, waited) = (&self.options.monitor, number(value), self.state.waited);
            run_cx.say(match &reason {
                Some(reason) => format!("{reason}{}", delay(run_cx)),
                None if self.state.best != best => format!("`{monitor}` improved to {value}"),
                None => {
                    format!("`{monitor}` = {value} did not improve, {} in a row", plural(waited, "check"))
                }
            });
        }
        Ok(reason.map_or(Decision::CONTINUE, Decision::stop))
    }

    /// The reason to stop, if there is one.
    fn stop_reason(&mut self, value: f64) -> Option<String> {
        let EarlyStoppingOptions { monitor, min_delta, patience, .. } = &self.options;
        let mode = self.mode;
        let shown = number(value);
        if self.options.check_finite && !value.is_finite() {
            return Some(format!("`{monitor}` = {shown} is not finite"));
        }
        if let Some(threshold) = self.options.stopping_threshold.filter(|limit| mode.is_better(value, *limit))
        {
            return Some(format!("`{monitor}` = {shown} is better than the stopping threshold {threshold}"));
        }
        if let Some(threshold) =
            self.options.divergence_threshold.filter(|limit| mode.is_better(*limit, value))
        {
            return Some(format!("`{monitor}` = {shown} is worse than the divergence threshold {threshold}"));
        }
        let needed = match mode {
            Mode::Min => value + min_delta,
            Mode::Max => value - min_delta,
        };
        let is_better = |best: Option<f64>| best.is_none_or(|best| mode.is_better(needed, best));
        if !value.is_nan() && is_better(self.state.best) {
            (self.state.best, self.state.waited) = (Some(value), 0);
            return None;
        }
        self.state.waited = self.state.waited.saturating_add(1);
        let waited = self.state.waited;
        let on_what = self.state.best.map_or(String::new(), |best| format!(" on {}", number(best)));
        let exhausted = waited >= *patience;
        exhausted.then(|| format!("`{monitor}` has not improved{on_what} in {}", plural(waited, "check")))
    }
}

/// A note if `min_epochs` or `min_steps` delays the stop, otherwise empty.
fn delay(run_cx: &RunContext<'_>) -> String {
    let run = run_cx.run;
    let epochs = (run_cx.epoch + 1 < run.min_epochs).then(|| format!("`min_epochs` = {}", run.min_epochs));
    let steps = (run_cx.step < run.min_steps).then(|| format!("`min_steps` = {}", run.min_steps));
    let waits: Vec<_> = [epochs, steps].into_iter().flatten().collect();
    if waits.is_empty() {
        String::new()
    } else {
        format!("; training continues until {}", waits.join(" and "))
    }
}

#[hook(state = "state", version = 2)]
impl Controller for EarlyStopping {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        let spec = spec.tier(Tier::BuiltInMonitor).policy(Policy::ABORT);
        // The plan rejects a metric that is never written; without `strict` it is only reported at the first check.
        let monitored = self.options.strict.then_some(&self.options.monitor);
        monitored.into_iter().fold(spec, HookSpec::monitors)
    }

    fn on_validation_end(&mut self, cx: &ValidationEnd) -> HookResult<Decision> {
        if self.checks_at_epoch_end(cx) {
            return Ok(Decision::CONTINUE);
        }
        self.check(cx)
    }

    fn on_train_epoch_end(&mut self, cx: &TrainEpochEnd) -> HookResult<Decision> {
        if !self.checks_at_epoch_end(cx) {
            return Ok(Decision::CONTINUE);
        }
        self.check(cx)
    }
}

#[cfg(test)]
mod tests;
