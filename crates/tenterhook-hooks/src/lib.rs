//! The built-in hooks, one file each.

mod checkpoint;
mod early_stopping;
mod mode;

pub use checkpoint::{Checkpoint, CheckpointOptions, Link, SaveLast};
pub use early_stopping::{EarlyStopping, EarlyStoppingOptions};
pub use mode::Mode;
