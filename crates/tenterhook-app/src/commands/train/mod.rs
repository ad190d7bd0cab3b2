//! `tenter train`: trains, then tests the best weights, and says what came of it.

mod fitting;
mod init;
mod summary;

use std::process::ExitCode;

use super::resumption::Resumption;
use super::weights::Weights;
use super::{Done, print_data, resolve};
use crate::app::App;
use crate::arguments::Train;
pub(super) use fitting::Fitting;

pub(crate) fn run(app: &App, arguments: &Train) -> Done {
    let Train { configured, ending, .. } = arguments;
    let resolved = resolve(app, configured.config.as_deref(), &configured.changes)?;
    if arguments.print_config {
        print_data(resolved.to_toml().trim_end());
        return Ok(ExitCode::SUCCESS);
    }
    let resumption = match &arguments.resume {
        Some(what) => Resumption::find(app, &resolved.runs_dir, what, &resolved, arguments.accepts)?,
        None => Resumption::default(),
    };
    resumption.tell(&resolved.runs_dir, ending.output.quiet);
    let init_from = arguments.init_from.as_deref();
    let init_from = init_from.map(|from| Weights::found(from, &resolved.runs_dir)).transpose()?;
    Fitting { resolved: &resolved, resumption, init_from, ending: *ending }.run(app)
}
