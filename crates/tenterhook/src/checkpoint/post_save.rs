//! The work after a save: removing replaced checkpoints and setting links. If the process is killed before it is
//! done, the run that resumes from the checkpoint does it.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tenterhook_core::BoxError;
use tenterhook_files::cannot;

use super::files;
use super::roots::{CheckpointPath, Roots};
use super::store::{self, Disk, largest_number};

/// The work to do once a checkpoint is durable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PostSave {
    /// The checkpoints to remove.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub replaces: Vec<CheckpointPath>,
    /// A link to set to it, besides `latest`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<CheckpointPath>,
}

/// The checkpoint that training resumes from, and the work after its save, which may not be done.
pub(crate) struct PendingPostSave {
    pub(crate) checkpoint: PathBuf,
    pub(crate) number: u64,
    pub(crate) post_save: PostSave,
}

impl PendingPostSave {
    /// Finishes the work, and returns the removed checkpoints. If there is a newer checkpoint, the work is
    /// already done, because a save ends before the next begins.
    pub(super) fn finish(self, disk: &dyn Disk, roots: &Roots) -> Result<Removals, BoxError> {
        let PendingPostSave { checkpoint, number, post_save } = self;
        let root = roots.own();
        let real_root = match root.canonicalize() {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Removals::default()),
            real => real.map_err(cannot("read", root))?,
        };
        let real = checkpoint.canonicalize().map_err(cannot("read", &checkpoint))?;
        let Ok(name) = real.strip_prefix(&real_root) else { return Ok(Removals::default()) };
        if number == 0 || number < largest_number(root)? {
            return Ok(Removals::default());
        }
        let path = root.join(name);
        // The process may have died right after the rename: that must be durable before other checkpoints are removed.
        disk.sync_directory(path.parent().unwrap_or(root))?;
        let link = post_save.link.filter(|link| roots.is_declared(link)).map(|link| roots.for_writing(&link));
        for link in [Some(roots.latest()), link].into_iter().flatten() {
            let link = link?;
            if link.canonicalize().ok().as_ref() != Some(&real) {
                store::set_link(disk, &link, &path)?;
            }
        }
        let replaced = post_save.replaces.iter().filter(|old| roots.is_declared(old));
        let replaced = replaced.map(|old| roots.for_writing(old)).collect::<Result<Vec<_>, _>>()?;
        // If the status of one is unknown, its removal fails with the reason.
        let left = replaced.into_iter().filter(|old| !matches!(store::exists(old), Ok(false)));
        Ok(Removals::of(disk, left))
    }
}

/// The checkpoints that the run removed without recording it because the process was killed. The checkpoint
/// that replaced them lists them, and was durable first.
pub(super) fn unrecorded_removals(roots: &Roots, recorded: &[PathBuf]) -> Vec<PathBuf> {
    let paths = roots.all().flat_map(|root| store::paths(root).unwrap_or_default());
    // An unreadable checkpoint is reported when it is opened.
    let replaced = paths
        .filter_map(|path| files::read_state(&path).ok())
        .flat_map(|contents| contents.post_save.replaces);
    let mut removed: Vec<_> = replaced.filter_map(|old| roots.resolve(&old).ok()).collect();
    removed.retain(|old| !recorded.contains(old) && old.symlink_metadata().is_err());
    removed.sort();
    removed.dedup();
    removed
}

/// The result of removing checkpoints.
#[derive(Default)]
pub(crate) struct Removals {
    pub(crate) removed: Vec<PathBuf>,
    /// Checkpoints that were not removed, or set aside instead, and why. None of this is a failure.
    pub(crate) notices: Vec<String>,
}

impl Removals {
    /// Removes these checkpoints.
    pub(super) fn of(disk: &dyn Disk, paths: impl IntoIterator<Item = PathBuf>) -> Removals {
        let mut all = Removals::default();
        for path in paths {
            let aside = set_aside_damaged(disk, &path);
            match aside.and_then(|aside| store::remove(disk, &path).map(|()| aside)) {
                Ok(aside) => {
                    all.notices.extend(aside);
                    all.removed.push(path);
                }
                Err(error) => all.notices.push(error.to_string()),
            }
        }
        all
    }
}

/// Sets aside a damaged checkpoint without a manifest, which cannot be replaced. Returns a notice if there was one.
pub(super) fn set_aside_damaged(disk: &dyn Disk, path: &Path) -> Result<Option<String>, BoxError> {
    let aside = store::set_aside_damaged(disk, path)?;
    let path = path.display();
    Ok(aside.map(|aside| {
        format!(
            "{path} is damaged: it has no manifest of a checkpoint, and was set aside as {}",
            aside.display()
        )
    }))
}
