//! Removes leftovers of killed saves and removals, and sets aside checkpoints that cannot be used.

use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use tenterhook_core::BoxError;

use super::disk::{Disk, DiskError};
use super::open::CheckpointError;
use super::summary::inspect;
use super::swap::remove_leftovers;
use super::write::has_manifest;
use super::{DEPTH, FILES, UNREADABLE, WEIGHTS, exists, hidden_name, looks_like_checkpoint, visible_name};

/// Removes leftovers in a directory of checkpoints. No other process may write there.
pub(crate) fn clean_up(disk: &dyn Disk, root: &Path) -> Result<(), BoxError> {
    Ok(clean_up_below(disk, root, 0).map_err(DiskError::of("clean up the checkpoints in", root))?)
}

fn clean_up_below(disk: &dyn Disk, directory: &Path, depth: usize) -> io::Result<()> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries?.collect::<io::Result<Vec<_>>>()?,
    };
    for entry in entries {
        let path = entry.path();
        if let Some(name) = visible_name(&entry.file_name()) {
            remove_leftovers(disk, &path.with_file_name(name))?;
            continue;
        }
        let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        if !is_hidden && depth < DEPTH && entry.file_type()?.is_dir() && !looks_like_checkpoint(&path)? {
            clean_up_below(disk, &path, depth + 1)?;
        }
    }
    Ok(())
}

/// Sets aside a damaged checkpoint that has lost its manifest, so that its name is free. Returns the new
/// name. Leaves everything else alone: a checkpoint with a manifest, which can be replaced, and a directory
/// that never was a checkpoint, which must not be replaced.
pub(crate) fn set_aside_damaged(disk: &dyn Disk, path: &Path) -> Result<Option<PathBuf>, BoxError> {
    let is_directory = path.symlink_metadata().is_ok_and(|found| found.is_dir());
    // A manifest that cannot be read now may be readable later.
    if !is_directory || !has_manifest(path).is_ok_and(|has| !has) || !was_checkpoint(path) {
        return Ok(None);
    }
    set_aside(disk, path).map(Some)
}

/// Whether a directory without a manifest was a checkpoint: its `state.json` is that of a checkpoint, or it holds
/// weights and only files with names of ours.
fn was_checkpoint(path: &Path) -> bool {
    let found = inspect(path);
    let only_ours = || -> io::Result<bool> {
        let names =
            fs::read_dir(path)?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()?;
        let is_ours = |name: &OsString| FILES.iter().any(|ours| name == ours);
        Ok(names.iter().any(|name| name == WEIGHTS) && names.iter().all(is_ours))
    };
    matches!(found.problem, Some(CheckpointError::Damaged { .. }))
        && (found.summary.is_some() || only_ours().unwrap_or(false))
}

/// Renames a checkpoint that cannot be used to a hidden name beside it, so that its name is free. Returns the new name.
/// Not synced: if a power cut undoes the rename, the checkpoint is set aside again.
pub(crate) fn set_aside(disk: &dyn Disk, path: &Path) -> Result<PathBuf, BoxError> {
    let renamed = || {
        let mut aside = hidden_name(path, UNREADABLE);
        let mut count = 1;
        while exists(&aside)? {
            count += 1;
            aside = hidden_name(path, &format!("{UNREADABLE}-{count}"));
        }
        disk.rename(path, &aside)?;
        Ok(aside)
    };
    Ok(renamed().map_err(DiskError::of("set aside checkpoint", path))?)
}
