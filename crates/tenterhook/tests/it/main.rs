//! How the loops behave, beyond the order of events that the recorded scenarios show.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod accumulation;
mod clipping;
mod doc_is_the_loop;
mod lab;
mod line;
mod optimizers;
mod skips;
mod sources;
mod step_end;
mod tape;
mod updates;
