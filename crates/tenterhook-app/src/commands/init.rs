//! `tenter init`: the complete configuration, as a file to edit.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;

use super::{Done, print, resolve};
use crate::app::App;
use crate::arguments::Changes;
use crate::error::CommandError;

pub(crate) fn run(app: &App, file: &Path, changes: &Changes, force: bool) -> Done {
    let text = resolve(app, None, changes)?.to_toml();
    let mut how = OpenOptions::new();
    how.write(true);
    how.create(force).truncate(force).create_new(!force);
    let cannot = CommandError::cannot("write", file);
    let mut to = how.open(file).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => CommandError::new(format_args!("{} is there already", file.display()))
            .fix("choose another name, or replace it with --force"),
        _ => cannot(error),
    })?;
    to.write_all(text.as_bytes()).map_err(cannot)?;
    let shown = file.display();
    print(&format!("wrote {shown}; edit it, then run: {} train {shown}", app.command));
    Ok(ExitCode::SUCCESS)
}
