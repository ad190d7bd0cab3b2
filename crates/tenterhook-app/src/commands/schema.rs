//! `tenter schema`: the JSON schema of a configuration, for editors and validators.

use std::process::ExitCode;

use tenterhook::config::schema_of_all;

use super::print_data;
use crate::app::App;

pub(crate) fn run(app: &App) -> ExitCode {
    print_data(&format!("{:#}", schema_of_all(&app.tasks, &app.registry)));
    ExitCode::SUCCESS
}
