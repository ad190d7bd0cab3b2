//! Schedules that follow a formula.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook_core::OptionError;

use super::curve::{Curve, Length, Warmup, all, is_counted, is_factor, schedulers, warmup_from};
use super::{Checked, ScheduleError};

schedulers! { Constant Linear Cosine Exponential InverseSqrt }

/// One factor, for some time or always; torch's `ConstantLR`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Constant {
    /// What every learning rate is multiplied by.
    pub factor: f64,
    /// After so many steps (of this schedule, beyond the warm-up) the factor is 1 again. Unset: never.
    pub until: Option<u64>,
    /// So many steps of rising, in a straight line, before.
    pub warmup: u64,
    /// The share of the learning rate that the warm-up begins with.
    pub warmup_from: f64,
}

impl Default for Constant {
    fn default() -> Constant {
        Constant { factor: 1.0, until: None, warmup: 0, warmup_from: warmup_from() }
    }
}

impl Checked for Constant {
    fn problem(&self) -> Option<OptionError> {
        all([is_factor("factor", self.factor)]).or_else(|| self.warmup().problem())
    }
}

impl Curve for Constant {
    const NAME: &'static str = "constant";

    fn warmup(&self) -> Warmup {
        Warmup { ticks: self.warmup, from: self.warmup_from }
    }

    fn at(&self, count: u64, _: Length) -> Result<f64, ScheduleError> {
        Ok(if self.until.is_some_and(|until| count >= until) { 1.0 } else { self.factor })
    }
}

/// A straight line from one factor to another; torch's `LinearLR`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Linear {
    /// The factor that it begins with, after the warm-up.
    pub from: f64,
    /// The factor that it ends with, and keeps.
    pub to: f64,
    /// After how many steps (of this schedule, warm-up included) it ends. Unset: with training.
    pub steps: Option<u64>,
    /// So many steps of rising, in a straight line, before.
    pub warmup: u64,
    /// The share of the learning rate that the warm-up begins with.
    pub warmup_from: f64,
}

impl Default for Linear {
    fn default() -> Linear {
        Linear { from: 1.0, to: 0.0, steps: None, warmup: 0, warmup_from: warmup_from() }
    }
}

impl Checked for Linear {
    fn problem(&self) -> Option<OptionError> {
        all([is_factor("from", self.from), is_factor("to", self.to)]).or_else(|| self.warmup().problem())
    }
}

impl Curve for Linear {
    const NAME: &'static str = "linear";

    fn warmup(&self) -> Warmup {
        Warmup { ticks: self.warmup, from: self.warmup_from }
    }

    fn steps(&self) -> Option<u64> {
        self.steps
    }

    fn at(&self, count: u64, length: Length) -> Result<f64, ScheduleError> {
        Ok(self.from + (self.to - self.from) * length.share(count)?)
    }
}

/// Half a cosine from 1 down to the least factor, which it keeps; torch's `CosineAnnealingLR`, which
/// would rise again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Cosine {
    /// The factor that it ends with.
    pub min_factor: f64,
    /// After how many steps (of this schedule, warm-up included) it ends. Unset: with training.
    pub steps: Option<u64>,
    /// So many steps of rising, in a straight line, before.
    pub warmup: u64,
    /// The share of the learning rate that the warm-up begins with.
    pub warmup_from: f64,
}

impl Default for Cosine {
    fn default() -> Cosine {
        Cosine { min_factor: 0.0, steps: None, warmup: 0, warmup_from: warmup_from() }
    }
}

impl Checked for Cosine {
    fn problem(&self) -> Option<OptionError> {
        all([is_factor("min_factor", self.min_factor)]).or_else(|| self.warmup().problem())
    }
}

impl Curve for Cosine {
    const NAME: &'static str = "cosine";

    fn warmup(&self) -> Warmup {
        Warmup { ticks: self.warmup, from: self.warmup_from }
    }

    fn steps(&self) -> Option<u64> {
        self.steps
    }

    fn at(&self, count: u64, length: Length) -> Result<f64, ScheduleError> {
        let cosine = (std::f64::consts::PI * length.share(count)?).cos();
        Ok(self.min_factor + (1.0 - self.min_factor) * (1.0 + cosine) / 2.0)
    }
}

/// The same factor at every step, on top of the last; torch's `ExponentialLR`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Exponential {
    /// What every learning rate is multiplied by at every step of this schedule.
    pub gamma: f64,
    /// So many steps of rising, in a straight line, before.
    #[serde(default)]
    pub warmup: u64,
    /// The share of the learning rate that the warm-up begins with.
    #[serde(default = "warmup_from")]
    pub warmup_from: f64,
}

impl Checked for Exponential {
    fn problem(&self) -> Option<OptionError> {
        all([is_factor("gamma", self.gamma)]).or_else(|| self.warmup().problem())
    }
}

impl Curve for Exponential {
    const NAME: &'static str = "exponential";

    fn warmup(&self) -> Warmup {
        Warmup { ticks: self.warmup, from: self.warmup_from }
    }

    fn at(&self, count: u64, _: Length) -> Result<f64, ScheduleError> {
        Ok(self.gamma.powf(count as f64))
    }
}

/// A straight rise to 1, then a fall with the root of the number of steps: the schedule of the first
/// transformer ("Noam"), so scaled that its peak is the learning rate itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InverseSqrt {
    /// How many steps of this schedule it rises.
    pub warmup: u64,
}

impl Checked for InverseSqrt {
    fn problem(&self) -> Option<OptionError> {
        all([is_counted("warmup", self.warmup)])
    }
}

impl Curve for InverseSqrt {
    const NAME: &'static str = "inverse_sqrt";

    fn at(&self, count: u64, _: Length) -> Result<f64, ScheduleError> {
        // The first step is number 1, so that it is not wasted on a learning rate of 0.
        let passed = (count + 1) as f64 / self.warmup as f64;
        Ok(passed.min(passed.recip().sqrt()))
    }
}
