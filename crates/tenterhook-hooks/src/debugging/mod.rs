//! Hooks that find what goes wrong, and where the time goes.

pub(crate) mod nan_guard;
pub(crate) mod profiler;
