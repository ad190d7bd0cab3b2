//! The `tenter` program: parses arguments, prints, and sets the exit code. Everything else is in the library.

mod plan;
mod scenario;
mod trace;
mod train;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A training loop whose heart is its hook system.
#[derive(Parser)]
#[command(name = "tenter", version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Train the built-in toy problem, a plane through points, with the configured hooks.
    Train {
        /// A configuration in TOML; without one, built-in settings.
        config: Option<PathBuf>,
        /// Print one line of JSON at the end, for programs.
        #[arg(long)]
        json: bool,
    },
    /// Run a scenario and print the order of its events, one JSON row each.
    ///
    /// A row is [source, event], with the batch index and, when not 0, the loader index where the
    /// event has them. What is printed is what can be compared with Lightning's order; --all adds
    /// the events that are ours alone.
    Trace {
        /// A scenario, in JSON.
        file: PathBuf,
        /// Accepted for programs; rows are JSON anyway.
        #[arg(long)]
        json: bool,
        /// Every row: our own events, and everything the strategy and the module receive.
        #[arg(long)]
        all: bool,
    },
    /// Print, per event, who receives it, in which order, and why.
    ///
    /// Nothing is trained. What the plan refuses is printed with its fix, and the exit code is 2.
    Plan {
        /// A configuration in TOML, or a scenario in JSON.
        config: PathBuf,
        /// Print JSON, for programs.
        #[arg(long)]
        json: bool,
    },
}

/// Prints a line. A reader that has seen enough and hangs up is not our failure.
fn print(line: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

/// What was asked for cannot be done: a wrong file, a wrong configuration, a refused plan.
const WRONG_INPUT: u8 = 2;

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Train { config, json } => train::run(config.as_deref(), json),
        Command::Trace { file, json: _, all } => trace::run(&file, all),
        Command::Plan { config, json } => plan::run(&config, json),
    };
    match result {
        Ok(code) => code,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::from(WRONG_INPUT)
        }
    }
}
