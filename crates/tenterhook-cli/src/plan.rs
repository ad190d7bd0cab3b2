//! `tenter plan`: who receives what, in which order, and why.

use std::path::Path;
use std::process::ExitCode;

pub(crate) fn run(path: &Path, _json: bool) -> Result<ExitCode, String> {
    let _ = path;
    Err("not yet".into())
}
