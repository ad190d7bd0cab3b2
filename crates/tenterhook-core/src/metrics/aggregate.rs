//! How numbers are logged, and what an epoch's become.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::progress::Phase;

/// How values logged during an epoch become one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reduce {
    /// Mean, weighted by the batch size.
    #[default]
    Mean,
    /// Sum.
    Sum,
    /// Smallest.
    Min,
    /// Largest.
    Max,
    /// The last one.
    Last,
}

/// How a number is logged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogOptions {
    /// The value is visible at once.
    pub on_step: bool,
    /// The values of an epoch are aggregated and visible at its end.
    pub on_epoch: bool,
    /// How they are aggregated.
    pub reduce: Reduce,
    /// The weight of this value in a mean; `None` is the batch size.
    pub weight: Option<f64>,
}

impl LogOptions {
    /// Visible at once.
    pub const STEP: LogOptions =
        LogOptions { on_step: true, on_epoch: false, reduce: Reduce::Mean, weight: None };
    /// Aggregated over the epoch.
    pub const EPOCH: LogOptions = LogOptions { on_step: false, on_epoch: true, ..LogOptions::STEP };
    /// Both: `name_step` and `name_epoch` stand beside `name`.
    pub const BOTH: LogOptions = LogOptions { on_epoch: true, ..LogOptions::STEP };

    /// What is usual there: at once in training, aggregated in an evaluation.
    #[must_use]
    pub fn usual(phase: Phase) -> LogOptions {
        if phase == Phase::Train { LogOptions::STEP } else { LogOptions::EPOCH }
    }

    /// The same, aggregated in another way.
    #[must_use]
    pub fn reduce(self, reduce: Reduce) -> LogOptions {
        LogOptions { reduce, ..self }
    }
}

/// What an epoch's values have come to so far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Running {
    pub(super) reduce: Reduce,
    #[serde(with = "crate::number")]
    pub(super) value: f64,
    #[serde(with = "crate::number")]
    pub(super) weight: f64,
    pub(super) also_on_step: bool,
    /// With several evaluation loaders: the name without the loader.
    pub(super) mean_of: Option<String>,
}

impl Running {
    pub(super) fn add(&mut self, value: f64, weight: f64) {
        match self.reduce {
            Reduce::Mean => self.value += value * weight,
            Reduce::Sum => self.value += value,
            // A NaN stays one: a diverged epoch must not look well.
            Reduce::Min | Reduce::Max if value.is_nan() || self.value.is_nan() => self.value = f64::NAN,
            Reduce::Min => self.value = self.value.min(value),
            Reduce::Max => self.value = self.value.max(value),
            Reduce::Last => self.value = value,
        }
        self.weight += weight;
    }

    pub(super) fn start(reduce: Reduce) -> f64 {
        match reduce {
            Reduce::Mean | Reduce::Sum | Reduce::Last => 0.0,
            Reduce::Min => f64::INFINITY,
            Reduce::Max => f64::NEG_INFINITY,
        }
    }

    pub(super) fn result(&self) -> f64 {
        if self.reduce == Reduce::Mean { self.value / self.weight } else { self.value }
    }
}

/// The values being aggregated: training's stay while a validation has its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Epoch {
    pub(super) running: BTreeMap<String, Running>,
    /// The epoch has ended: what is logged from here on is visible at once.
    pub(super) closed: bool,
}
