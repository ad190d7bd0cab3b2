//! Checkpoints as directories of files: written whole or not at all, and checked to the byte before they are used.
//!
//! Knows nothing of hooks or modules. Whatever happens to the process, at every instant a checkpoint's name leads
//! to a whole checkpoint or to nothing; what is being written or removed has a hidden name beside it:
//! `.<name>.unfinished` (also the one that was just replaced, until it is gone), `.<name>.removed`, and, where the
//! system cannot exchange two directories, for a moment `.<name>.replaced`. `.<name>.unreadable` is a checkpoint that a
//! resume has skipped, or that had no manifest when its name was needed; it is never removed.

mod disk;
mod glance;
mod large;
mod list;
mod manifest;
mod open;
mod place;
#[cfg(test)]
mod tests;
mod tidy;
mod write;

use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

pub(crate) use disk::{Disk, RealDisk};
pub(crate) use glance::is_unreadable;
pub use list::{About, Condition, Listed, Newest, OnUnreadable, list, newest_whole};
pub(crate) use list::{EMERGENCY, LATEST, largest_number, paths};
pub use open::{Unreadable, verify};
pub(crate) use open::{Verified, open, problems};
pub(crate) use tidy::{set_aside, set_aside_damaged, tidy};
pub(crate) use write::{Content, point, remove, write};

/// The version of the format that this program writes.
pub const FORMAT: u32 = 3;

/// What a checkpoint holds besides tensors.
pub(crate) const STATE: &str = "state.json";
/// The weights, in the directory of a checkpoint and of a run.
pub const WEIGHTS: &str = "weights.safetensors";
/// What optimizers keep per parameter.
pub(super) const OPTIMIZERS: &str = "optimizer.safetensors";
/// The gradients of an accumulation window that had not ended; only where there are some.
pub(super) const GRADIENTS: &str = "gradients.safetensors";
/// The tensors of hooks' states, as `<hook>/<tensor>`; only where a hook has some.
pub(super) const HOOKS: &str = "hooks.safetensors";
/// Which files there are, and the hash of each.
const MANIFEST: &str = "manifest.json";
/// All of them.
const FILES: [&str; 6] = [STATE, WEIGHTS, OPTIMIZERS, GRADIENTS, HOOKS, MANIFEST];

/// The largest `state.json` that is written or read.
pub(super) const STATE_LIMIT: u64 = 256 << 20;

/// Names of checkpoints may have slashes; so many are looked behind.
const DEPTH: usize = 8;

const UNFINISHED: &str = "unfinished";
const REMOVED: &str = "removed";
const REPLACED: &str = "replaced";
const UNREADABLE: &str = "unreadable";

/// The hidden name beside this one, for what is not, or no longer, a checkpoint.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{suffix}"));
    path.with_file_name(name)
}

/// The name that this hidden name stands beside.
fn hidden_for(name: &OsStr) -> Option<&str> {
    let (name, suffix) = name.to_str()?.strip_prefix('.')?.rsplit_once('.')?;
    [UNFINISHED, REMOVED, REPLACED].contains(&suffix).then_some(name)
}

/// The directory that something lies in.
fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."))
}

/// Whether something has this name, be it a link that leads nowhere.
pub(super) fn exists(path: &Path) -> io::Result<bool> {
    match path.symlink_metadata() {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether this looks like a checkpoint, whole or not. A directory of checkpoints does not.
fn looks_like_one(directory: &Path) -> io::Result<bool> {
    for file in [MANIFEST, STATE, WEIGHTS, OPTIMIZERS] {
        if exists(&directory.join(file))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether this is a directory of weights that somebody chose to keep, as a run's is, and no checkpoint.
pub(super) fn holds_weights_alone(directory: &Path) -> bool {
    let known = [MANIFEST, STATE, OPTIMIZERS].map(|file| directory.join(file));
    // What cannot be read is there.
    directory.join(WEIGHTS).is_file() && known.iter().all(|file| matches!(exists(file), Ok(false)))
}
