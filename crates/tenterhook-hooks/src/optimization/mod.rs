//! Hooks that steer training: gradients, weights, learning rates and when to stop.

pub(crate) mod clip_by_norm;
pub(crate) mod clip_by_value;
pub(crate) mod early_stopping;
pub(crate) mod ema_weights;
pub(crate) mod freeze;
pub(crate) mod gradient_noise;
pub(crate) mod loss_spike;
pub(crate) mod scale;
