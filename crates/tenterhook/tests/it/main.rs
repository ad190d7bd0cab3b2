//! How the loops behave, beyond the order of events that the recorded scenarios show.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod accumulation;
mod built_in_logs;
mod built_in_times;
mod checkpoints;
mod claims;
mod clipping;
mod clock;
mod control;
mod doc_is_the_loop;
mod document_002;
mod failures;
mod horizon;
mod interruption;
mod lab;
mod line;
mod loaders;
mod losses;
mod metrics;
mod neutrality;
mod optimizers;
mod plan;
mod resume;
mod roster;
mod run_directory;
mod run_files;
mod skips;
mod sources;
mod step_end;
mod tape;
mod updates;
