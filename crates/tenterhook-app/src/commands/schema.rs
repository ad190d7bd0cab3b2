//! `tenter schema`: prints the JSON schema of the configuration.

use std::process::ExitCode;

use tenterhook::config::schema_of_all;

use super::print_data;
use crate::app::App;

pub(crate) fn run(app: &App) -> ExitCode {
    print_data(&format!("{:#}", schema_of_all(&app.tasks, &app.registry)));
    ExitCode::SUCCESS
}
