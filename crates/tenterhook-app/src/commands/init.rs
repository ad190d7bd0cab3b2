//! `tenter init`: the complete configuration, as a file to edit.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;

use super::{print, resolve};
use crate::app::App;
use crate::arguments::Changes;

pub(crate) fn run(app: &App, file: &Path, changes: &Changes, force: bool) -> Result<ExitCode, String> {
    let text = resolve(app, None, changes)?.to_toml();
    let mut how = OpenOptions::new();
    how.write(true);
    if force {
        how.create(true).truncate(true)
    } else {
        how.create_new(true)
    };
    let mut to = how.open(file).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => {
            format!("{} is there already; choose another name, or replace it with --force", file.display())
        }
        _ => format!("cannot write {}: {error}", file.display()),
    })?;
    to.write_all(text.as_bytes()).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    let shown = file.display();
    print(&format!("wrote {shown}; edit it, then run: {} train {shown}", app.command));
    Ok(ExitCode::SUCCESS)
}
