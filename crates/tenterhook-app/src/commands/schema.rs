//! `tenter schema`: prints the JSON schema of the configuration.

use std::process::ExitCode;

use tenterhook::config::config_schema;

use super::print_data;
use crate::app::App;

pub(crate) fn run(app: &App) -> ExitCode {
    print_data(&format!("{:#}", config_schema(&app.tasks, &app.registry)));
    ExitCode::SUCCESS
}
