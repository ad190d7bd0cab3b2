//! What a call came to, and why it failed.

use std::collections::BTreeMap;

use tenterhook_core::{Failure, Outcome, Progress};

use crate::journal::Failures;
use crate::journal::RunNotice;
use crate::module::Module;
use crate::run::{HookCosts, SentByHook};

/// What a call came to.
#[derive(Debug, Default)]
pub struct Report {
    /// How it ended.
    pub outcome: Outcome,
    /// Where it stood at the end.
    pub progress: Progress,
    /// The latest value of every metric.
    pub metrics: BTreeMap<String, f64>,
    /// What was decided, contained and refused on the way: the first thousand.
    pub notices: Vec<RunNotice>,
    /// How many more there were.
    pub notices_left_out: u64,
    /// What failed on the way, by kind, whether or not it ended the call.
    pub failures: Failures,
    /// What hooks cost, in all calls of this trainer so far; empty where no account is kept.
    pub hook_costs: HookCosts,
    /// What became of what hooks handed to worker threads.
    pub sinks: Vec<SentByHook>,
    /// How many lines of metrics and events could not be written.
    pub lines_lost: u64,
}

/// Why a call failed.
#[derive(thiserror::Error)]
pub enum RunError {
    /// The settings cannot work.
    #[error("the trainer's settings cannot work:\n{}", .0.join("\n"))]
    Settings(Vec<String>),
    /// Something failed; everybody was told and torn down.
    #[error("{failure}")]
    Failed {
        /// The first failure.
        #[source]
        failure: Failure,
        /// What failed after it, while cleaning up.
        later: Vec<Failure>,
        /// How far the call came.
        report: Box<Report>,
    },
}

/// The same text as for people: it is what `main` prints when it returns an error.
impl std::fmt::Debug for RunError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

/// What a prediction came to, and the predictions of every loader.
pub type Predictions<M> = (Report, Vec<Vec<<M as Module>::Prediction>>);
