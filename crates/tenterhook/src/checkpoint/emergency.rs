//! The emergency checkpoint, which is taken on a signal.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tenterhook_core::{BoxError, Progress};
use tenterhook_files::{RelPath, cannot};

use super::contents::CheckpointContents;
use super::roots::CheckpointPath;
use super::store::EMERGENCY;

/// The state for taking an emergency checkpoint.
#[derive(Default)]
pub(crate) struct Emergency {
    /// Whether the program watches signals.
    pub(crate) is_armed: bool,
    /// A signal has arrived, so saves retry without pauses.
    pub(crate) hurry: Arc<AtomicBool>,
    /// The contents without tensors before the current validation, which a signal may interrupt.
    pub(crate) before_validation: Option<Box<CheckpointContents>>,
    /// Whether the checkpoint has been taken.
    pub(crate) taken: bool,
}

/// The name of the emergency checkpoint at this progress.
pub(crate) fn emergency_name(progress: &Progress) -> Result<CheckpointPath, BoxError> {
    let Progress { epoch, step, .. } = progress;
    Ok(RelPath::new(format!("{EMERGENCY}epoch={epoch}-step={step}"))?.into())
}

/// The emergency checkpoints in a directory.
pub(crate) fn emergencies_in(root: &Path) -> Result<Vec<CheckpointPath>, BoxError> {
    let entries = match std::fs::read_dir(root) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.and_then(Iterator::collect::<io::Result<Vec<_>>>),
    };
    let entries = entries.map_err(cannot("read", root))?;
    let names = entries.into_iter().filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<_> = names.filter(|name| name.starts_with(EMERGENCY)).collect();
    names.sort();
    Ok(names.into_iter().filter_map(|name| Some(RelPath::new(name).ok()?.into())).collect())
}
