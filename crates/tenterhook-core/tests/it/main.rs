//! The behaviour of core through its public interface.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::float_cmp)]

mod accounts;
mod bench;
mod closures;
mod compile_fail;
mod copies;
mod decisions;
mod laws;
mod order;
mod points;
mod policies;
mod rng;
mod states;
mod toggles;
mod updates;
mod wrappers;
