//! `tenter resume`: resumes a run in its directory and with its configuration.

use std::path::{Path, PathBuf};

use super::resume_plan::ResumePlan;
use super::runs::find_run;
use super::train::Training;
use super::trust::{Action, load_run_config};
use super::{CommandResult, checkpoints::is_checkpoint};
use crate::app::App;
use crate::arguments::Resume;
use crate::error::CommandError;

pub(crate) fn run(app: &App, arguments: &Resume) -> CommandResult {
    let Resume { run, dir, overrides, options, trust, after } = arguments;
    let config = run_directory(app, &dir.path, run)?.join("config.toml");
    if !config.is_file() {
        let error = CommandError::new(format_args!("there is no {}", config.display()));
        return Err(error.fix(train_with_config(app, run)));
    }
    let resolved = load_run_config(app, &config, overrides, *trust, Action::Resume)?;
    let target = ResumePlan::find(app, &dir.path, run, &resolved, *options)?;
    target.report(&dir.path, after.output.quiet);
    Training { resolved: &resolved, target, init_from: None, after: *after }.run(app)
}

/// The directory of a run, found by its name or by one of its checkpoints.
fn run_directory(app: &App, runs_dir: &Path, what: &str) -> Result<PathBuf, CommandError> {
    let path = Path::new(what);
    if !is_checkpoint(path) {
        return Ok(find_run(runs_dir, what)?.directory);
    }
    let real = path.canonicalize().map_err(CommandError::cannot("read", path))?;
    let run = real.ancestors().skip(1).find(|above| above.join("run.json").is_file());
    run.map(Path::to_owned).ok_or_else(|| {
        let error = format!("checkpoint {what} is not in a run directory, so its configuration is missing");
        CommandError::new(error).fix(train_with_config(app, what))
    })
}

fn train_with_config(app: &App, what: &str) -> String {
    format!("name the configuration: `{} train CONFIG --resume {what}`", app.command)
}
