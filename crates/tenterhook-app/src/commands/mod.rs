//! The commands, and what they share.

pub(crate) mod checkpoints;
pub(crate) mod compare;
mod costs;
pub(crate) mod evaluate;
pub(crate) mod export;
pub(crate) mod hooks;
pub(crate) mod init;
pub(crate) mod new;
pub(crate) mod plan;
pub(crate) mod points;
pub(crate) mod resume;
mod resumption;
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

use tenterhook::config::{Config, Sources};
use tenterhook::task::Program;
use tenterhook::{PlanError, RunError, Trainer};

use crate::app::App;
use crate::arguments::Changes;
use crate::error::{CommandError, WRONG_INPUT};
pub(crate) use crate::terminal::{print, print_data, tell};

/// What became of a command.
pub(crate) type Done = Result<ExitCode, CommandError>;

/// The directory of all runs, unless another is named.
const RUNS: &str = "runs";

/// The configuration of all layers.
pub(crate) fn resolve(app: &App, file: Option<&Path>, changes: &Changes) -> Result<Config, CommandError> {
    let sources =
        Sources { file: file.map(Path::to_path_buf), sets: changes.set.clone(), ..Sources::default() };
    Ok(sources.with_process_environment().resolve(&app.tasks, &app.registry)?)
}

/// The command that resumes the run of a trainer, where it leaves a directory.
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
fn accept(resolved: &Config, program: &mut dyn Program, trainer: &mut Trainer) -> Result<(), CommandError> {
    let mut refusals = program.plan_errors(trainer).map_err(|error| failed(error, trainer))?;
    // Warnings are reported when the run starts.
    refusals.retain(|refusal| !refusal.is_warning());
    if refusals.is_empty() {
        return Ok(());
    }
    let problems = refusals.iter().map(|refusal: &PlanError| resolved.problem_of(refusal, trainer));
    Err(resolved.error(problems).into())
}

/// Why a call failed. When nothing was trained yet, and there is no run directory, it was wrong from the start.
fn failed(error: RunError, trainer: &Trainer) -> CommandError {
    let untrained = matches!(&error, RunError::Failed { report, .. } if report.progress.total_batches == 0);
    let begun = trainer.run_info().directory.as_ref().is_some_and(|directory| directory.is_dir());
    let error = CommandError::of_run(error);
    if untrained && !begun { error.code(WRONG_INPUT) } else { error }
}
