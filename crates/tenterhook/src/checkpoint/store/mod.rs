//! Checkpoints as directories of files: written atomically, and verified by hash before they are used.
//!
//! The store does not depend on hooks or modules. Even if the process is killed, a checkpoint's name refers
//! to a whole checkpoint or does not exist. Hidden names beside it hold the rest: `.<name>.unfinished` is
//! being written (or was just replaced and is being removed), `.<name>.removed` is being removed, and
//! `.<name>.replaced` exists for a moment where the system cannot exchange two directories.
//! `.<name>.unreadable` is a checkpoint that a resume has skipped, or that had lost its manifest when its
//! name was needed; it is never removed.

mod cleanup;
mod direct_io;
mod disk;
mod list;
mod manifest;
mod open;
mod summary;
mod swap;
#[cfg(test)]
mod tests;
mod write;

use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

pub(crate) use cleanup::{clean_up, set_aside, set_aside_damaged};
pub(crate) use disk::{Disk, RealDisk};
pub use list::{
    CheckpointSummary, Integrity, ListedCheckpoint, NewestCheckpoint, OnUnreadable, list, newest_whole,
};
pub(crate) use list::{EMERGENCY, LATEST, largest_number, paths};
pub use open::{CheckpointError, verify};
pub(crate) use open::{VerifiedCheckpoint, open, problems};
pub(crate) use summary::is_unreadable;
pub(crate) use write::{FileContent, remove, set_link, write};

/// The version of the format that this program writes.
pub const FORMAT: u32 = 4;

/// Everything in a checkpoint but tensors.
pub(crate) const STATE: &str = "state.json";
/// The weights, in the directory of a checkpoint and of a run.
pub const WEIGHTS: &str = "weights.safetensors";
/// The optimizer state of each parameter.
pub(super) const OPTIMIZERS: &str = "optimizer.safetensors";
/// The gradients of an open accumulation window; absent without one.
pub(super) const GRADIENTS: &str = "gradients.safetensors";
/// The tensors of hook states, as `<hook>/<tensor>`; absent if there are none.
pub(super) const HOOKS: &str = "hooks.safetensors";
/// The list of files with their hashes.
const MANIFEST: &str = "manifest.json";
/// All files that a checkpoint can have.
const FILES: [&str; 6] = [STATE, WEIGHTS, OPTIMIZERS, GRADIENTS, HOOKS, MANIFEST];

/// The largest `state.json` that is written or read.
pub(super) const STATE_LIMIT: u64 = 256 << 20;

/// Names of checkpoints may contain slashes; directories are searched to this depth.
const DEPTH: usize = 8;

const UNFINISHED: &str = "unfinished";
const REMOVED: &str = "removed";
const REPLACED: &str = "replaced";
const UNREADABLE: &str = "unreadable";

/// The hidden name beside `path` with this suffix.
fn hidden_name(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{suffix}"));
    path.with_file_name(name)
}

/// The checkpoint's name that a hidden name for temporary files belongs to.
fn visible_name(name: &OsStr) -> Option<&str> {
    let (name, suffix) = name.to_str()?.strip_prefix('.')?.rsplit_once('.')?;
    [UNFINISHED, REMOVED, REPLACED].contains(&suffix).then_some(name)
}

/// The parent directory; `.` for a plain name.
fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."))
}

/// Whether something has this name; a dangling symbolic link counts.
pub(super) fn exists(path: &Path) -> io::Result<bool> {
    match path.symlink_metadata() {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether this looks like a checkpoint, whole or not, and not like a directory of checkpoints.
fn looks_like_checkpoint(directory: &Path) -> io::Result<bool> {
    for file in [MANIFEST, STATE, WEIGHTS, OPTIMIZERS] {
        if exists(&directory.join(file))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether this directory holds weights without a checkpoint, as that of a run does.
pub(super) fn holds_weights_alone(directory: &Path) -> bool {
    let known = [MANIFEST, STATE, OPTIMIZERS].map(|file| directory.join(file));
    // A file that cannot be read is not absent.
    directory.join(WEIGHTS).is_file() && known.iter().all(|file| matches!(exists(file), Ok(false)))
}
