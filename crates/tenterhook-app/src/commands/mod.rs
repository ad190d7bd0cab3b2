//! The commands and their shared functions.

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
mod resume_plan;
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
use crate::arguments::Overrides;
use crate::error::{CommandError, WRONG_INPUT};
pub(crate) use crate::terminal::{print_data, print_stderr, print_stdout};

/// The exit code of a command, or its error.
pub(crate) type CommandResult = Result<ExitCode, CommandError>;

/// The default directory of all runs.
const RUNS: &str = "runs";

/// The configuration from all layers: defaults, file, environment and overrides.
fn load_config(app: &App, file: Option<&Path>, overrides: &Overrides) -> Result<Config, CommandError> {
    let sources =
        Sources { file: file.map(Path::to_path_buf), sets: overrides.set.clone(), ..Sources::default() };
    Ok(sources.with_process_environment().resolve(&app.tasks, &app.registry)?)
}

/// The command that resumes the run of a trainer, if it has a run directory.
fn resume_command(app: &App, trainer: &Trainer) -> Option<String> {
    let run = trainer.run_info();
    let directory = run.directory.as_ref()?;
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    // The id is only looked up in the default directory.
    let is_found = directory.parent().is_some_and(|above| real(above) == real(Path::new(RUNS)));
    let name = if is_found { run.id.clone() } else { directory.display().to_string() };
    Some(format!("{} resume {name}", app.command))
}

/// Refuses a plan or data that cannot work, before anything is trained.
fn check_plan(
    resolved: &Config,
    program: &mut dyn Program,
    trainer: &mut Trainer,
) -> Result<(), CommandError> {
    let mut refusals = program.plan_errors(trainer).map_err(|error| error_of(error, trainer))?;
    // Warnings are reported when the run starts.
    refusals.retain(|refusal| !refusal.is_warning());
    if refusals.is_empty() {
        return Ok(());
    }
    let problems = refusals.iter().map(|refusal: &PlanError| resolved.problem_of(refusal, trainer));
    Err(resolved.error(problems).into())
}

/// The error of a failed call. It means wrong input if nothing was trained and there is no run directory.
fn error_of(error: RunError, trainer: &Trainer) -> CommandError {
    let is_untrained =
        matches!(&error, RunError::Failed { report, .. } if report.progress.total_batches == 0);
    let has_directory = trainer.run_info().directory.as_ref().is_some_and(|directory| directory.is_dir());
    let error = CommandError::from_run(error);
    if is_untrained && !has_directory { error.code(WRONG_INPUT) } else { error }
}
