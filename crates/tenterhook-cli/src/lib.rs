//! The command line of `tenter`, for the program itself and for users' own: [`App`] puts modules,
//! data, hooks and schedules of yours behind the same commands. The only crate that prints.

mod app;
mod arguments;
mod commands;
mod curves;
mod progress;
mod scenario;
mod signals;
mod table;

pub use app::App;
