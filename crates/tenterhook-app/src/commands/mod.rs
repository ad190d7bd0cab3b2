//! The commands, and what they share.

pub(crate) mod checkpoints;
pub(crate) mod compare;
mod costs;
pub(crate) mod evaluate;
pub(crate) mod export;
mod failures;
mod going_on;
pub(crate) mod hooks;
pub(crate) mod init;
pub(crate) mod new;
pub(crate) mod plan;
pub(crate) mod points;
pub(crate) mod resume;
pub(crate) mod runs;
pub(crate) mod schema;
pub(crate) mod show;
mod sinks;
pub(crate) mod trace;
pub(crate) mod train;
mod tree;
mod trust;
pub(crate) mod verify_neutral;
mod weights;

use std::path::Path;
use std::process::ExitCode;

use tenterhook::config::{Resolved, Sources};
use tenterhook::task::Program;
use tenterhook::{PlanError, RunError, Trainer};

use crate::app::App;
use crate::arguments::Changes;
pub(crate) use crate::terminal::{print, print_data, tell};

/// What was asked for cannot be done: a wrong file, a wrong configuration, a refused plan.
pub(crate) const WRONG_INPUT: u8 = 2;
/// The run failed, after it had begun.
pub(crate) const FAILED: u8 = 1;

/// The directory of all runs, unless another is named.
const RUNS: &str = "runs";

/// The configuration of all layers.
pub(crate) fn resolve(app: &App, file: Option<&Path>, changes: &Changes) -> Result<Resolved, String> {
    let sources =
        Sources { file: file.map(Path::to_path_buf), sets: changes.set.clone(), ..Sources::default() };
    let resolved = sources.with_process_environment().resolve(&app.tasks, &app.registry);
    resolved.map_err(|error| error.to_string())
}

/// What could not be done to a file, and why.
fn cannot(what: &str, path: &Path) -> impl FnOnce(std::io::Error) -> String {
    move |error| format!("cannot {what} {}: {error}", path.display())
}

/// The command that goes on with the run of a trainer, where it leaves a directory.
fn resume_command(app: &App, trainer: &Trainer) -> Option<String> {
    let run = trainer.run_info();
    let directory = run.directory.as_ref()?;
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    // Elsewhere than usual, its id does not find it.
    let is_found = directory.parent().is_some_and(|above| real(above) == real(Path::new(RUNS)));
    let name = if is_found { run.id.clone() } else { directory.display().to_string() };
    Some(format!("{} resume {name}", app.command))
}

/// Refuses before anything is trained what the plan refuses, and data that cannot be had.
fn accepted(
    resolved: &Resolved,
    program: &mut dyn Program,
    trainer: &mut Trainer,
) -> Result<Option<ExitCode>, String> {
    match program.refusals(trainer) {
        // Warnings are reported when the run starts.
        Ok(refusals) if refusals.iter().all(PlanError::is_warning) => Ok(None),
        Ok(mut refusals) => {
            refusals.retain(|refusal| !refusal.is_warning());
            let problems = refusals.iter().map(|refusal| resolved.problem_of(refusal, trainer));
            Err(resolved.error(problems).to_string())
        }
        Err(error) => Ok(Some(failed(error, trainer))),
    }
}

/// Says why a training failed. When nothing was trained yet, and there is no run directory, it was wrong from
/// the start.
fn failed(error: RunError, trainer: &Trainer) -> ExitCode {
    let untrained = matches!(&error, RunError::Failed { report, .. } if report.progress.total_batches == 0);
    let begun = trainer.run_info().directory.as_ref().is_some_and(|directory| directory.is_dir());
    let code = failed_midway(error);
    if untrained && !begun { ExitCode::from(WRONG_INPUT) } else { code }
}

/// Says why a call failed that had been accepted.
fn failed_midway(error: RunError) -> ExitCode {
    match error {
        RunError::Settings(problems) => {
            tell(format_args!("error: {}", problems.join("\n")));
            ExitCode::from(WRONG_INPUT)
        }
        RunError::Failed { failure, later, report } => {
            tell(format_args!("error: {failure}"));
            if let Some(trace) = &failure.trace {
                tell(format_args!("{}", trace.to_string().trim_end()));
            }
            for failure in &later {
                tell(format_args!("also: {failure}"));
            }
            for line in failures::contained_afterwards(&report.failures, &later) {
                tell(format_args!("also: {line}"));
            }
            for line in failures::contained(&report.failures) {
                tell(format_args!("before: {line}"));
            }
            ExitCode::from(FAILED)
        }
    }
}
