//! What `state.json` holds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tenterhook_core::metrics::MetricsState;
use tenterhook_core::plan::TRAIN_LOSS;
use tenterhook_core::random::Positions;
use tenterhook_core::runner::{HookStates, RunnerState};
use tenterhook_core::{BoxError, Progress, State};

use super::afterwards::Afterwards;
use super::announcing::Announcement;
use super::store::FORMAT;
use crate::data::DataState;
use crate::loops::Loop;
use crate::losses::LossesState;
use crate::module::{Module, OptimizerState};
use crate::resume::{ResumePoint, SavedLoopState};
use crate::run::{FilePosition, Identity};
use crate::tensors::TensorMap;

/// Everything a checkpoint holds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Contents {
    /// The version of the format.
    pub format: u32,
    /// Which save of the run this is; the newest has the largest.
    #[serde(default)]
    pub number: u64,
    /// Only weights: nothing to resume from.
    pub weights_only: bool,
    /// Where the run stood.
    pub progress: Progress,
    /// Where a resumed run continues.
    pub resume_point: ResumePoint,
    pub(crate) loops: SavedLoopState,
    /// How long the run had taken.
    pub elapsed: Duration,
    /// The weights.
    #[serde(skip)]
    pub weights: TensorMap,
    /// The gradients of an accumulation window that had not ended.
    #[serde(skip)]
    pub gradients: TensorMap,
    /// The state of optimizers and schedulers.
    pub optimizers: OptimizerState,
    /// The state of the data module, where it has one.
    #[serde(default)]
    pub data: Option<State>,
    /// The states of the hooks, by name.
    pub hooks: HookStates,
    /// The status of every hook.
    pub runner: RunnerState,
    /// What hooks and module added.
    pub entries: BTreeMap<String, Value>,
    /// The metrics.
    pub metrics: MetricsState,
    /// The losses of the epoch so far.
    pub losses: LossesState,
    /// The board.
    pub board: BTreeMap<String, Value>,
    /// The places on it that no observer may take from.
    #[serde(default)]
    pub board_kept: BTreeSet<String>,
    /// The places whose value was taken away.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub board_taken: BTreeSet<String>,
    /// Where the random streams stood.
    pub streams: Positions,
    /// The configuration of the run.
    #[serde(default)]
    pub config: Value,
    /// Data, program and processor of the run.
    #[serde(default)]
    pub identity: Identity,
    /// How long the files of the run were.
    #[serde(default)]
    pub marks: Vec<FilePosition>,
    /// The checkpoints that nobody has been told about yet, this one included.
    #[serde(default)]
    pub unannounced: Vec<Announcement>,
    /// What is to be done once it is durable.
    #[serde(default)]
    pub afterwards: Afterwards,
}

impl Contents {
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

impl<M: Module> Loop<M> {
    /// Everything but tensors and what hooks and module add, as it is now.
    pub(super) fn contents(
        &mut self,
        hooks: HookStates,
        resume_point: ResumePoint,
    ) -> Result<Contents, BoxError> {
        let marks = match &self.journal.recording {
            Some(recording) => recording.recorder().marks()?,
            None => Vec::new(),
        };
        Ok(Contents {
            format: FORMAT,
            number: self.checkpointer.number,
            weights_only: false,
            progress: self.state.progress,
            resume_point,
            loops: self.saved_state(),
            elapsed: self.shared.elapsed(),
            weights: TensorMap::default(),
            gradients: TensorMap::default(),
            optimizers: OptimizerState::default(),
            data: self.checkpointer.data.as_ref().map(DataState::saved),
            hooks,
            runner: self.hooks.state(),
            entries: BTreeMap::new(),
            metrics: self.shared.metrics.state(),
            losses: self.values.losses.state(),
            board: self.shared.board.to_json()?,
            board_kept: self.shared.board.kept_from_observers(),
            board_taken: self.shared.board.taken(),
            streams: self.shared.streams.borrow().positions(),
            config: self.shared.run.config.clone(),
            identity: self.journal.identity.clone(),
            marks,
            unannounced: Vec::new(),
            afterwards: Afterwards::default(),
        })
    }
}
