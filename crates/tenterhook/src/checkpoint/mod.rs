//! Assembling and announcing checkpoints.

mod disk;
mod hook_tensors;
mod restore;
mod store;

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenterhook_core::metrics::MetricsState;
use tenterhook_core::random::Positions;
use tenterhook_core::runner::HookStates;
use tenterhook_core::{BoxError, Entries, Failure, Progress, SaveRequest};

pub use disk::read;
use disk::write;
pub use hook_tensors::weights_to_evaluate;
use store::RealDisk;
pub use store::{About, Condition, FORMAT, Listed, Newest, Unreadable, WEIGHTS, list, newest_whole, verify};

pub use crate::losses::LossesState;
use crate::module::{Module, OptimizerState};
use crate::run::Happening;
use crate::running::{Running, Saved, Who};
use crate::session::Session;
use crate::tensors::TensorMap;

/// Everything a checkpoint holds.
#[derive(Debug, Serialize, Deserialize)]
pub struct Contents {
    /// The version of the format.
    pub format: u32,
    /// Only weights: nothing to resume from.
    pub weights_only: bool,
    /// Where the run stood.
    pub progress: Progress,
    /// How long the run had taken.
    pub elapsed: Duration,
    /// The weights.
    #[serde(skip)]
    pub weights: TensorMap,
    /// The state of optimizers and schedulers.
    pub optimizers: OptimizerState,
    /// The states of the hooks, by name.
    pub hooks: HookStates,
    /// The tensors of those states, while they are written.
    #[serde(skip)]
    hook_tensors: TensorMap,
    /// What hooks and module added.
    pub entries: std::collections::BTreeMap<String, serde_json::Value>,
    /// The metrics.
    pub metrics: MetricsState,
    /// The losses of the epoch so far.
    pub losses: LossesState,
    /// The board.
    pub board: std::collections::BTreeMap<String, serde_json::Value>,
    /// The places on it that no observer may take from.
    #[serde(default)]
    pub board_kept: std::collections::BTreeSet<String>,
    /// Where the random streams stood.
    pub streams: Positions,
}

impl<M: Module> Running<M> {
    /// Assembles and writes a checkpoint: every hook's state, `on_save_checkpoint` of every hook, then
    /// of the module.
    pub(crate) fn save(&mut self, module: &mut M, request: &SaveRequest) -> Result<(), Failure> {
        let weights_only = request.weights_only;
        let mut hooks = HookStates::new();
        let entries = Entries::default();
        if !weights_only {
            hooks = self.hooks.states(&self.progress)?;
            emit!(self, module, SaveCheckpoint { entries: &entries });
        }
        self.at(Who::Module, "on_save_checkpoint");
        let told = module.on_save_checkpoint(&entries);
        self.checked(told)?;
        let weights = if weights_only { self.scored_weights(module)? } else { self.own_weights(module)? };
        self.at(Who::Module, "optimizer_state");
        let optimizers = if weights_only { Ok(OptimizerState::default()) } else { module.optimizer_state() };
        let optimizers = self.checked(optimizers)?;
        self.at(Who::Trainer, "save");
        let contents = (|| -> Result<Contents, BoxError> {
            Ok(Contents {
                format: FORMAT,
                weights_only,
                progress: self.progress,
                elapsed: self.shared.elapsed(),
                weights,
                optimizers,
                hook_tensors: hook_tensors::take(&mut hooks),
                hooks,
                entries: entries.into_map(),
                metrics: self.shared.metrics.state(),
                losses: self.losses.state(),
                board: self.shared.board.to_json()?,
                board_kept: self.shared.board.kept_from_observers(),
                streams: self.shared.streams.borrow().positions(),
            })
        })();
        let contents = self.checked(contents)?;
        let path = self.path_of(request);
        let written = write(&path, &contents);
        self.checked(written)?;
        self.record_happening(Happening::Checkpoint { path: path.clone(), weights_only });
        let root = &self.shared.run.checkpoints;
        let replaced: Vec<_> = request.replaces.iter().map(|old| root.join(old)).collect();
        for old in replaced.into_iter().filter(|old| *old != path) {
            let removed = store::remove(&RealDisk, &old);
            self.checked(removed)?;
            self.record_happening(Happening::CheckpointRemoved { path: old });
        }
        if let Some(link) = &request.link {
            let link = self.shared.run.checkpoints.join(link);
            let linked = store::point(&RealDisk, &link, &path);
            self.checked(linked)?;
        }
        self.saved.push(Saved { step: self.progress.step, path });
        Ok(())
    }

    /// The weights that training goes on with; those that were swapped in to be evaluated are not.
    fn own_weights(&mut self, module: &M) -> Result<TensorMap, Failure> {
        self.at(Who::Module, "weights");
        let weights = self.own_weights.clone().map_or_else(|| module.weights(), Ok);
        self.checked(weights)
    }

    /// The weights as they are evaluated: those that are swapped in, or that a hook keeps for it.
    fn scored_weights(&mut self, module: &M) -> Result<TensorMap, Failure> {
        self.at(Who::Module, "weights");
        let weights = module.weights();
        let mut weights = self.checked(weights)?;
        if self.own_weights.is_none()
            && let Some(kept) = self.hooks.weights_to_evaluate(&self.progress)?
        {
            for (name, shape, values) in kept.iter() {
                weights.insert_f32(name, shape, values);
            }
        }
        Ok(weights)
    }

    fn path_of(&self, request: &SaveRequest) -> PathBuf {
        let Progress { epoch, step, .. } = self.progress;
        let name = request.path.clone().unwrap_or_else(|| format!("epoch={epoch}-step={step}").into());
        self.shared.run.checkpoints.join(name)
    }
}

impl<M: Module> Session<'_, M> {
    /// Announces the checkpoints that have become durable, at a step boundary.
    pub(crate) fn announce_checkpoints(&mut self) -> Result<(), Failure> {
        if self.run.saved.is_empty() {
            return Ok(());
        }
        for saved in std::mem::take(&mut self.run.saved) {
            emit!(
                self.run,
                self.module,
                CheckpointSaved {
                    saved_step: saved.step,
                    path: &saved.path,
                    root: &self.run.shared.run.checkpoints,
                }
            );
        }
        Ok(())
    }
}
