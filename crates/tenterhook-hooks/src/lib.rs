//! The built-in hooks, one file each.

mod checkpoint;
mod early_stopping;
mod ema_weights;
mod mode;
mod nan_guard;

pub use checkpoint::{Checkpoint, CheckpointOptions, Link, SaveLast};
pub use early_stopping::{EarlyStopping, EarlyStoppingOptions};
pub use ema_weights::{EmaWeights, EmaWeightsOptions};
pub use mode::Mode;
pub use nan_guard::{NanAction, NanGuard, NanGuardOptions};
