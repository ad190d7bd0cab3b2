//! `tenter resume`: resumes a run in its directory and with its configuration.

use std::path::{Path, PathBuf};

use super::Done;
use super::resumption::Resumption;
use super::runs::meant;
use super::train::Fitting;
use super::trust::{Act, resolve_of_run};
use crate::app::App;
use crate::arguments::Resume;
use crate::error::CommandError;

pub(crate) fn run(app: &App, arguments: &Resume) -> Done {
    let Resume { run, dir, trust, changes, accepts, ending } = arguments;
    let config = run_directory(app, dir, run)?.join("config.toml");
    if !config.is_file() {
        let what = CommandError::new(format_args!("there is no {}", config.display()));
        return Err(what.fix(train_by_hand(app, "say how it was configured", run)));
    }
    let resolved = resolve_of_run(app, &config, changes, *trust, Act::Resume)?;
    let resumption = Resumption::find(app, dir, run, &resolved, *accepts)?;
    resumption.tell(dir, ending.output.quiet);
    Fitting { resolved: &resolved, resumption, init_from: None, ending: *ending }.run(app)
}

/// The directory of a run, be it named by one of its checkpoints.
fn run_directory(app: &App, dir: &Path, what: &str) -> Result<PathBuf, CommandError> {
    let path = Path::new(what);
    if !path.join("state.json").is_file() && !path.join("manifest.json").is_file() {
        return Ok(meant(dir, what)?.directory);
    }
    let real = path.canonicalize().map_err(CommandError::cannot("read", path))?;
    let above = real.ancestors().skip(1).find(|above| above.join("run.json").is_file());
    above.map(Path::to_owned).ok_or_else(|| {
        let what_is =
            format!("checkpoint {what} lies in no run's directory, so its configuration is not there");
        CommandError::new(what_is).fix(train_by_hand(app, "say it", what))
    })
}

fn train_by_hand(app: &App, why: &str, what: &str) -> String {
    format!("{why}: `{} train CONFIG --resume {what}`", app.command)
}
