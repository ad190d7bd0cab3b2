//! Lowering the learning rate when a metric stops improving.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tenterhook_core::{BoxError, OptionError};

use super::curve::{all, is_factor};
use super::{Checked, ScheduleError, Scheduler, Tick};

/// Which way a metric improves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// A loss.
    #[default]
    Min,
    /// An accuracy.
    Max,
}

/// What the threshold is measured by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ThresholdMode {
    /// A share of the best value.
    #[default]
    Rel,
    /// The metric's own unit.
    Abs,
}

/// Lowers the learning rate when a metric has not improved for some time; torch's `ReduceLROnPlateau`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Plateau {
    /// Whether the metric should become small (`min`) or large (`max`).
    pub mode: Direction,
    /// What every learning rate is multiplied by each time.
    pub factor: f64,
    /// So many values without improvement are borne; the next one lowers the learning rate.
    pub patience: u64,
    /// What is less than this is no improvement.
    pub threshold: f64,
    /// Whether that is a share of the best value (`rel`) or the metric's own unit (`abs`).
    pub threshold_mode: ThresholdMode,
    /// After lowering it, so many values are not judged.
    pub cooldown: u64,
    /// The least that the learning rates are multiplied by in all.
    pub min_factor: f64,
    #[serde(skip)]
    memory: Memory,
}

/// What it has seen so far.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Memory {
    #[serde(with = "tenterhook_core::number::option")]
    best: Option<f64>,
    waited: u64,
    resting: u64,
    #[serde(with = "tenterhook_core::number")]
    factor: f64,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory { best: None, waited: 0, resting: 0, factor: 1.0 }
    }
}

impl Default for Plateau {
    fn default() -> Plateau {
        Plateau {
            mode: Direction::Min,
            factor: 0.1,
            patience: 10,
            threshold: 1e-4,
            threshold_mode: ThresholdMode::Rel,
            cooldown: 0,
            min_factor: 0.0,
            memory: Memory::default(),
        }
    }
}

impl Checked for Plateau {
    fn problem(&self) -> Option<OptionError> {
        let Plateau { factor, .. } = *self;
        all([
            (
                (0.0..1.0).contains(&factor),
                OptionError::new("factor", format!("`factor = {factor}` must be 0 or more and below 1")),
            ),
            is_factor("threshold", self.threshold),
            is_factor("min_factor", self.min_factor),
        ])
    }
}

impl Plateau {
    fn improves(&self, value: f64) -> bool {
        let Some(best) = self.memory.best else { return !value.is_nan() };
        match (self.mode, self.threshold_mode) {
            (Direction::Min, ThresholdMode::Rel) => value < best * (1.0 - self.threshold),
            (Direction::Min, ThresholdMode::Abs) => value < best - self.threshold,
            (Direction::Max, ThresholdMode::Rel) => value > best * (1.0 + self.threshold),
            (Direction::Max, ThresholdMode::Abs) => value > best + self.threshold,
        }
    }

    fn judge(&mut self, value: f64) {
        if self.improves(value) {
            (self.memory.best, self.memory.waited) = (Some(value), 0);
        } else {
            self.memory.waited += 1;
        }
        if self.memory.resting > 0 {
            self.memory.resting -= 1;
            self.memory.waited = 0;
        }
        if self.memory.waited > self.patience {
            let lowered = (self.memory.factor * self.factor).max(self.min_factor);
            // A least factor above where it stands must not raise it.
            self.memory.factor = lowered.min(self.memory.factor);
            (self.memory.resting, self.memory.waited) = (self.cooldown, 0);
        }
    }
}

impl Scheduler for Plateau {
    fn factor(&mut self, tick: Tick) -> Result<f64, BoxError> {
        if tick.count == 0 {
            let problem = self.problem().map(|problem| format!("`plateau`: {problem}"));
            return problem
                .map_or(Ok(self.memory.factor), |problem| Err(ScheduleError::Options(problem).into()));
        }
        self.judge(tick.metric.ok_or(ScheduleError::NoMetric)?);
        Ok(self.memory.factor)
    }

    fn state(&self) -> Value {
        // Numbers and counts: nothing of it can fail to be written.
        serde_json::to_value(self.memory).unwrap_or(Value::Null)
    }

    fn load_state(&mut self, state: &Value) -> Result<(), BoxError> {
        self.memory = Memory::deserialize(state)
            .map_err(|error| format!("what `plateau` remembered cannot be read: {error}"))?;
        Ok(())
    }
}
