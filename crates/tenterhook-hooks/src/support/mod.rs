//! What several hooks share. Nothing here is a hook.

pub(crate) mod activation_stage;
pub(crate) mod checks;
pub(crate) mod log_every;
mod macros;
pub(crate) mod mode;
pub(crate) mod param_filter;
pub(crate) mod point_filter;
pub(crate) mod resumable;
pub(crate) mod stopwatch;
pub(crate) mod tensor_file;

pub(crate) use macros::{from_options, options};
