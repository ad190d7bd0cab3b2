//! Resume: checks a checkpoint, restores it, and continues at the point of the loop where it was taken.
//!
//! A killed and resumed run gives bit-identical results to an uninterrupted one.
//!
//! 1. `validate.rs` reads the checkpoint and compares configuration, hooks and their states, data, and files of
//!    the run. A refused resume tears down the data module and changes nothing else.
//! 2. `restore.rs` loads the weights before the strategy's set-up, and the optimizers after `on_fit_start`,
//!    when they exist. The events from `setup` to `on_train_start` are delivered again, and their effects on
//!    metrics, blackboard and random streams are undone.
//! 3. `epoch.rs` continues at the checkpoint's [`ResumePoint`]: pending saves, then module and strategy.
//!
//! A run counts as running until its test is done. A run that was killed in its test resumes from its newest
//! checkpoint, because hooks that write files need their state at the end of training.

mod epoch;
mod point;
mod restore;
mod validate;

use std::path::PathBuf;

use tenterhook_core::Weights;

use crate::checkpoint::CheckpointContents;
use crate::config::ChangeRules;
use crate::module::OptimizerState;
use crate::run::FilePosition;
use crate::tensors::TensorMap;

pub use point::ResumePoint;
pub(crate) use point::SavedLoopState;

/// The checkpoint that the next call restores, and the differences that it accepts.
#[derive(Clone, Default)]
pub(crate) struct ResumeOptions {
    pub(crate) checkpoint: Option<PathBuf>,
    /// Accept other hooks than those of the checkpoint.
    pub(crate) accept_other_hooks: bool,
    /// Accept another configuration and other data than those of the checkpoint.
    pub(crate) accept_changes: bool,
    /// The rules for differences of the configuration; `None` is those of the built-in hooks.
    pub(crate) change_rules: Option<ChangeRules>,
}

/// A resume in progress: the parts of the checkpoint that are not restored yet.
#[derive(Default)]
pub(crate) struct Resume {
    pub(crate) options: ResumeOptions,
    /// The checkpoint is being checked; no hook has been called.
    pub(crate) validating: bool,
    /// The validated checkpoint.
    pub(crate) validated: Option<(PathBuf, CheckpointContents)>,
    /// Accepted differences from the checkpoint, until they are reported.
    pub(crate) changes: Vec<String>,
    /// The checkpoint that was restored.
    pub(crate) from: Option<PathBuf>,
    /// The restored checkpoint, until `on_checkpoint_loaded` is delivered.
    pub(crate) to_announce: Option<PathBuf>,
    /// The optimizer state and the gradients of an open window, until the optimizers exist.
    pub(crate) optimizers: Option<(OptimizerState, TensorMap)>,
    /// The point at which the loop continues.
    pub(crate) point: Option<ResumePoint>,
    /// The weights that were swapped in for the module's own.
    pub(crate) swap_in: Option<Weights>,
    /// The positions in the files of the run.
    pub(crate) file_positions: Vec<FilePosition>,
}

impl Resume {
    pub(crate) fn new(options: ResumeOptions) -> Resume {
        Resume { options, ..Resume::default() }
    }
}
