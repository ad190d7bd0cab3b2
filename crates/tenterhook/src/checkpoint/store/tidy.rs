//! Removing what a process left that was killed while it wrote or removed a checkpoint, and setting aside what cannot be
//! used.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use tenterhook_core::BoxError;

use super::disk::{Disk, DiskError};
use super::glance::glance;
use super::open::Unreadable;
use super::place::clear;
use super::write::has_manifest;
use super::{DEPTH, FILES, UNREADABLE, WEIGHTS, beside, exists, hidden_for, looks_like_one, parent_of};

/// Tidies a directory of checkpoints. Nobody else may be writing there.
pub(crate) fn tidy(disk: &dyn Disk, root: &Path) -> Result<(), BoxError> {
    Ok(tidy_below(disk, root, 0).map_err(DiskError::of("tidy the checkpoints in", root))?)
}

fn tidy_below(disk: &dyn Disk, directory: &Path, depth: usize) -> io::Result<()> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries?.collect::<io::Result<Vec<_>>>()?,
    };
    for entry in entries {
        let path = entry.path();
        if let Some(name) = hidden_for(&entry.file_name()) {
            clear(disk, &path.with_file_name(name))?;
            continue;
        }
        let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        if !is_hidden && depth < DEPTH && entry.file_type()?.is_dir() && !looks_like_one(&path)? {
            tidy_below(disk, &path, depth + 1)?;
        }
    }
    Ok(())
}

/// Sets aside a checkpoint that has lost its manifest, so that its name is free. Returns the new name. Everything else
/// under the name stays: what [`write`](super::write) replaces, and what it refuses to replace.
pub(crate) fn set_aside_damaged(disk: &dyn Disk, path: &Path) -> Result<Option<PathBuf>, BoxError> {
    let is_directory = path.symlink_metadata().is_ok_and(|found| found.is_dir());
    // A manifest that cannot be read may be readable again later.
    if !is_directory || !has_manifest(path).is_ok_and(|has| !has) || !was_checkpoint(path) {
        return Ok(None);
    }
    set_aside(disk, path).map(Some)
}

/// Whether a directory without a manifest of ours was a checkpoint: its `state.json` still reads as one, or it holds nothing but
/// files with the names of a checkpoint's, which no other program would choose.
fn was_checkpoint(path: &Path) -> bool {
    let glance = glance(path);
    let only_ours = || -> io::Result<bool> {
        let names = fs::read_dir(path)?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()?;
        Ok(names.iter().any(|name| name == WEIGHTS) && names.iter().all(|name| FILES.iter().any(|ours| name == ours)))
    };
    matches!(glance.problem, Some(Unreadable::Damaged { .. }))
        && (glance.about.is_some() || only_ours().unwrap_or(false))
}

/// Renames what cannot be used to a hidden name beside it, so that its name is free. Returns the new name.
pub(crate) fn set_aside(disk: &dyn Disk, path: &Path) -> Result<PathBuf, BoxError> {
    let renamed = || {
        let mut aside = beside(path, UNREADABLE);
        let mut count = 1;
        while exists(&aside)? {
            count += 1;
            aside = beside(path, &format!("{UNREADABLE}-{count}"));
        }
        disk.rename(path, &aside)?;
        disk.sync_directory(parent_of(path))?;
        Ok(aside)
    };
    Ok(renamed().map_err(DiskError::of("set aside checkpoint", path))?)
}
