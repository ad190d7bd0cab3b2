//! Tests of the public interface, with hooks as users write them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::float_cmp)]

mod every_event;
mod failures;
mod high_losses;
#[cfg(feature = "trainer")]
mod ranks;
mod resuming;
mod sharing;
mod update_and_forward_hooks;
