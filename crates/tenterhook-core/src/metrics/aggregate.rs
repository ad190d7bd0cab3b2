//! How numbers are logged, and what an epoch's become.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::values::Values;
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
    also_on_step: bool,
    /// With several evaluation loaders: the name without the loader.
    mean_of: Option<String>,
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

    fn start(reduce: Reduce) -> f64 {
        match reduce {
            Reduce::Mean | Reduce::Sum | Reduce::Last => 0.0,
            Reduce::Min => f64::INFINITY,
            Reduce::Max => f64::NEG_INFINITY,
        }
    }

    fn result(&self) -> f64 {
        if self.reduce == Reduce::Mean { self.value / self.weight } else { self.value }
    }

    /// Makes it visible. It is the epoch's or the evaluation's, also where a hook has logged for it.
    fn publish(&self, name: &str, values: &mut Values) -> f64 {
        let by_hook = std::mem::replace(&mut values.place.by_hook, false);
        let result = self.result();
        values.show(name, result);
        if self.also_on_step {
            values.show(&format!("{name}_epoch"), result);
        }
        values.place.by_hook = by_hook;
        result
    }
}

/// The values being aggregated.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Epoch {
    pub(super) running: BTreeMap<String, Running>,
    /// The epoch has ended: what is logged from here on is visible at once.
    closed: bool,
}

/// What training aggregates, which waits while an evaluation aggregates its own.
#[derive(Default)]
pub(super) struct Epochs {
    pub(super) train: Epoch,
    pub(super) evaluate: Option<Epoch>,
    /// The loader that evaluation batches come from, when there are several.
    pub(super) loader: Option<String>,
}

impl Epochs {
    /// The evaluation that is under way, or training.
    pub(super) fn current(&mut self) -> &mut Epoch {
        self.evaluate.as_mut().unwrap_or(&mut self.train)
    }

    /// Logs a value with its weight for the epoch or the evaluation that is under way.
    pub(super) fn add(
        &mut self,
        name: &str,
        (value, weight): (f64, f64),
        options: LogOptions,
        values: &mut Values,
    ) {
        let of_loader = self.loader.as_ref().map(|loader| format!("{name}/{loader}"));
        let full = of_loader.as_deref().unwrap_or(name);
        if options.on_step {
            values.show(full, value);
            values.show(&format!("{full}_step"), value);
        }
        let epoch = self.current();
        if !epoch.running.contains_key(full) {
            let running = Running {
                reduce: options.reduce,
                value: Running::start(options.reduce),
                weight: 0.0,
                also_on_step: options.on_step,
                mean_of: of_loader.is_some().then(|| name.to_owned()),
            };
            epoch.running.insert(full.to_owned(), running);
        }
        if let Some(running) = epoch.running.get_mut(full) {
            running.add(value, weight);
            if epoch.closed {
                running.publish(full, values);
            }
        }
    }

    /// The last batch has been seen: makes the aggregates visible; with several loaders also their mean under the plain name.
    pub(super) fn close(&mut self, values: &mut Values) {
        let epoch = self.current();
        epoch.closed = true;
        let mut means: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
        for (name, running) in &epoch.running {
            let result = running.publish(name, values);
            if let Some(plain) = &running.mean_of {
                let (sum, loaders) = means.entry(plain).or_default();
                *sum += result;
                *loaders += 1.0;
            }
        }
        for (plain, (sum, loaders)) in means {
            values.show(plain, sum / loaders);
        }
    }
}
