//! Removing what a process left that was killed while it wrote or removed a checkpoint, and setting aside what cannot be
//! read.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use tenterhook_core::BoxError;

use super::disk::{Disk, DiskError};
use super::place::clear;
use super::{DEPTH, UNREADABLE, beside, exists, hidden_for, looks_like_one, parent_of};

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

/// Renames what cannot be read to a hidden name beside it, so that its name is free. Returns the new name.
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
