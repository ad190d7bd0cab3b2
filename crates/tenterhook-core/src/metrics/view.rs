//! Metrics as hooks and modules see them.

use std::collections::BTreeMap;

use super::{Latest, Metrics};
use crate::plan::TRAIN_LOSS;
use crate::progress::Phase;
use crate::run_context::LossHistory;

/// A read-only view of the metrics of a run. Use `cx.log` to log.
#[derive(Clone, Copy)]
pub struct MetricsView<'a> {
    metrics: &'a Metrics,
    losses: &'a dyn LossHistory,
    phase: Phase,
    /// Whether the reader is an observer.
    observing: bool,
}

impl<'a> MetricsView<'a> {
    /// Makes a view for a loop. An observer also sees values that were read for observers only.
    #[must_use]
    pub fn new(
        metrics: &'a Metrics,
        losses: &'a dyn LossHistory,
        phase: Phase,
        observing: bool,
    ) -> MetricsView<'a> {
        MetricsView { metrics, losses, phase, observing }
    }
}

impl MetricsView<'_> {
    /// The latest value of a metric.
    ///
    /// `loss` is short for the loss of the current loop (`train/loss`, `val/loss`, `test/loss`), unless a
    /// metric of that name is logged. `train/loss` is the loss of the last batch, which is read from the
    /// engine if it was not logged; at the end of an epoch it is the epoch's mean. The loss of a single batch
    /// of an evaluation is `cx.loss` in the events of the batch.
    #[must_use]
    pub fn get(self, name: &str) -> Option<f64> {
        self.latest(name).map(|latest| latest.value)
    }

    /// The optimizer step of the metric's latest value: for a value logged within a batch the step in
    /// progress, otherwise the last completed one. It is less than `cx.step` if the value is older.
    #[must_use]
    pub fn step_of(self, name: &str) -> Option<u64> {
        self.latest(name).map(|latest| latest.step)
    }

    /// The names of all metrics, sorted.
    #[must_use]
    pub fn names(self) -> Vec<String> {
        self.chosen(|_| true).into_keys().collect()
    }

    /// The latest values of all metrics.
    #[must_use]
    pub fn to_map(self) -> BTreeMap<String, f64> {
        self.chosen(|_| true)
    }

    /// The latest value that was logged under exactly this name. Nothing is read from the engine, so the
    /// conditions of steering hooks do not depend on other hooks.
    pub(crate) fn logged(self, name: &str) -> Option<f64> {
        self.stored(name).map(|latest| latest.value)
    }

    fn latest(self, name: &str) -> Option<Latest> {
        match name {
            TRAIN_LOSS => self.train_loss(),
            "loss" => self.stored(name).or_else(|| match self.phase {
                Phase::Train => self.train_loss(),
                phase => self.stored(phase.loss_metric()),
            }),
            name => self.stored(name),
        }
    }

    /// The loss that was logged for the current step, or else the last loss.
    fn train_loss(self) -> Option<Latest> {
        let (logged, step) = (self.stored(TRAIN_LOSS), self.metrics.values.borrow().step);
        if logged.is_some_and(|logged| logged.step == step) {
            return logged;
        }
        let entry = self.metrics.values.borrow().entry;
        let read = self.losses.latest().map(|value| Latest { value, changed: false, step, entry });
        read.or(logged)
    }

    fn stored(self, name: &str) -> Option<Latest> {
        let values = self.metrics.values.borrow();
        let observed = values.observed.get(name).filter(|_| self.observing);
        observed.or_else(|| values.latest.get(name)).copied()
    }

    /// The number of values logged so far.
    pub(super) fn count(self) -> u64 {
        self.metrics.values.borrow().entry.number
    }

    pub(super) fn chosen(self, is_chosen: impl Fn(&Latest) -> bool) -> BTreeMap<String, f64> {
        let values = self.metrics.values.borrow();
        // Values for observers only are newer, so they come last.
        let all = values.latest.iter().chain(values.observed.iter().filter(|_| self.observing));
        let chosen = all.filter(|(_, latest)| is_chosen(latest));
        chosen.map(|(name, latest)| (name.clone(), latest.value)).collect()
    }
}

/// Formats the latest values as a map.
impl std::fmt::Debug for MetricsView<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.to_map().fmt(f)
    }
}

/// Formats the latest values on one line: `train/loss 0.5, val/loss 0.25`.
impl std::fmt::Display for MetricsView<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all = self.to_map();
        for (at, (name, value)) in all.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{name} {value}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::LogOptions;

    #[test]
    fn loss_is_the_loss_of_the_current_loop_and_is_read_if_it_was_not_logged() {
        let metrics = Metrics::default();
        metrics.log("val/loss", 0.25, LogOptions::STEP);
        metrics.set_step(1);
        let losses = (Some(0.5), None);
        let get = |phase, name: &str| MetricsView::new(&metrics, &losses, phase, false).get(name);
        assert_eq!([get(Phase::Train, "loss"), get(Phase::Train, "train/loss")], [Some(0.5); 2]);
        assert_eq!(
            [get(Phase::Validate, "loss"), get(Phase::Validate, "train/loss")],
            [Some(0.25), Some(0.5)]
        );
        assert_eq!(get(Phase::Test, "loss"), None);
        let of_train = MetricsView::new(&metrics, &losses, Phase::Train, true);
        assert_eq!(of_train.logged("train/loss"), None, "a condition does not read it");
        assert_eq!(of_train.step_of("loss"), Some(1));
        metrics.log("train/loss", 0.75, LogOptions::STEP);
        assert_eq!(get(Phase::Train, "loss"), Some(0.75), "the value that was logged for this step");
        metrics.set_step(2);
        assert_eq!(get(Phase::Train, "train/loss"), Some(0.5), "not that of an earlier one");
        metrics.log("loss", 7.0, LogOptions::STEP);
        assert_eq!(get(Phase::Train, "loss"), Some(7.0), "a logged metric of that name takes precedence");
    }

    #[test]
    fn metrics_are_displayed_as_a_map() {
        let metrics = Metrics::default();
        metrics.log("b", 0.5, LogOptions::STEP);
        metrics.log("a", 2.0, LogOptions::STEP);
        let logged = MetricsView::new(&metrics, &(None, None), Phase::Train, true);
        assert_eq!(
            (format!("{logged:?}"), format!("{metrics:?}")),
            (r#"{"a": 2.0, "b": 0.5}"#.into(), r#"{"a": 2.0, "b": 0.5}"#.into())
        );
        assert_eq!(logged.to_string(), "a 2, b 0.5");
    }
}
