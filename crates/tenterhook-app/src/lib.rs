//! The command line of `tenter` as a library: [`App`] runs its commands on your own modules, data, hooks and schedules.
//! It does not depend on an engine.

// Only `terminal` prints: it escapes untrusted text.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod app;
mod arguments;
mod commands;
mod curves;
mod error;
mod failures;
mod format;
mod progress;
mod signals;
mod terminal;

pub use app::App;
