//! One cycle: up to the full learning rate, and down to next to nothing.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook_core::OptionError;

use super::curve::{Curve, Length, all, schedulers};
use super::{Checked, ScheduleError};

schedulers! { OneCycle }

/// How one factor goes over into the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Anneal {
    /// Along half a cosine.
    #[default]
    Cos,
    /// In a straight line.
    Linear,
}

/// Up to the full learning rate, and down to next to nothing; torch's `OneCycleLR`, whose `max_lr` is the
/// learning rate here. It has a warm-up of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OneCycle {
    /// How many steps of this schedule it takes. Unset: as many as training has.
    pub steps: Option<u64>,
    /// The share of them in which it rises.
    pub pct_start: f64,
    /// Along which curve.
    pub anneal_strategy: Anneal,
    /// It begins with the learning rate divided by this.
    pub div_factor: f64,
    /// It ends with what it began with divided by this.
    pub final_div_factor: f64,
    /// First falls as far as it rose, and then the rest of the way.
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

impl Checked for OneCycle {
    fn problem(&self) -> Option<OptionError> {
        let OneCycle { pct_start, div_factor, final_div_factor, three_phase, .. } = *self;
        let most = if three_phase { 0.5 } else { 1.0 };
        let divides = |key: &str, value: f64| {
            let what = format!("`{key} = {value}` must be a number above 0");
            (value.is_finite() && value > 0.0, OptionError::new(key, what))
        };
        all([
            (
                (0.0..=most).contains(&pct_start),
                OptionError::new(
                    "pct_start",
                    format!("`pct_start = {pct_start}` must be a share between 0 and {most}"),
                ),
            ),
            divides("div_factor", div_factor),
            divides("final_div_factor", final_div_factor),
        ])
    }
}

impl OneCycle {
    fn between(&self, from: f64, to: f64, share: f64) -> f64 {
        match self.anneal_strategy {
            Anneal::Cos => to + (from - to) / 2.0 * (1.0 + (std::f64::consts::PI * share).cos()),
            Anneal::Linear => from + (to - from) * share,
        }
    }
}

impl Curve for OneCycle {
    const NAME: &'static str = "one_cycle";

    fn steps(&self) -> Option<u64> {
        self.steps
    }

    fn at(&self, count: u64, length: Length) -> Result<f64, ScheduleError> {
        let total = length.known()? as f64;
        let first = self.div_factor.recip();
        let last = first / self.final_div_factor;
        let rise = self.pct_start * total;
        // Where each phase ends, and the factor it ends with; they need not be whole steps.
        let (top, end) = ((rise - 1.0, 1.0), (total - 1.0, last));
        let phases = if self.three_phase { [top, (2.0 * rise - 2.0, first), end] } else { [top, end, end] };
        let count = count as f64;
        let mut from = (0.0, first);
        for to in phases {
            if count <= to.0 {
                let whole = to.0 - from.0;
                let share = if whole > 0.0 { (count - from.0) / whole } else { 1.0 };
                return Ok(self.between(from.1, to.1, share));
            }
            from = to;
        }
        Ok(last)
    }
}
