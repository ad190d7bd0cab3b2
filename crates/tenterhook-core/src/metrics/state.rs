//! Saving and restoring metrics.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::aggregate::Epoch;
use super::values::{Latest, LogEntry};
use super::{Histogram, Metrics};

/// The metrics of a run in a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MetricsState {
    #[serde(with = "crate::number::map")]
    latest: BTreeMap<String, f64>,
    /// The optimizer step of each value; 0 if it is missing in an older checkpoint.
    #[serde(default)]
    steps: BTreeMap<String, u64>,
    /// The values that only observers see.
    #[serde(default)]
    observed: BTreeMap<String, Latest>,
    #[serde(default)]
    entries: BTreeMap<String, LogEntry>,
    #[serde(default)]
    entry: LogEntry,
    train: Epoch,
    /// The aggregates of the evaluation in progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    evaluate: Option<Epoch>,
    /// The metrics that were logged and not yet recorded.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    changed: BTreeSet<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    histograms: BTreeMap<String, Histogram>,
    /// The optimizer step of the values that are logged next.
    #[serde(default)]
    step: u64,
    #[serde(default)]
    batch_size: usize,
}

impl MetricsState {
    /// The latest values of all metrics.
    #[must_use]
    pub fn latest(&self) -> &BTreeMap<String, f64> {
        &self.latest
    }

    /// The optimizer step of each of the latest values.
    #[must_use]
    pub fn steps(&self) -> &BTreeMap<String, u64> {
        &self.steps
    }
}

impl Metrics {
    /// The metrics for a checkpoint.
    #[must_use]
    pub fn state(&self) -> MetricsState {
        let (values, epochs) = (self.values.borrow(), self.epochs.borrow());
        let all = || values.latest.iter().map(|(name, latest)| (name.clone(), latest));
        let unchanged = |latest: &Latest| Latest { changed: false, ..*latest };
        let observed = values.observed.iter().map(|(name, latest)| (name.clone(), unchanged(latest)));
        MetricsState {
            latest: all().map(|(name, latest)| (name, latest.value)).collect(),
            steps: all().map(|(name, latest)| (name, latest.step)).collect(),
            observed: observed.collect(),
            entries: all().map(|(name, latest)| (name, latest.entry)).collect(),
            entry: values.entry,
            train: epochs.train.clone(),
            evaluate: epochs.evaluate.clone(),
            changed: all().filter(|(_, latest)| latest.changed).map(|(name, _)| name).collect(),
            histograms: self.histograms.borrow().clone(),
            step: values.step,
            batch_size: self.batch_size.get(),
        }
    }

    /// Restores the metrics of a checkpoint.
    pub fn restore(&self, state: MetricsState) {
        let MetricsState { latest, steps, entries, changed, .. } = &state;
        let restored = |(name, value): (&String, &f64)| {
            let step = steps.get(name).copied().unwrap_or(0);
            let entry = entries.get(name).copied().unwrap_or_default();
            (name.clone(), Latest { value: *value, changed: changed.contains(name), step, entry })
        };
        let mut values = self.values.borrow_mut();
        values.latest = latest.iter().map(restored).collect();
        values.changed = !changed.is_empty();
        values.observed = state.observed;
        (values.entry, values.step) = (state.entry, state.step);
        let mut epochs = self.epochs.borrow_mut();
        (epochs.train, epochs.evaluate) = (state.train, state.evaluate);
        *self.histograms.borrow_mut() = state.histograms;
        self.batch_size.set(state.batch_size);
    }
}
