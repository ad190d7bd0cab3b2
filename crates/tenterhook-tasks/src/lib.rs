//! The tasks built into `tenter`: handwritten digits, and a byte-level language model.

// Only one place prints, which makes untrusted text harmless.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod digits;
#[cfg(test)]
mod listener;
mod loader;
pub mod text;

pub use loader::LoaderOptions;

/// What a parameter takes while it is trained, in bytes: its value, its gradient, and two moments of the optimizer.
pub(crate) const TRAINED_BYTES: f64 = 16.0;
/// What a value that is kept for the backward pass takes, in bytes.
pub(crate) const KEPT_BYTES: f64 = 4.0;
