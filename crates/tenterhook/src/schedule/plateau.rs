//! Reduces the learning rate when a metric stops improving.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tenterhook_core::{BoxError, OptionError};

use super::curve::{first_problem, non_negative};
use super::{Checked, ScheduleError, ScheduleStep, Scheduler};

/// The direction in which a metric improves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Smaller is better.
    #[default]
    Min,
    /// Larger is better.
    Max,
}

/// The kind of threshold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ThresholdMode {
    /// Relative to the best value.
    #[default]
    Rel,
    /// In units of the metric.
    Abs,
}

/// Reduces the learning rate when a metric has stopped improving, like PyTorch's `ReduceLROnPlateau`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Plateau {
    /// Whether the metric should decrease (`min`) or increase (`max`).
    pub mode: Direction,
    /// Factor by which the learning rate is reduced.
    pub factor: f64,
    /// Number of values without improvement after which the next one reduces the learning rate.
    pub patience: u64,
    /// Threshold for an improvement.
    pub threshold: f64,
    /// Whether the threshold is relative to the best value (`rel`) or absolute (`abs`).
    pub threshold_mode: ThresholdMode,
    /// Number of values to ignore after a reduction.
    pub cooldown: u64,
    /// Lower bound of the total factor.
    pub min_factor: f64,
    #[serde(skip)]
    state: PlateauState,
}

/// The state for checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct PlateauState {
    #[serde(with = "tenterhook_core::number::option")]
    best: Option<f64>,
    waited: u64,
    resting: u64,
    #[serde(with = "tenterhook_core::number")]
    factor: f64,
}

impl Default for PlateauState {
    fn default() -> PlateauState {
        PlateauState { best: None, waited: 0, resting: 0, factor: 1.0 }
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
            state: PlateauState::default(),
        }
    }
}

impl Checked for Plateau {
    fn problem(&self) -> Option<OptionError> {
        let Plateau { factor, .. } = *self;
        first_problem([
            (
                (0.0..1.0).contains(&factor),
                OptionError::new("factor", format!("`factor = {factor}` must be 0 or more and below 1")),
            ),
            non_negative("threshold", self.threshold),
            non_negative("min_factor", self.min_factor),
        ])
    }
}

impl Plateau {
    fn improves(&self, value: f64) -> bool {
        let Some(best) = self.state.best else { return !value.is_nan() };
        match (self.mode, self.threshold_mode) {
            (Direction::Min, ThresholdMode::Rel) => value < best * (1.0 - self.threshold),
            (Direction::Min, ThresholdMode::Abs) => value < best - self.threshold,
            (Direction::Max, ThresholdMode::Rel) => value > best * (1.0 + self.threshold),
            (Direction::Max, ThresholdMode::Abs) => value > best + self.threshold,
        }
    }

    fn update(&mut self, value: f64) {
        if self.improves(value) {
            (self.state.best, self.state.waited) = (Some(value), 0);
        } else {
            self.state.waited += 1;
        }
        if self.state.resting > 0 {
            self.state.resting -= 1;
            self.state.waited = 0;
        }
        if self.state.waited > self.patience {
            let lowered = (self.state.factor * self.factor).max(self.min_factor);
            // A `min_factor` above the current factor must not raise it.
            self.state.factor = lowered.min(self.state.factor);
            (self.state.resting, self.state.waited) = (self.cooldown, 0);
        }
    }
}

impl Scheduler for Plateau {
    fn factor(&mut self, step: ScheduleStep) -> Result<f64, BoxError> {
        if step.count == 0 {
            let problem = self.problem().map(|problem| format!("`plateau`: {problem}"));
            return problem
                .map_or(Ok(self.state.factor), |problem| Err(ScheduleError::Options(problem).into()));
        }
        self.update(step.metric.ok_or(ScheduleError::NoMetric)?);
        Ok(self.state.factor)
    }

    fn state(&self) -> Value {
        // Numbers can always be serialized.
        serde_json::to_value(self.state).unwrap_or(Value::Null)
    }

    fn load_state(&mut self, state: &Value) -> Result<(), BoxError> {
        self.state = PlateauState::deserialize(state)
            .map_err(|error| format!("the state of `plateau` cannot be read: {error}"))?;
        Ok(())
    }
}
