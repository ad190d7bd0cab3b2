//! The tasks built into `tenter`: handwritten digits, and a byte-level language model.

// Only one place prints, which makes untrusted text harmless.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod digits;
#[cfg(test)]
mod listener;
mod loader;
pub mod text;

pub use loader::LoaderOptions;
