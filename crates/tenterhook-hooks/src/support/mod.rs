//! Code that several hooks share.

pub(crate) mod activation_stage;
pub(crate) mod byte_size;
pub(crate) mod checks;
#[cfg(feature = "http")]
pub(crate) mod http;
pub(crate) mod log_every;
mod macros;
pub(crate) mod mode;
pub(crate) mod number_format;
pub(crate) mod output_path;
pub(crate) mod param_filter;
pub(crate) mod point_filter;
#[cfg(test)]
pub(crate) mod python;
pub(crate) mod resumable;
#[cfg(feature = "http")]
pub(crate) mod secret;
pub(crate) mod sink;
pub(crate) mod stopwatch;
pub(crate) mod tensor_file;
pub(crate) mod text;

pub(crate) use macros::{from_options, options};
