//! Hooks that print and measure how training goes.

pub(crate) mod console;
pub(crate) mod logging;
