//! Hooks that detect numerical errors and measure time.

pub(crate) mod nan_guard;
pub(crate) mod profiler;
