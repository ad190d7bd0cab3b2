//! The built-in hooks, one file each.

mod checkpoint;
mod early_stopping;
mod mode;

pub use checkpoint::{Checkpoint, CheckpointOptions, Link, SaveLast};
pub use early_stopping::{EarlyStopping, EarlyStoppingOptions};
pub use mode::Mode;

/// Why a built-in hook refuses its options.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OptionError(pub(crate) String);
