//! Hooks that save checkpoints.

pub(crate) mod checkpoint;
