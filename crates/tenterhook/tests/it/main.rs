//! How the loops behave, beyond the order of events that the recorded scenarios show.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod absurd_states;
mod accounts;
mod accumulation;
mod activations;
mod bad_data_and_modules;
mod batch_results;
mod built_in_logs;
mod built_in_times;
mod call_log;
mod charges;
mod checkpoint_announcements;
mod checkpoint_options;
mod checkpoints;
mod claims;
mod clipping;
mod clock;
mod control;
mod data_state;
mod disagreements;
mod doc_is_the_loop;
mod document_002;
mod document_004;
mod early_stopping;
mod ema_weights;
mod everywhere;
mod failing_often;
mod failures;
mod file_sinks;
mod find_run;
mod foreign_checkpoints;
mod gradient_monitor;
mod hook_examples;
mod horizon;
mod identity;
mod interruption;
mod lab;
mod lasting_results;
mod line;
mod listening;
mod loaders;
/// A local server, shared with the tests of the hooks.
#[cfg(feature = "http")]
#[path = "../../../tenterhook-hooks/src/support/http/loopback.rs"]
mod loopback;
mod losses;
mod matrix;
mod metrics;
mod nan_guard;
mod neutral_proofs;
mod neutrality;
mod notices;
mod odd_failures;
mod optimizers;
mod own_loop;
mod passing_on;
mod plan;
mod points;
mod rates_and_plateaus;
#[cfg(feature = "http")]
mod reaching;
mod reading;
mod refused;
mod rehearsals;
mod resume;
mod resumed_directory;
mod roster;
mod run_directory;
mod run_files;
mod saving_fails;
mod second_engine;
mod skips;
mod sources;
mod stalls;
mod step_end;
mod update_hooks;
mod updates;
#[cfg(feature = "upload")]
mod upload;
mod verify_neutral;
mod weights_only;
