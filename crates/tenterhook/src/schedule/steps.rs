//! Schedules that decay in steps.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook_core::OptionError;

use super::ScheduleError;
use super::curve::{Curve, Length, Rule, Warmup, at_least_one, non_negative, warmup_from};

fn tenth() -> f64 {
    0.1
}

/// Multiplies the learning rate by `gamma` every `step_size` steps, like PyTorch's `StepLR`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Period of learning rate decay, in steps of this schedule.
    pub step_size: u64,
    /// Multiplicative factor of learning rate decay.
    #[serde(default = "tenth")]
    pub gamma: f64,
    /// Number of linear warm-up steps before the schedule.
    #[serde(default)]
    pub warmup: u64,
    /// Fraction of the learning rate at the start of the warm-up.
    #[serde(default = "warmup_from")]
    pub warmup_from: f64,
}

impl Curve for Step {
    const NAME: &'static str = "step";

    fn rules(&self) -> Vec<Rule> {
        vec![at_least_one("step_size", self.step_size), non_negative("gamma", self.gamma)]
    }

    fn warmup(&self) -> Warmup {
        Warmup { steps: self.warmup, from: self.warmup_from }
    }

    fn at(&self, count: u64, _: Length) -> Result<f64, ScheduleError> {
        Ok(self.gamma.powf((count / self.step_size.max(1)) as f64))
    }
}

/// Multiplies the learning rate by `gamma` at each of the `milestones`, like PyTorch's `MultiStepLR`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MultiStep {
    /// Steps of this schedule at which the learning rate decays, counted from the end of the warm-up.
    pub milestones: Vec<u64>,
    /// Multiplicative factor of learning rate decay.
    #[serde(default = "tenth")]
    pub gamma: f64,
    /// Number of linear warm-up steps before the schedule.
    #[serde(default)]
    pub warmup: u64,
    /// Fraction of the learning rate at the start of the warm-up.
    #[serde(default = "warmup_from")]
    pub warmup_from: f64,
}

impl Curve for MultiStep {
    const NAME: &'static str = "multi_step";

    fn rules(&self) -> Vec<Rule> {
        let empty = OptionError::new("milestones", "`milestones` is empty").fix("name at least one step");
        vec![(!self.milestones.is_empty(), empty), non_negative("gamma", self.gamma)]
    }

    fn warmup(&self) -> Warmup {
        Warmup { steps: self.warmup, from: self.warmup_from }
    }

    fn at(&self, count: u64, _: Length) -> Result<f64, ScheduleError> {
        let passed = self.milestones.iter().filter(|milestone| **milestone <= count).count();
        Ok(self.gamma.powf(passed as f64))
    }
}
