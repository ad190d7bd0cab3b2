//! The one-cycle policy.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook_core::OptionError;

use super::ScheduleError;
use super::curve::{Curve, Length, Rule};

/// The annealing strategy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Anneal {
    /// Cosine annealing.
    #[default]
    Cos,
    /// Linear annealing.
    Linear,
}

/// The one-cycle policy, like PyTorch's `OneCycleLR`: the learning rate rises to its full value and then
/// decays to nearly zero. The optimizer's learning rate is the `max_lr`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OneCycle {
    /// Number of steps of the cycle. Unset: all of training.
    pub steps: Option<u64>,
    /// Fraction of the cycle in which the learning rate rises.
    pub pct_start: f64,
    /// Annealing strategy.
    pub anneal_strategy: Anneal,
    /// Divisor of the learning rate at the start.
    pub div_factor: f64,
    /// Divisor of the initial learning rate at the end.
    pub final_div_factor: f64,
    /// Use three phases: rise, symmetric decay to the initial learning rate, decay to the final one.
    pub three_phase: bool,
}

impl Default for OneCycle {
    fn default() -> OneCycle {
        OneCycle {
            steps: None,
            pct_start: 0.3,
            anneal_strategy: Anneal::Cos,
            div_factor: 25.0,
            final_div_factor: 1e4,
            three_phase: false,
        }
    }
}

impl OneCycle {
    fn between(&self, from: f64, to: f64, fraction: f64) -> f64 {
        match self.anneal_strategy {
            Anneal::Cos => to + (from - to) / 2.0 * (1.0 + (std::f64::consts::PI * fraction).cos()),
            Anneal::Linear => from + (to - from) * fraction,
        }
    }
}

impl Curve for OneCycle {
    const NAME: &'static str = "one_cycle";

    fn rules(&self) -> Vec<Rule> {
        let OneCycle { pct_start, div_factor, final_div_factor, three_phase, .. } = *self;
        let most = if three_phase { 0.5 } else { 1.0 };
        let fraction = format!("`pct_start = {pct_start}` must be a fraction between 0 and {most}");
        let divisor = |key: &str, value: f64| {
            let what = format!("`{key} = {value}` must be a number above 0");
            (value.is_finite() && value > 0.0, OptionError::new(key, what))
        };
        vec![
            ((0.0..=most).contains(&pct_start), OptionError::new("pct_start", fraction)),
            divisor("div_factor", div_factor),
            divisor("final_div_factor", final_div_factor),
        ]
    }

    fn steps(&self) -> Option<u64> {
        self.steps
    }

    fn at(&self, count: u64, length: Length) -> Result<f64, ScheduleError> {
        let total = length.known()? as f64;
        let first = self.div_factor.recip();
        let last = first / self.final_div_factor;
        let rise = self.pct_start * total;
        // The end of each phase and its factor. The ends need not be whole steps.
        let (top, end) = ((rise - 1.0, 1.0), (total - 1.0, last));
        let phases = if self.three_phase { [top, (2.0 * rise - 2.0, first), end] } else { [top, end, end] };
        let count = count as f64;
        let mut from = (0.0, first);
        for to in phases {
            if count <= to.0 {
                let whole = to.0 - from.0;
                let fraction = if whole > 0.0 { (count - from.0) / whole } else { 1.0 };
                return Ok(self.between(from.1, to.1, fraction));
            }
            from = to;
        }
        Ok(last)
    }
}
