//! Schedules that fall in steps.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook_core::OptionError;

use super::curve::{Curve, Length, Warmup, all, is_counted, is_factor, schedulers, warmup_from};
use super::{Checked, ScheduleError};

schedulers! { Step MultiStep }

fn tenth() -> f64 {
    0.1
}

/// The same factor after every so many steps, on top of the last; torch's `StepLR`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// After every how many steps of this schedule.
    pub step_size: u64,
    /// What every learning rate is multiplied by then.
    #[serde(default = "tenth")]
    pub gamma: f64,
    /// So many steps of rising, in a straight line, before.
    #[serde(default)]
    pub warmup: u64,
    /// The share of the learning rate that the warm-up begins with.
    #[serde(default = "warmup_from")]
    pub warmup_from: f64,
}

impl Checked for Step {
    fn problem(&self) -> Option<OptionError> {
        let rules = [is_counted("step_size", self.step_size), is_factor("gamma", self.gamma)];
        all(rules).or_else(|| self.warmup().problem())
    }
}

impl Curve for Step {
    const NAME: &'static str = "step";

    fn warmup(&self) -> Warmup {
        Warmup { ticks: self.warmup, from: self.warmup_from }
    }

    fn at(&self, count: u64, _: Length) -> Result<f64, ScheduleError> {
        Ok(self.gamma.powf((count / self.step_size.max(1)) as f64))
    }
}

/// The same factor at each of these steps, on top of the last; torch's `MultiStepLR`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MultiStep {
    /// After how many steps of this schedule (beyond the warm-up), each time.
    pub milestones: Vec<u64>,
    /// What every learning rate is multiplied by then.
    #[serde(default = "tenth")]
    pub gamma: f64,
    /// So many steps of rising, in a straight line, before.
    #[serde(default)]
    pub warmup: u64,
    /// The share of the learning rate that the warm-up begins with.
    #[serde(default = "warmup_from")]
    pub warmup_from: f64,
}

impl Checked for MultiStep {
    fn problem(&self) -> Option<OptionError> {
        let empty = OptionError::new("milestones", "`milestones` is empty").fix("name at least one step");
        all([(!self.milestones.is_empty(), empty), is_factor("gamma", self.gamma)])
            .or_else(|| self.warmup().problem())
    }
}

impl Curve for MultiStep {
    const NAME: &'static str = "multi_step";

    fn warmup(&self) -> Warmup {
        Warmup { ticks: self.warmup, from: self.warmup_from }
    }

    fn at(&self, count: u64, _: Length) -> Result<f64, ScheduleError> {
        let passed = self.milestones.iter().filter(|milestone| **milestone <= count).count();
        Ok(self.gamma.powf(passed as f64))
    }
}
