//! The contents of a checkpoint.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tenterhook_core::metrics::MetricsState;
use tenterhook_core::plan::TRAIN_LOSS;
use tenterhook_core::random::RandomPositions;
use tenterhook_core::runner::{HookStates, RunnerState};
use tenterhook_core::{Progress, State};

use super::announcements::Announcement;
use super::post_save::PostSave;
use crate::losses::LossesState;
use crate::module::OptimizerState;
use crate::resume::{ResumePoint, SavedLoopState};
use crate::run::{FilePosition, Identity};
use crate::tensors::TensorMap;

/// The contents of a checkpoint: `state.json` and tensors.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CheckpointContents {
    /// The version of the format.
    pub format: u32,
    /// The number of the save in its run; the newest has the largest.
    #[serde(default)]
    pub number: u64,
    /// Whether it holds only weights, so that no run can resume from it.
    pub weights_only: bool,
    /// The progress of the run.
    pub progress: Progress,
    /// The point of the loop at which a resumed run continues.
    pub resume_point: ResumePoint,
    pub(crate) loops: SavedLoopState,
    /// The time that the run had taken.
    pub elapsed: Duration,
    /// The weights.
    #[serde(skip)]
    pub weights: TensorMap,
    /// The gradients of an open accumulation window.
    #[serde(skip)]
    pub gradients: TensorMap,
    /// The state of optimizers and schedulers.
    pub optimizers: OptimizerState,
    /// The state of the data module, if it has one.
    #[serde(default)]
    pub data: Option<State>,
    /// The states of the hooks, by name.
    pub hooks: HookStates,
    /// The status of every hook.
    pub runner: RunnerState,
    /// The entries that hooks and module added in `on_save_checkpoint`.
    pub entries: BTreeMap<String, Value>,
    /// The state of the metrics.
    pub metrics: MetricsState,
    /// The losses of the epoch so far.
    pub losses: LossesState,
    /// The values on the board.
    pub board: BTreeMap<String, Value>,
    /// The keys of the board that observers may not take.
    #[serde(default)]
    pub board_kept: BTreeSet<String>,
    /// The keys of the board whose value was taken.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub board_taken: BTreeSet<String>,
    /// The positions of the random streams.
    pub streams: RandomPositions,
    /// The configuration of the run.
    #[serde(default)]
    pub config: Value,
    /// The fingerprints of data, program and processor.
    #[serde(default)]
    pub identity: Identity,
    /// The positions of the run's files.
    #[serde(default)]
    pub file_positions: Vec<FilePosition>,
    /// The checkpoints that are not announced yet, including this one.
    #[serde(default)]
    pub unannounced: Vec<Announcement>,
    /// The work to do once the checkpoint is durable.
    #[serde(default)]
    pub post_save: PostSave,
}

impl CheckpointContents {
    /// The latest value of every metric, and the step of each. The training loss is that of the last step, which may
    /// not have been logged.
    pub(super) fn latest_metrics(&self) -> (BTreeMap<String, f64>, BTreeMap<String, u64>) {
        let (mut metrics, mut steps) = (self.metrics.latest().clone(), self.metrics.steps().clone());
        let step = self.progress.step;
        if let Some(loss) = self.losses.latest().filter(|_| steps.get(TRAIN_LOSS) < Some(&step)) {
            metrics.insert(TRAIN_LOSS.to_owned(), loss);
            steps.insert(TRAIN_LOSS.to_owned(), step);
        }
        (metrics, steps)
    }
}
