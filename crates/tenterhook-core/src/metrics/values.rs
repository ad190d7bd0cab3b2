//! The latest values, and where each stands among everything that was logged.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The latest values by name.
#[derive(Default)]
pub(super) struct Values {
    pub(super) latest: BTreeMap<String, Latest>,
    /// What is newer and only observers see, because only they asked for it.
    pub(super) observed: BTreeMap<String, Latest>,
    /// Something was logged since it was last asked what.
    pub(super) changed: bool,
    /// How often anything was logged, and whether a hook is logging now.
    pub(super) place: LogEntry,
    /// The optimizer step that is being worked on, or that was completed last.
    pub(super) step: u64,
}

/// The latest value of a metric, and whether it was logged since it was last asked what was.
#[derive(Clone, Copy, Debug)]
pub(super) struct Latest {
    pub(super) value: f64,
    pub(super) changed: bool,
    /// The step that it belongs to.
    pub(super) step: u64,
    pub(super) place: LogEntry,
}

/// Where a metric's latest value stands among everything that was logged, and whose it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct LogEntry {
    pub(super) number: u64,
    pub(super) by_hook: bool,
}

impl Values {
    /// A value that is logged now.
    pub(super) fn newest(&mut self, value: f64) -> Latest {
        self.place.number += 1;
        Latest { value, changed: true, step: self.step, place: self.place }
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

    /// What was logged since the last call, in order of name.
    pub(super) fn take_changes(&mut self) -> BTreeMap<String, f64> {
        self.changed = false;
        let changed = self.latest.iter_mut().filter_map(|(name, latest)| {
            std::mem::take(&mut latest.changed).then(|| (name.clone(), latest.value))
        });
        changed.collect()
    }
}
