//! The best checkpoint of a run, shared with other hooks.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tenterhook_core::{Key, RunContext};

use super::Checkpoint;

/// The best checkpoint so far, by the first checkpoint hook that monitors a metric.
pub const BEST: Key<BestCheckpoint> = Key::new("checkpoint/best");

/// The service that a checkpoint hook with a monitored metric [provides](tenterhook_core::HookSpec::provides).
pub(crate) const PROVIDED: &str = "the choice of a best checkpoint";

/// The best checkpoint by a metric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BestCheckpoint {
    /// The name of the checkpoint hook.
    pub hook: String,
    /// The metric.
    pub monitor: String,
    /// The metric's value.
    #[serde(with = "tenterhook_core::number")]
    pub score: f64,
    /// The checkpoint's path, relative to the checkpoints' root unless it is outside of it.
    pub path: PathBuf,
}

impl Checkpoint {
    /// Publishes the best checkpoint on the board, unless another hook has published its own.
    pub(super) fn publish_best(&self, run_cx: &RunContext<'_>) {
        let Some(monitor) = self.options.monitor.clone() else { return };
        let hook = run_cx.hook_name().to_owned();
        if run_cx.board().get(BEST).is_some_and(|best| best.hook != hook) {
            return;
        }
        match self.state.top_k.best(self.mode) {
            Some((path, Some(score))) => {
                run_cx.board().put(BEST, BestCheckpoint { hook, monitor, score, path: self.at(path) });
            }
            _ => drop(run_cx.board().take(BEST)),
        }
    }
}
