//! Stops training when a metric stops improving.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook_core::{
    Controller, Decision, FromOptions, HookResult, HookSpec, Moment, OptionError, Phase, Policy, Stage,
    Status, Tier, TrainEpochEnd, ValidationEnd, hook,
};

use crate::checks;
use crate::mode::Mode;
use crate::support::text::{plural, significant as number};

/// The options of [`EarlyStopping`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EarlyStoppingOptions {
    /// The metric to watch.
    #[schemars(length(min = 1))]
    pub monitor: String,
    /// What counts as an improvement must be at least this much.
    #[serde(default)]
    #[schemars(range(min = 0))]
    #[schemars(extend("x-harmless-change" = true))]
    pub min_delta: f64,
    /// Checks without an improvement before it stops. Checks, not epochs.
    #[serde(default = "three")]
    #[schemars(extend("x-harmless-change" = true))]
    pub patience: u64,
    /// Which direction is better. Unset: what the metric's name tells, such as `loss` or `accuracy`; a name
    /// that leaves doubt is an error.
    #[schemars(example = &"min")]
    pub mode: Option<Mode>,
    /// A missing metric is an error, before the first step where it is known that nobody logs it; otherwise a
    /// warning.
    #[serde(default = "yes")]
    #[schemars(extend("x-harmless-change" = true))]
    pub strict: bool,
    /// A NaN or infinite metric stops at once; otherwise it is a check without an improvement.
    #[serde(default = "yes")]
    #[schemars(extend("x-harmless-change" = true))]
    pub check_finite: bool,
    /// Better than this is good enough.
    #[schemars(example = 0.01)]
    #[schemars(extend("x-harmless-change" = true))]
    pub stopping_threshold: Option<f64>,
    /// Worse than this is hopeless.
    #[schemars(example = 10.0)]
    #[schemars(extend("x-harmless-change" = true))]
    pub divergence_threshold: Option<f64>,
    /// Check at the end of the training epoch rather than after validation. Unset: when validation
    /// comes exactly once per epoch.
    #[schemars(example = true)]
    pub check_on_train_epoch_end: Option<bool>,
    /// Say at every check how it went.
    #[serde(default)]
    #[schemars(extend("x-harmless-change" = true))]
    pub verbose: bool,
}

fn three() -> u64 {
    3
}

fn yes() -> bool {
    true
}

impl EarlyStoppingOptions {
    /// The defaults for this metric.
    pub fn of(monitor: impl Into<String>) -> EarlyStoppingOptions {
        EarlyStoppingOptions {
            monitor: monitor.into(),
            min_delta: 0.0,
            patience: three(),
            mode: None,
            strict: true,
            check_finite: true,
            stopping_threshold: None,
            divergence_threshold: None,
            check_on_train_epoch_end: None,
            verbose: false,
        }
    }

    /// Which direction is better by these options, or what is wrong with them.
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

/// Asks to stop when a metric has not improved for `patience` checks.
///
/// - **Fires** at `on_validation_end`, or at `on_train_epoch_end` (see `check_on_train_epoch_end`);
///   never in a sanity check or a dry run. A monitor: at `on_train_epoch_end` it comes after the module.
///   A value that was checked already is not checked again. Stopping is a request like any other, so
///   `min_epochs` and `min_steps` come first.
/// - **Reads** the metric it monitors; writes nothing.
/// - **Cost**: one look-up per check.
/// - **When it fails** the run is aborted: a missing metric under `strict` is an error that lists
///   those there are.
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
/// # mode: unset is what the name of `monitor` tells
/// # stopping_threshold, divergence_threshold, check_on_train_epoch_end: unset
/// ```
#[derive(Clone, Debug)]
pub struct EarlyStopping {
    options: EarlyStoppingOptions,
    mode: Mode,
    memory: Memory,
}

/// What a checkpoint keeps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Memory {
    #[serde(with = "tenterhook_core::number::option")]
    best: Option<f64>,
    waited: u64,
    /// The step of the value that was checked last.
    #[serde(default)]
    checked: Option<u64>,
    /// That the metric is missing has been said.
    #[serde(default)]
    missed: bool,
}

