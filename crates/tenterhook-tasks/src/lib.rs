//! The tasks built into `tenter`: handwritten digits, and a byte-level language model.

pub mod digits;
#[cfg(test)]
mod listener;
mod loader;
pub mod text;

pub use loader::LoaderOptions;
