//! The command line of `tenter`, for the program itself and for users' own: [`App`] puts modules,
//! data, hooks and schedules of yours behind the same commands. It depends on no engine. The only crate that prints.

// Only one place prints, which makes untrusted text harmless.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod app;
mod arguments;
mod commands;
mod curves;
mod error;
mod failures;
mod progress;
mod signals;
mod table;
mod terminal;

pub use app::App;
