//! `tenter resume`: goes on with a run, in its directory and with its configuration.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::going_on::GoingOn;
use super::runs::meant;
use super::train::Fitting;
use super::trust::{Act, resolve_of_run};
use crate::app::App;
use crate::arguments::{Accepts, Resume};

pub(crate) fn run(app: &App, arguments: &Resume) -> Result<ExitCode, String> {
    let Resume { run, dir, trust, changes, output, .. } = arguments;
    let config = run_directory(app, dir, run)?.join("config.toml");
    if !config.is_file() {
        return Err(format!(
            "there is no {}; say how it was configured: `{} train CONFIG --resume {run}`",
            config.display(),
            app.command
        ));
    }
    let resolved = resolve_of_run(app, &config, changes, *trust, Act::Resume)?;
    let accepts = Accepts::new(arguments.force, arguments.accept_hook_changes, arguments.skip_unreadable);
    let going_on = GoingOn::found(app, dir, run, &resolved, accepts)?;
    going_on.tell(dir, output.quiet);
    let fitting = Fitting {
        resolved: &resolved,
        going_on,
        init_from: None,
        no_test: arguments.no_test,
        profile_hooks: arguments.profile_hooks,
        output: *output,
    };
    fitting.run(app)
}

/// The directory of a run, be it named by one of its checkpoints.
fn run_directory(app: &App, dir: &Path, what: &str) -> Result<PathBuf, String> {
    let path = Path::new(what);
    if !path.join("state.json").is_file() && !path.join("manifest.json").is_file() {
        return Ok(meant(dir, what)?.directory);
    }
    let real = path.canonicalize().map_err(|error| format!("cannot read {what}: {error}"))?;
    let above = real.ancestors().skip(1).find(|above| above.join("run.json").is_file());
    above.map(Path::to_owned).ok_or_else(|| {
        format!(
            "checkpoint {what} lies in no run's directory, so its configuration is not there; say it: \
             `{} train CONFIG --resume {what}`",
            app.command
        )
    })
}
