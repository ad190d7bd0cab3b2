//! The built-in hooks, one file each.

mod checkpoint;
mod early_stopping;
mod ema_weights;
mod gradient_monitor;
mod loss_spike;
mod lr_monitor;
mod mode;
mod nan_guard;
mod plateau_detector;

pub use checkpoint::{Checkpoint, CheckpointOptions, Link, SaveLast};
pub use early_stopping::{EarlyStopping, EarlyStoppingOptions};
pub use ema_weights::{EmaWeights, EmaWeightsOptions};
pub use gradient_monitor::{GradientMonitor, GradientMonitorOptions};
pub use loss_spike::{LossSpike, LossSpikeOptions};
pub use lr_monitor::{LrFrequency, LrMonitor, LrMonitorOptions};
pub use mode::Mode;
pub use nan_guard::{NanAction, NanGuard, NanGuardOptions};
pub use plateau_detector::{PlateauDetector, PlateauDetectorOptions};
