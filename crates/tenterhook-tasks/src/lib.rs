//! The tasks built into `tenter`: handwritten digits, and a byte-level language model.

pub mod digits;
pub mod text;
