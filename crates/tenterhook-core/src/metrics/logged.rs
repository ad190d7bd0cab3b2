//! The metrics as hooks see them.

use std::collections::BTreeMap;

use super::{Latest, Metrics};

/// The numbers of a run as hooks see them: to read. Logging goes through `cx.log`.
#[derive(Clone, Copy, Debug)]
pub struct Logged<'a> {
    pub(crate) metrics: &'a Metrics,
    /// Whether an observer looks.
    pub(crate) observing: bool,
}

impl Logged<'_> {
    /// The latest value of a metric.
    #[must_use]
    pub fn get(self, name: &str) -> Option<f64> {
        self.latest(name).map(|latest| latest.value)
    }

    /// The optimizer step that the metric's latest value belongs to: within a batch the one being worked
    /// on, else the one completed last. It is less than `cx.step` when the value is from before.
    #[must_use]
    pub fn step_of(self, name: &str) -> Option<u64> {
        self.latest(name).map(|latest| latest.step)
    }

    /// The names there are, in order.
    #[must_use]
    pub fn names(self) -> Vec<String> {
        self.chosen(|_| true).into_keys().collect()
    }

    /// All latest values, in order of name.
    #[must_use]
    pub fn to_map(self) -> BTreeMap<String, f64> {
        self.chosen(|_| true)
    }

    fn latest(self, name: &str) -> Option<Latest> {
        let observed = self.observing.then(|| self.metrics.observed.borrow().get(name).copied());
        observed.flatten().or_else(|| self.metrics.latest.borrow().get(name).copied())
    }

    pub(super) fn chosen(self, is_chosen: impl Fn(&Latest) -> bool) -> BTreeMap<String, f64> {
        let (latest, observed) = (self.metrics.latest.borrow(), self.metrics.observed.borrow());
        // What only observers see is newer, and so comes last.
        let all = latest.iter().chain(observed.iter().filter(|_| self.observing));
        let chosen = all.filter(|(_, latest)| is_chosen(latest));
        chosen.map(|(name, latest)| (name.clone(), latest.value)).collect()
    }
}
