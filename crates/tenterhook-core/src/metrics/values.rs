//! The latest values of metrics.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The latest values of metrics, by name.
#[derive(Default)]
pub(super) struct Values {
    pub(super) latest: BTreeMap<String, Latest>,
    /// Newer values that were read for observers, and are visible to observers only.
    pub(super) observed: BTreeMap<String, Latest>,
    /// Whether anything was logged since the changes were last taken.
    pub(super) changed: bool,
    /// The number of values logged so far, and whether a hook is logging now.
    pub(super) entry: LogEntry,
    /// The optimizer step of the values that are logged now.
    pub(super) step: u64,
}

/// The latest value of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Latest {
    #[serde(with = "crate::number")]
    pub(super) value: f64,
    /// Whether it was logged since the changes were last taken.
    #[serde(skip)]
    pub(super) changed: bool,
    /// The optimizer step that it belongs to.
    pub(super) step: u64,
    pub(super) entry: LogEntry,
}

/// The position of a value among all logged values, and whether a hook logged it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct LogEntry {
    pub(super) number: u64,
    pub(super) by_hook: bool,
}

impl Values {
    /// Makes the entry of a value that is logged now.
    pub(super) fn newest(&mut self, value: f64) -> Latest {
        self.entry.number += 1;
        Latest { value, changed: true, step: self.step, entry: self.entry }
    }

    /// Makes a value visible.
    pub(super) fn show(&mut self, name: &str, value: f64) {
        let latest = self.newest(value);
        self.observed.remove(name);
        if let Some(known) = self.latest.get_mut(name) {
            *known = latest;
        } else {
            self.latest.insert(name.to_owned(), latest);
        }
        self.changed = true;
    }

    /// The values that were logged since the last call.
    pub(super) fn take_changes(&mut self) -> BTreeMap<String, f64> {
        self.changed = false;
        let changed = self.latest.iter_mut().filter_map(|(name, latest)| {
            std::mem::take(&mut latest.changed).then(|| (name.clone(), latest.value))
        });
        changed.collect()
    }
}
