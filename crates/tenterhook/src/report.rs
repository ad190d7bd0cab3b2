//! The result of a call of the trainer.

use std::collections::BTreeMap;

use tenterhook_core::{Failure, Outcome, Progress};

use crate::journal::Failures;
use crate::journal::RunNotice;
use crate::module::Module;
use crate::run::{HookCosts, SinkDeliveries};

/// The report of a call.
#[derive(Debug, Default)]
pub struct Report {
    /// How it ended.
    pub outcome: Outcome,
    /// The progress at the end.
    pub progress: Progress,
    /// The latest value of every metric.
    pub metrics: BTreeMap<String, f64>,
    /// The first thousand notices: decisions, contained failures, refused requests.
    pub notices: Vec<RunNotice>,
    /// The number of further notices.
    pub notices_left_out: u64,
    /// The number of failures by kind, including those that did not end the call.
    pub failures: Failures,
    /// The cost of hooks in all calls of this trainer; empty without `account_hooks`.
    pub hook_costs: HookCosts,
    /// Delivery statistics of the worker threads of hooks.
    pub sinks: Vec<SinkDeliveries>,
    /// The number of lines of metrics and events that could not be written.
    pub lines_lost: u64,
}

/// The error of a call.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The settings are invalid.
    #[error("the settings of the trainer are invalid:\n{}", .0.join("\n"))]
    Settings(Vec<String>),
    /// A failure, after which all receivers were notified and torn down.
    #[error("{failure}")]
    Failed {
        /// The first failure.
        #[source]
        failure: Failure,
        /// Failures after it, during clean-up.
        later: Vec<Failure>,
        /// The report up to the failure.
        report: Box<Report>,
    },
}

/// The same as `Display`, because `main` prints an error with `Debug`.
impl std::fmt::Debug for RunError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

/// The report of a prediction, and the predictions by loader.
pub type Predictions<M> = (Report, Vec<Vec<<M as Module>::Prediction>>);
