//! Stops training when a metric stops improving.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook_core::{
    Access, Controller, Decision, FromOptions, HookResult, Moment, OptionError, Phase, Policy, Stage, State,
    Status, Tier, TrainEpochEnd, ValidationEnd, hook,
};

use crate::mode::Mode;

/// The options of [`EarlyStopping`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EarlyStoppingOptions {
    /// The metric to watch.
    pub monitor: String,
    /// What counts as an improvement must be at least this much.
    #[serde(default)]
    pub min_delta: f64,
    /// Checks without an improvement before it stops. Checks, not epochs.
    #[serde(default = "three")]
    pub patience: u64,
    /// Which direction is better.
    #[serde(default)]
    pub mode: Mode,
    /// A missing metric is an error.
    #[serde(default = "yes")]
    pub strict: bool,
    /// A NaN or infinite metric stops at once.
    #[serde(default = "yes")]
    pub check_finite: bool,
    /// Better than this is good enough.
    #[schemars(example = 0.01)]
    pub stopping_threshold: Option<f64>,
    /// Worse than this is hopeless.
    #[schemars(example = 10.0)]
    pub divergence_threshold: Option<f64>,
    /// Check at the end of the training epoch rather than after validation. Unset: when validation
    /// comes exactly once per epoch.
    #[schemars(example = true)]
    pub check_on_train_epoch_end: Option<bool>,
    /// Say at every check how it went.
    #[serde(default)]
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
            mode: Mode::Min,
            strict: true,
            check_finite: true,
            stopping_threshold: None,
            divergence_threshold: None,
            check_on_train_epoch_end: None,
            verbose: false,
        }
    }
}

/// Asks to stop when a metric has not improved for `patience` checks.
///
/// - **Fires** at `on_validation_end`, or at `on_train_epoch_end` (see `check_on_train_epoch_end`);
///   never in a sanity check or a dry run. A monitor: at `on_train_epoch_end` it comes after the module.
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
/// mode = "min"
/// min_delta = 0.0
/// strict = true
/// check_finite = true
/// verbose = false
/// # stopping_threshold, divergence_threshold, check_on_train_epoch_end: unset
/// ```
#[derive(Clone, Debug)]
pub struct EarlyStopping {
    options: EarlyStoppingOptions,
    memory: Memory,
}

/// What a checkpoint keeps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Memory {
    best: Option<f64>,
    waited: u64,
}

const VERSION: u32 = 1;

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
        Ok(EarlyStopping::new(options))
    }
}

impl EarlyStopping {
    /// With these options.
    #[must_use]
    pub fn new(options: EarlyStoppingOptions) -> EarlyStopping {
        EarlyStopping { options, memory: Memory::default() }
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
            if !self.options.strict {
                return Ok(Decision::CONTINUE);
            }
            let known = moment.metrics().names().join("`, `");
            return Err(format!("metric `{monitor}` was not logged; there are: `{known}`").into());
        };
        let best = self.memory.best;
        let reason = self.judge(value);
        if self.options.verbose {
            let monitor = &self.options.monitor;
            match &reason {
                Some(reason) => moment.say(format!("{reason}; stopping")),
                None if self.memory.best != best => moment.say(format!("`{monitor}` improved to {value}")),
                None => moment
                    .say(format!("`{monitor}` = {value} is no improvement, {} in a row", self.memory.waited)),
            }
        }
        Ok(reason.map_or(Decision::CONTINUE, Decision::stop))
    }

    /// Why to stop, if so.
    fn judge(&mut self, value: f64) -> Option<String> {
        let EarlyStoppingOptions { monitor, mode, min_delta, patience, .. } = &self.options;
        if self.options.check_finite && !value.is_finite() {
            return Some(format!("`{monitor}` = {value} is not finite"));
        }
        if let Some(threshold) = self.options.stopping_threshold.filter(|limit| mode.is_better(value, *limit))
        {
            return Some(format!("`{monitor}` = {value} is better than the stopping threshold {threshold}"));
        }
        if let Some(threshold) =
            self.options.divergence_threshold.filter(|limit| mode.is_better(*limit, value))
        {
            return Some(format!("`{monitor}` = {value} is worse than the divergence threshold {threshold}"));
        }
        let needed = match mode {
            Mode::Min => value + min_delta,
            Mode::Max => value - min_delta,
        };
        if self.memory.best.is_none_or(|best| mode.is_better(needed, best)) {
            self.memory = Memory { best: Some(value), waited: 0 };
            return None;
        }
        self.memory.waited += 1;
        let (waited, best) = (self.memory.waited, self.memory.best.unwrap_or(value));
        let exhausted = waited >= *patience;
        exhausted.then(|| format!("`{monitor}` has not improved on {best} in {waited} checks"))
    }
}

#[hook]
impl Controller for EarlyStopping {
    fn access(&self) -> Access {
        Access::none().monitors(&self.options.monitor)
    }

    fn tier(&self) -> Tier {
        Tier::BuiltInMonitor
    }

    fn policy(&self) -> Policy {
        Policy::ABORT
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

    fn state_dict(&self) -> HookResult<State> {
        Ok(State::of(VERSION, &self.memory)?)
    }

    fn load_state_dict(&mut self, state: &State) -> HookResult {
        self.memory = state.read(VERSION)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stops_at(options: EarlyStoppingOptions, values: &[f64]) -> Option<(usize, String)> {
        let mut hook = EarlyStopping::new(options);
        values.iter().enumerate().find_map(|(at, value)| Some((at, hook.judge(*value)?)))
    }

    #[test]
    fn patience_counts_checks_without_improvement() {
        let options = EarlyStoppingOptions { patience: 2, ..EarlyStoppingOptions::of("m") };
        assert_eq!(
            stops_at(options.clone(), &[3.0, 2.0, 2.0, 1.0, 1.5, 1.0, 0.0]).map(|(at, _)| at),
            Some(5)
        );
        assert_eq!(stops_at(options, &[3.0, 2.0, 1.0]), None);
    }

    #[test]
    fn an_improvement_smaller_than_min_delta_is_none() {
        let options = EarlyStoppingOptions { patience: 1, min_delta: 0.5, ..EarlyStoppingOptions::of("m") };
        assert_eq!(stops_at(options.clone(), &[3.0, 2.4, 2.0]).map(|(at, _)| at), Some(2));
        let max = EarlyStoppingOptions { mode: Mode::Max, ..options };
        assert_eq!(stops_at(max, &[1.0, 2.0, 2.5]).map(|(at, _)| at), Some(2));
    }

    #[test]
    fn thresholds_and_what_is_not_finite_stop_at_once_and_say_why() {
        let options = EarlyStoppingOptions {
            stopping_threshold: Some(0.1),
            divergence_threshold: Some(10.0),
            ..EarlyStoppingOptions::of("m")
        };
        for (value, reason) in [
            (0.05, "`m` = 0.05 is better than the stopping threshold 0.1"),
            (11.0, "`m` = 11 is worse than the divergence threshold 10"),
            (f64::NAN, "`m` = NaN is not finite"),
        ] {
            assert_eq!(stops_at(options.clone(), &[1.0, value]), Some((1, reason.to_owned())));
        }
        assert_eq!(stops_at(options, &[1.0, 0.1, 10.0]), None);
    }
}
