//! Hooks that print, measure and log: progress, learning rates, gradients, activations, time.

pub(crate) mod activation_stats;
pub(crate) mod activation_store;
pub(crate) mod console;
pub(crate) mod gradient_monitor;
pub(crate) mod logging;
pub(crate) mod lr_monitor;
pub(crate) mod model_summary;
pub(crate) mod plateau_detector;
pub(crate) mod throughput;
pub(crate) mod timer;
