//! Resuming: which checkpoint may be restored, restoring it, and continuing at the point of the loop where it was taken.
//!
//! A run that is killed and resumed ends with the same bits as one that was not. The checkpoint is read and compared first
//! (`admit.rs`): configuration, hooks and their states, data, files of the run. A refused resume tears down the data module and
//! changes nothing else. Loading follows in the published order (`restore.rs`): weights before the strategy's set-up, optimizers after
//! `on_fit_start`, when they exist. The events of the beginning (`setup` to `on_train_start`) are delivered anew, and what they leave in
//! metrics, board and random streams is forgotten. Then the loop continues behind the checkpoint's [`ResumePoint`] (`epoch.rs`): pending
//! saves, then module and strategy.
//!
//! A run counts as running until its test is done. A run that was killed in its test resumes from its newest checkpoint, because
//! hooks that write files need their state of the end of training.

mod admit;
mod epoch;
mod point;
mod restore;

use std::path::PathBuf;

use tenterhook_core::Weights;

use crate::checkpoint::Contents;
use crate::config::ChangeRules;
use crate::module::OptimizerState;
use crate::run::FilePosition;
use crate::tensors::TensorMap;

pub(crate) use point::Loops;
pub use point::ResumePoint;

/// What the next call restores, and which differences it accepts.
#[derive(Clone, Default)]
pub(crate) struct ResumeOptions {
    pub(crate) checkpoint: Option<PathBuf>,
    /// The hooks of the checkpoint need not be those that are registered.
    pub(crate) accept_other_hooks: bool,
    /// The configuration and the data of the checkpoint need not be those of this call.
    pub(crate) accept_changes: bool,
    /// Judges differences of the configuration; `None` is the rules for built-in hooks alone.
    pub(crate) change_rules: Option<ChangeRules>,
}

/// A resume: what was read from the checkpoint, until each part of it has been restored.
#[derive(Default)]
pub(crate) struct Resume {
    pub(crate) options: ResumeOptions,
    /// It is being decided whether the checkpoint may be restored; no hook has been called.
    pub(crate) admitting: bool,
    /// The checkpoint that was read and may be restored.
    pub(crate) admitted: Option<(PathBuf, Contents)>,
    /// What changed since the checkpoint, until it is reported.
    pub(crate) changes: Vec<String>,
    /// The checkpoint that was restored.
    pub(crate) from: Option<PathBuf>,
    /// The same, until hooks receive `on_checkpoint_loaded`.
    pub(crate) to_announce: Option<PathBuf>,
    /// The optimizers and the gradients of a window, until the optimizers exist.
    pub(crate) optimizers: Option<(OptimizerState, TensorMap)>,
    /// Where the loop continues, until it does.
    pub(crate) point: Option<ResumePoint>,
    /// The weights that the module had in the place of its own.
    pub(crate) swap_in: Option<Weights>,
    /// How long the files of the run were at the checkpoint.
    pub(crate) file_positions: Vec<FilePosition>,
}

impl Resume {
    pub(crate) fn new(options: ResumeOptions) -> Resume {
        Resume { options, ..Resume::default() }
    }
}
