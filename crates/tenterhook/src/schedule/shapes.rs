//! Schedules that follow a formula.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ScheduleError;
use super::curve::{Curve, Length, Rule, Warmup, at_least_one, non_negative, warmup_from};

/// Multiplies the learning rate by a constant factor until `until`, like PyTorch's `ConstantLR`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Constant {
    /// Factor of the learning rate.
    pub factor: f64,
    /// Number of steps of this schedule, without the warm-up, after which the factor is 1. Unset: never.
    pub until: Option<u64>,
    /// Number of linear warm-up steps before the schedule.
    pub warmup: u64,
    /// Fraction of the learning rate at the start of the warm-up.
    pub warmup_from: f64,
}

impl Default for Constant {
    fn default() -> Constant {
        Constant { factor: 1.0, until: None, warmup: 0, warmup_from: warmup_from() }
    }
}

impl Curve for Constant {
    const NAME: &'static str = "constant";

    fn rules(&self) -> Vec<Rule> {
        vec![non_negative("factor", self.factor)]
    }

    fn warmup(&self) -> Warmup {
        Warmup { steps: self.warmup, from: self.warmup_from }
    }

    fn at(&self, count: u64, _: Length) -> Result<f64, ScheduleError> {
        Ok(if self.until.is_some_and(|until| count >= until) { 1.0 } else { self.factor })
    }
}

/// Changes the factor linearly from one value to another, like PyTorch's `LinearLR`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Linear {
    /// Initial factor, after the warm-up.
    pub from: f64,
    /// Final factor.
    pub to: f64,
    /// Number of steps of this schedule, including the warm-up, to the final factor. Unset: all of training.
    pub steps: Option<u64>,
    /// Number of linear warm-up steps before the schedule.
    pub warmup: u64,
    /// Fraction of the learning rate at the start of the warm-up.
    pub warmup_from: f64,
}

impl Default for Linear {
    fn default() -> Linear {
        Linear { from: 1.0, to: 0.0, steps: None, warmup: 0, warmup_from: warmup_from() }
    }
}

impl Curve for Linear {
    const NAME: &'static str = "linear";

    fn rules(&self) -> Vec<Rule> {
        vec![non_negative("from", self.from), non_negative("to", self.to)]
    }

    fn warmup(&self) -> Warmup {
        Warmup { steps: self.warmup, from: self.warmup_from }
    }

    fn steps(&self) -> Option<u64> {
        self.steps
    }

    fn at(&self, count: u64, length: Length) -> Result<f64, ScheduleError> {
        Ok(self.from + (self.to - self.from) * length.fraction(count)?)
    }
}

/// Cosine annealing from 1 to `min_factor`, like PyTorch's `CosineAnnealingLR` without the rise after the
/// minimum.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Cosine {
    /// Final factor.
    pub min_factor: f64,
    /// Number of steps of this schedule, including the warm-up, to the final factor. Unset: all of training.
    pub steps: Option<u64>,
    /// Number of linear warm-up steps before the schedule.
    pub warmup: u64,
    /// Fraction of the learning rate at the start of the warm-up.
    pub warmup_from: f64,
}

impl Default for Cosine {
    fn default() -> Cosine {
        Cosine { min_factor: 0.0, steps: None, warmup: 0, warmup_from: warmup_from() }
    }
}

impl Curve for Cosine {
    const NAME: &'static str = "cosine";

    fn rules(&self) -> Vec<Rule> {
        vec![non_negative("min_factor", self.min_factor)]
    }

    fn warmup(&self) -> Warmup {
        Warmup { steps: self.warmup, from: self.warmup_from }
    }

    fn steps(&self) -> Option<u64> {
        self.steps
    }

    fn at(&self, count: u64, length: Length) -> Result<f64, ScheduleError> {
        let cosine = (std::f64::consts::PI * length.fraction(count)?).cos();
        Ok(self.min_factor + (1.0 - self.min_factor) * (1.0 + cosine) / 2.0)
    }
}

/// Multiplies the learning rate by `gamma` at each step, like PyTorch's `ExponentialLR`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Exponential {
    /// Multiplicative factor of learning rate decay, per step of this schedule.
    pub gamma: f64,
    /// Number of linear warm-up steps before the schedule.
    #[serde(default)]
    pub warmup: u64,
    /// Fraction of the learning rate at the start of the warm-up.
    #[serde(default = "warmup_from")]
    pub warmup_from: f64,
}

impl Curve for Exponential {
    const NAME: &'static str = "exponential";

    fn rules(&self) -> Vec<Rule> {
        vec![non_negative("gamma", self.gamma)]
    }

    fn warmup(&self) -> Warmup {
        Warmup { steps: self.warmup, from: self.warmup_from }
    }

    fn at(&self, count: u64, _: Length) -> Result<f64, ScheduleError> {
        Ok(self.gamma.powf(count as f64))
    }
}

/// Linear warm-up, then decay with the inverse square root of the step, as for the first transformer
/// ("Noam"). The peak is the learning rate itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InverseSqrt {
    /// Number of linear warm-up steps.
    pub warmup: u64,
}

impl Curve for InverseSqrt {
    const NAME: &'static str = "inverse_sqrt";

    fn rules(&self) -> Vec<Rule> {
        vec![at_least_one("warmup", self.warmup)]
    }

    fn at(&self, count: u64, _: Length) -> Result<f64, ScheduleError> {
        // Counted from 1, because a learning rate of 0 would waste the first step.
        let passed = (count + 1) as f64 / self.warmup as f64;
        Ok(passed.min(passed.recip().sqrt()))
    }
}
