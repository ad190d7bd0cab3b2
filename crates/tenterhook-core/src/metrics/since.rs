//! Metrics that were logged since some point, such as the start of a batch or an epoch.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::MetricsView;

/// A position in the sequence of all logged values. It can be saved in a checkpoint and stays valid after a
/// resume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LogPosition(u64);

impl MetricsView<'_> {
    /// The current position, for [`since`](MetricsView::since).
    #[must_use]
    pub fn log_position(self) -> LogPosition {
        LogPosition(self.count())
    }

    /// The latest values of all metrics that were logged since a position.
    #[must_use]
    pub fn since(self, start: LogPosition) -> BTreeMap<String, f64> {
        self.chosen(|latest| latest.entry.number > start.0)
    }

    /// The latest values of the metrics that were logged since a position by the module and the trainer, and
    /// of all aggregates of epochs and evaluations.
    #[must_use]
    pub fn since_without_hooks(self, start: LogPosition) -> BTreeMap<String, f64> {
        self.chosen(|latest| latest.entry.number > start.0 && !latest.entry.by_hook)
    }
}

#[cfg(test)]
mod tests {
    use crate::metrics::{LogOptions, Metrics, MetricsView};

    fn all(metrics: &Metrics) -> MetricsView<'_> {
        MetricsView::new(metrics, &(None, None), crate::Phase::Train, true)
    }

    #[test]
    fn a_log_position_separates_earlier_and_later_values_also_after_a_resume() {
        let metrics = Metrics::default();
        metrics.log("before", 1.0, LogOptions::STEP);
        metrics.log("again", 1.0, LogOptions::STEP);
        let mark = all(&metrics).log_position();
        assert!(all(&metrics).since(mark).is_empty());
        metrics.log("again", 1.0, LogOptions::STEP);
        assert!(metrics.log_as_hook("hook", 2.0, LogOptions::STEP).is_ok());
        metrics.log("after", 3.0, LogOptions::STEP);

        let resumed = Metrics::default();
        let text = serde_json::to_string(&metrics.state()).expect("it writes");
        resumed.restore(serde_json::from_str(&text).expect("it reads"));
        for metrics in [metrics, resumed] {
            let since = all(&metrics).since(mark);
            assert_eq!(since.keys().collect::<Vec<_>>(), ["after", "again", "hook"]);
            let of_the_module = all(&metrics).since_without_hooks(mark);
            assert_eq!(of_the_module.keys().collect::<Vec<_>>(), ["after", "again"]);
            let now = all(&metrics).log_position();
            metrics.log("new", 4.0, LogOptions::STEP);
            assert_eq!(all(&metrics).since(now).keys().collect::<Vec<_>>(), ["new"]);
        }
    }
}
