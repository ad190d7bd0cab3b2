//! How the loops behave, beyond the order of events that the recorded scenarios show.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod accumulation;
mod checkpoint_options;
mod checkpoints;
mod claims;
mod clipping;
mod clock;
mod control;
mod doc_is_the_loop;
mod ema_weights;
mod failures;
mod hook_examples;
mod horizon;
mod interruption;
mod lab;
mod line;
mod loaders;
mod losses;
mod metrics;
mod nan_guard;
mod neutrality;
mod optimizers;
mod plan;
mod reading;
mod resume;
mod roster;
mod run_directory;
mod run_files;
mod skips;
mod sources;
mod step_end;
mod tape;
mod updates;
