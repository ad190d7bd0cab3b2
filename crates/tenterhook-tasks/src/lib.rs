//! The tasks built into `tenter`: handwritten digits, and a byte-level language model.

// Only the app prints, in one place that escapes untrusted text.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod digits;
mod loader;
#[cfg(test)]
mod recorded_points;
pub mod text;

pub use loader::LoaderOptions;

/// Bytes of a trained parameter: its value, its gradient, and two moments of the optimizer.
pub(crate) const TRAINED_BYTES: f64 = 16.0;
/// Bytes of a value that is kept for the backward pass.
pub(crate) const KEPT_BYTES: f64 = 4.0;
