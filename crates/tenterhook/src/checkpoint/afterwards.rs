//! What a save does once its checkpoint is durable. A process that is killed in between leaves it to whoever goes on
//! from that checkpoint.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tenterhook_core::BoxError;

use super::store::{self, Disk, LATEST, RealDisk};

/// What comes after a checkpoint, as paths below the checkpoints' root unless they are elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Afterwards {
    /// The checkpoints to remove.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub replaces: Vec<PathBuf>,
    /// A link to point at it, besides `latest`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<PathBuf>,
}

/// A checkpoint that training goes on from, and what may not have been done after it.
pub(crate) struct LeftOpen {
    pub(super) checkpoint: PathBuf,
    pub(super) number: u64,
    pub(super) afterwards: Afterwards,
}

impl LeftOpen {
    /// Does the rest, and tells what was removed. Where there is a newer checkpoint, nothing was left open: one save
    /// ends before the next begins.
    pub(super) fn finish(self, root: &Path) -> Result<Vec<PathBuf>, BoxError> {
        let LeftOpen { checkpoint, number, afterwards } = self;
        let (Ok(real), Ok(real_root)) = (checkpoint.canonicalize(), root.canonicalize()) else {
            return Ok(Vec::new());
        };
        let Ok(name) = real.strip_prefix(&real_root) else { return Ok(Vec::new()) };
        if number == 0 || number < store::largest_number(root) {
            return Ok(Vec::new());
        }
        let path = root.join(name);
        // It may have got its name a moment before the process died: it must be there to stay before others go.
        RealDisk.sync_directory(path.parent().unwrap_or(root))?;
        for link in [Some(LATEST.into()), afterwards.link].into_iter().flatten() {
            let link = root.join(link);
            if link.canonicalize().ok().as_ref() != Some(&real) {
                store::point(&RealDisk, &link, &path)?;
            }
        }
        let replaced = afterwards.replaces.iter().map(|old| root.join(old));
        let there = replaced.filter(|old| old.symlink_metadata().is_ok());
        // One that cannot be removed is one too many, which is no reason to fail.
        Ok(there.filter(|old| store::remove(&RealDisk, old).is_ok()).collect())
    }
}
