//! The commands, and what they share.

pub(crate) mod compare;
pub(crate) mod evaluate;
pub(crate) mod hooks;
pub(crate) mod init;
pub(crate) mod new;
pub(crate) mod plan;
pub(crate) mod runs;
pub(crate) mod schema;
pub(crate) mod show;
pub(crate) mod trace;
pub(crate) mod train;
mod tree;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use tenterhook::RunError;
use tenterhook::config::{Resolved, Sources};

use crate::app::App;
use crate::arguments::Changes;

/// What was asked for cannot be done: a wrong file, a wrong configuration, a refused plan.
pub(crate) const WRONG_INPUT: u8 = 2;
/// The run failed, after it had begun.
const FAILED: u8 = 1;

/// Prints a line. A reader that has seen enough and hangs up is not our failure.
pub(crate) fn print(line: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

/// Tells people something beside the output. Nobody listening any more ends nothing.
pub(crate) fn tell(line: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// The configuration of all layers.
pub(crate) fn resolve(app: &App, file: Option<&Path>, changes: &Changes) -> Result<Resolved, String> {
    let sources =
        Sources { file: file.map(Path::to_path_buf), sets: changes.set.clone(), ..Sources::default() };
    let resolved = sources.with_process_environment().resolve(&app.tasks, &app.registry);
    resolved.map_err(|error| error.to_string())
}

/// Says why a training failed. When nothing was trained yet, it was wrong from the start.
fn failed(error: RunError) -> ExitCode {
    let untrained = matches!(&error, RunError::Failed { report, .. } if report.progress.total_batches == 0);
    let code = failed_midway(error);
    if untrained { ExitCode::from(WRONG_INPUT) } else { code }
}

/// Says why a call failed that had been accepted.
fn failed_midway(error: RunError) -> ExitCode {
    match error {
        RunError::Settings(problems) => {
            tell(format_args!("error: {}", problems.join("\n")));
            ExitCode::from(WRONG_INPUT)
        }
        RunError::Failed { failure, later, .. } => {
            tell(format_args!("error: {failure}"));
            for failure in later {
                tell(format_args!("also: {failure}"));
            }
            ExitCode::from(FAILED)
        }
    }
}
