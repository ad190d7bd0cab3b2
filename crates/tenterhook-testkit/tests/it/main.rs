//! The kit through its public interface, on hooks such as users write.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::float_cmp)]

mod every_event;
mod failures;
mod high_losses;
mod kinds;
#[cfg(feature = "trainer")]
mod ranks;
mod resuming;
mod sharing;
