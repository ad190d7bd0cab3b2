//! The metrics as a checkpoint holds them.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::aggregate::Epoch;
use super::values::{Latest, LogEntry};
use super::{Histogram, Metrics};

/// The metrics of a run as a checkpoint holds them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MetricsState {
    #[serde(with = "crate::number::map")]
    latest: BTreeMap<String, f64>,
    /// The step that each belongs to; what an older checkpoint lacks counts as logged at 0.
    #[serde(default)]
    steps: BTreeMap<String, u64>,
    /// What only observers see, and the step that it belongs to.
    #[serde(default)]
    observed: BTreeMap<String, Observed>,
    #[serde(default)]
    places: BTreeMap<String, LogEntry>,
    #[serde(default)]
    place: LogEntry,
    train: Epoch,
    /// What an evaluation is aggregating, while there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    evaluate: Option<Epoch>,
    /// What was logged and not yet taken by whoever writes it down.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    changed: BTreeSet<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    histograms: BTreeMap<String, Histogram>,
    /// The step that what is logged next belongs to.
    #[serde(default)]
    step: u64,
    #[serde(default)]
    batch_size: usize,
}

/// What only observers see, as a checkpoint holds it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Observed {
    #[serde(with = "crate::number")]
    value: f64,
    step: u64,
    place: LogEntry,
}

impl MetricsState {
    /// All latest values, in order of name.
    #[must_use]
    pub fn latest(&self) -> &BTreeMap<String, f64> {
        &self.latest
    }

    /// The optimizer step that each of the latest values belongs to.
    #[must_use]
    pub fn steps(&self) -> &BTreeMap<String, u64> {
        &self.steps
    }
}

impl Metrics {
    /// As a checkpoint holds them.
    #[must_use]
    pub fn state(&self) -> MetricsState {
        let (values, epochs) = (self.values.borrow(), self.epochs.borrow());
        let all = || values.latest.iter().map(|(name, latest)| (name.clone(), latest));
        let observed = values.observed.iter().map(|(name, Latest { value, step, place, .. })| {
            (name.clone(), Observed { value: *value, step: *step, place: *place })
        });
        MetricsState {
            latest: all().map(|(name, latest)| (name, latest.value)).collect(),
            steps: all().map(|(name, latest)| (name, latest.step)).collect(),
            observed: observed.collect(),
            places: all().map(|(name, latest)| (name, latest.place)).collect(),
            place: values.place,
            train: epochs.train.clone(),
            evaluate: epochs.evaluate.clone(),
            changed: all().filter(|(_, latest)| latest.changed).map(|(name, _)| name).collect(),
            histograms: self.histograms.borrow().clone(),
            step: values.step,
            batch_size: self.batch_size.get(),
        }
    }

    /// As they were when this state was taken.
    pub fn restore(&self, state: MetricsState) {
        let MetricsState { latest, steps, places, changed, .. } = &state;
        let as_it_was = |(name, value): (&String, &f64)| {
            let step = steps.get(name).copied().unwrap_or(0);
            let place = places.get(name).copied().unwrap_or_default();
            (name.clone(), Latest { value: *value, changed: changed.contains(name), step, place })
        };
        let mut values = self.values.borrow_mut();
        values.latest = latest.iter().map(as_it_was).collect();
        values.changed = !changed.is_empty();
        let observed = state.observed.into_iter().map(|(name, Observed { value, step, place })| {
            (name, Latest { value, changed: false, step, place })
        });
        values.observed = observed.collect();
        (values.place, values.step) = (state.place, state.step);
        let mut epochs = self.epochs.borrow_mut();
        (epochs.train, epochs.evaluate) = (state.train, state.evaluate);
        *self.histograms.borrow_mut() = state.histograms;
        self.batch_size.set(state.batch_size);
    }
}