impl FromOptions for EarlyStopping {
    type Options = EarlyStoppingOptions;
    const PURPOSE: &str = "stops training when a metric stops improving";
    const EXAMPLE: &str = r#"
monitor = "val/loss"
mode = "min"
patience = 10
min_delta = 0.0001
"#;

    fn from_options(options: EarlyStoppingOptions) -> Result<EarlyStopping, OptionError> {
        EarlyStopping::new(options)
    }
}

impl EarlyStopping {
    /// With these options, which are checked.
    pub fn new(options: EarlyStoppingOptions) -> Result<EarlyStopping, OptionError> {
        let mode = options.check()?;
        Ok(EarlyStopping { options, mode, memory: Memory::default() })
    }

    fn checks_at_epoch_end(&self, moment: &Moment<'_>) -> bool {
        self.options.check_on_train_epoch_end.unwrap_or_else(|| moment.run.validation.once_per_epoch())
    }

    fn check(&mut self, moment: &Moment<'_>) -> HookResult<Decision> {
        if moment.stage != Stage::Fit || moment.phase == Phase::SanityCheck || moment.run.fast_dev_run {
            return Ok(Decision::CONTINUE);
        }
        if moment.status == Status::Interrupted {
            // The validation that would have logged the metric was cut short, or is missing.
            return Ok(Decision::CONTINUE);
        }
        let monitor = &self.options.monitor;
        let Some(value) = moment.metrics().get(monitor) else {
            let known = moment.metrics().names().join("`, `");
            let missing = format!("metric `{monitor}` was not logged; there are: `{known}`");
            if self.options.strict {
                return Err(missing.into());
            }
            if !std::mem::replace(&mut self.memory.missed, true) {
                moment.say(format!("warning: {missing}; it is not checked"));
            }
            return Ok(Decision::CONTINUE);
        };
        // A value that is there from before was counted when it was new.
        let of = moment.metrics().step_of(monitor);
        if of.is_some_and(|of| of < moment.step) && self.memory.checked == of {
            return Ok(Decision::CONTINUE);
        }
        self.memory.checked = of;
        let best = self.memory.best;
        let reason = self.judge(value);
        if self.options.verbose {
            let (monitor, value, waited) = (&self.options.monitor, number(value), self.memory.waited);
            moment.say(match &reason {
                Some(reason) => format!("{reason}{}", delay(moment)),
                None if self.memory.best != best => format!("`{monitor}` improved to {value}"),
                None => format!("`{monitor}` = {value} is no improvement, {waited} in a row"),
            });
        }
        Ok(reason.map_or(Decision::CONTINUE, Decision::stop))
    }

    /// Why to stop, if so.
    fn judge(&mut self, value: f64) -> Option<String> {
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
        if !value.is_nan() && is_better(self.memory.best) {
            (self.memory.best, self.memory.waited) = (Some(value), 0);
            return None;
        }
        self.memory.waited = self.memory.waited.saturating_add(1);
        let waited = self.memory.waited;
        let on_what = self.memory.best.map_or(String::new(), |best| format!(" on {}", number(best)));
        let exhausted = waited >= *patience;
        exhausted.then(|| format!("`{monitor}` has not improved{on_what} in {}", plural(waited, "check")))
    }
}

/// What a request to stop waits for, if anything.
fn delay(moment: &Moment<'_>) -> String {
    let run = moment.run;
    let epochs = (moment.epoch + 1 < run.min_epochs).then(|| format!("`min_epochs` = {}", run.min_epochs));
    let steps = (moment.step < run.min_steps).then(|| format!("`min_steps` = {}", run.min_steps));
    let waits: Vec<_> = [epochs, steps].into_iter().flatten().collect();
    if waits.is_empty() { String::new() } else { format!("; training goes on until {}", waits.join(" and ")) }
}

#[hook(state = "memory")]
impl Controller for EarlyStopping {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        let spec = spec.tier(Tier::BuiltInMonitor).policy(Policy::ABORT);
        // What nobody writes is refused by the plan; without `strict` it is a warning when it is missed.
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
