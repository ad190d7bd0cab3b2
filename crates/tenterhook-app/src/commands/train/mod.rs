//! `tenter train`: trains, then tests the best weights, and says what came of it.

mod fitting;
mod init;
mod summary;

use std::process::ExitCode;

use super::going_on::GoingOn;
use super::weights::Weights;
use super::{print_data, resolve};
use crate::app::App;
use crate::arguments::{Accepts, Train};
pub(super) use fitting::Fitting;

pub(crate) fn run(app: &App, arguments: &Train) -> Result<ExitCode, String> {
    let resolved = resolve(app, arguments.config.as_deref(), &arguments.changes)?;
    if arguments.print_config {
        print_data(resolved.to_toml().trim_end());
        return Ok(ExitCode::SUCCESS);
    }
    let accepts = Accepts::new(arguments.force, arguments.accept_hook_changes, arguments.skip_unreadable);
    let going_on = match &arguments.resume {
        Some(what) => GoingOn::found(app, &resolved.runs_dir, what, &resolved, accepts)?,
        None => GoingOn::default(),
    };
    going_on.tell(&resolved.runs_dir, arguments.output.quiet);
    let init_from = arguments.init_from.as_deref();
    let init_from = init_from.map(|from| Weights::found(from, &resolved.runs_dir)).transpose()?;
    let fitting = Fitting {
        resolved: &resolved,
        going_on,
        init_from,
        no_test: arguments.no_test,
        profile_hooks: arguments.profile_hooks,
        output: arguments.output,
    };
    fitting.run(app)
}
