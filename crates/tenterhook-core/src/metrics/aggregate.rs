//! Aggregation of metrics over an epoch or an evaluation.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::values::Values;
use crate::progress::Phase;

/// How the values of an epoch are aggregated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Reduce {
    /// Mean, weighted by the batch size.
    #[default]
    Mean,
    /// Sum.
    Sum,
    /// Minimum.
    Min,
    /// Maximum.
    Max,
    /// The last value.
    Last,
}

/// How a metric is logged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogOptions {
    /// The value is visible immediately.
    pub on_step: bool,
    /// The values of an epoch are aggregated, and the aggregate is visible at its end.
    pub on_epoch: bool,
    /// How values are aggregated.
    pub reduce: Reduce,
    /// The weight of the value in a mean; `None` for the batch size.
    pub weight: Option<f64>,
}

impl LogOptions {
    /// Visible immediately.
    pub const STEP: LogOptions =
        LogOptions { on_step: true, on_epoch: false, reduce: Reduce::Mean, weight: None };
    /// Aggregated over the epoch.
    pub const EPOCH: LogOptions = LogOptions { on_step: false, on_epoch: true, ..LogOptions::STEP };
    /// Both, also as `name_step` and `name_epoch`.
    pub const BOTH: LogOptions = LogOptions { on_epoch: true, ..LogOptions::STEP };

    /// The default for a loop: visible immediately in training, aggregated in an evaluation.
    #[must_use]
    pub fn usual(phase: Phase) -> LogOptions {
        if phase == Phase::Train { LogOptions::STEP } else { LogOptions::EPOCH }
    }

    /// Sets how values are aggregated.
    #[must_use]
    pub fn reduce(self, reduce: Reduce) -> LogOptions {
        LogOptions { reduce, ..self }
    }
}

/// An aggregate in progress.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Running {
    pub(super) reduce: Reduce,
    #[serde(with = "crate::number")]
    pub(super) value: f64,
    #[serde(with = "crate::number")]
    pub(super) weight: f64,
    also_on_step: bool,
    /// The name of the metric without the loader, if there are several evaluation loaders.
    mean_of: Option<String>,
}

impl Running {
    pub(super) fn add(&mut self, value: f64, weight: f64) {
        match self.reduce {
            Reduce::Mean => self.value += value * weight,
            Reduce::Sum => self.value += value,
            // NaN takes precedence, so a diverged epoch is visible.
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

    /// Makes the result visible. It counts as logged by the loop, even if a hook has logged the values.
    fn publish(&self, name: &str, values: &mut Values) -> f64 {
        let by_hook = std::mem::replace(&mut values.entry.by_hook, false);
        let result = self.result();
        values.show(name, result);
        if self.also_on_step {
            values.show(&format!("{name}_epoch"), result);
        }
        values.entry.by_hook = by_hook;
        result
    }
}

/// The aggregates of an epoch or an evaluation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Epoch {
    pub(super) running: BTreeMap<String, Running>,
    /// The epoch has ended: values logged afterwards are visible immediately.
    finished: bool,
}

/// The aggregates of training, and those of an evaluation during one.
#[derive(Default)]
pub(super) struct Epochs {
    pub(super) train: Epoch,
    pub(super) evaluate: Option<Epoch>,
    /// The loader of the current evaluation batches, if there are several loaders.
    pub(super) loader: Option<String>,
}

impl Epochs {
    /// The aggregates of the evaluation, if there is one, or else of training.
    pub(super) fn current(&mut self) -> &mut Epoch {
        self.evaluate.as_mut().unwrap_or(&mut self.train)
    }

    /// Adds a value with its weight to the current aggregates.
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
            if epoch.finished {
                running.publish(full, values);
            }
        }
    }

    /// Makes the aggregates visible after the last batch; with several loaders also the mean over the loaders
    /// under the plain name.
    pub(super) fn finish(&mut self, values: &mut Values) {
        let epoch = self.current();
        epoch.finished = true;
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
