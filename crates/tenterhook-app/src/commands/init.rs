//! `tenter init`: writes the complete configuration to a file.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use super::{CommandResult, load_config, print_stdout};
use crate::app::App;
use crate::arguments::Init;
use crate::error::CommandError;

pub(crate) fn run(app: &App, arguments: &Init) -> CommandResult {
    let Init { file, overrides, force } = arguments;
    let text = load_config(app, None, overrides)?.to_toml();
    let mut options = OpenOptions::new();
    options.write(true).create(*force).truncate(*force).create_new(!force);
    let cannot = CommandError::cannot("write", file);
    let mut opened = options.open(file).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => CommandError::new(format_args!("{} already exists", file.display()))
            .fix("choose another name, or overwrite it with --force"),
        _ => cannot(error),
    })?;
    opened.write_all(text.as_bytes()).map_err(cannot)?;
    let shown = file.display();
    print_stdout(&format!("wrote {shown}; edit it, then run: {} train {shown}", app.command));
    Ok(ExitCode::SUCCESS)
}
