//! What a save does once its checkpoint is durable. A process that is killed in between leaves it to whoever goes on
//! from that checkpoint.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tenterhook_core::{BoxError, Failure, Progress};
use tenterhook_files::cannot;

use super::disk;
use super::roots::{CheckpointPath, Roots};
use super::store::{self, Disk, RealDisk, largest_number, tidy};
use crate::loops::{Loop, Who};
use crate::module::Module;

/// What comes after a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Afterwards {
    /// The checkpoints to remove.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub replaces: Vec<CheckpointPath>,
    /// A link to point at it, besides `latest`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<CheckpointPath>,
}

/// A checkpoint that training goes on from, and what may not have been done after it.
pub(crate) struct LeftOpen {
    pub(crate) checkpoint: PathBuf,
    pub(crate) number: u64,
    pub(crate) afterwards: Afterwards,
}

impl LeftOpen {
    /// Does the rest, and returns what was removed. Where there is a newer checkpoint, nothing was left open: one save
    /// ends before the next begins.
    pub(super) fn finish(self, disk: &dyn Disk, roots: &Roots) -> Result<Removed, BoxError> {
        let LeftOpen { checkpoint, number, afterwards } = self;
        let root = roots.own();
        let real_root = match root.canonicalize() {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Removed::default()),
            real => real.map_err(cannot("read", root))?,
        };
        let real = checkpoint.canonicalize().map_err(cannot("read", &checkpoint))?;
        let Ok(name) = real.strip_prefix(&real_root) else { return Ok(Removed::default()) };
        if number == 0 || number < largest_number(root)? {
            return Ok(Removed::default());
        }
        let path = root.join(name);
        // It may have got its name a moment before the process died: it must be there to stay before others go.
        disk.sync_directory(path.parent().unwrap_or(root))?;
        let link = afterwards.link.filter(|link| roots.knows(link)).map(|link| roots.for_writing(&link));
        for link in [Some(roots.latest()), link].into_iter().flatten() {
            let link = link?;
            if link.canonicalize().ok().as_ref() != Some(&real) {
                store::point(disk, &link, &path)?;
            }
        }
        let replaced = afterwards.replaces.iter().filter(|old| roots.knows(old));
        let replaced = replaced.map(|old| roots.for_writing(old)).collect::<Result<Vec<_>, _>>()?;
        // One that cannot be looked at is not gone: its removal fails and says why.
        let left = replaced.into_iter().filter(|old| !matches!(store::exists(old), Ok(false)));
        Ok(Removed::of(disk, left))
    }
}

/// The checkpoints that the run removed without recording it, because the process was killed in between. The checkpoint
/// that replaced one is durable before that goes, and names it.
pub(super) fn unrecorded_removals(roots: &Roots, recorded: &[PathBuf]) -> Vec<PathBuf> {
    let paths = roots.all().flat_map(|root| store::paths(root).unwrap_or_default());
    // A checkpoint that cannot be read is reported where it is opened.
    let replaced =
        paths.filter_map(|path| disk::read_state(&path).ok()).flat_map(|it| it.afterwards.replaces);
    let mut removed: Vec<_> = replaced.filter_map(|old| roots.place(&old).ok()).collect();
    removed.retain(|old| !recorded.contains(old) && old.symlink_metadata().is_err());
    removed.sort();
    removed.dedup();
    removed
}

/// What became of checkpoints that were to be removed.
#[derive(Default)]
pub(super) struct Removed {
    pub(super) removed: Vec<PathBuf>,
    /// Why others stay, or are set aside instead. One checkpoint too many is no reason to fail.
    pub(super) notices: Vec<String>,
}

impl Removed {
    /// Removes checkpoints.
    pub(super) fn of(disk: &dyn Disk, paths: impl IntoIterator<Item = PathBuf>) -> Removed {
        let mut all = Removed::default();
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

/// Sets aside a damaged checkpoint without a manifest, which is neither replaced nor removed. Returns what was done.
pub(super) fn set_aside_damaged(disk: &dyn Disk, path: &Path) -> Result<Option<String>, BoxError> {
    let aside = store::set_aside_damaged(disk, path)?;
    let path = path.display();
    Ok(aside.map(|aside| format!("{path} is damaged: it has no manifest of a checkpoint, and was set aside as {}", aside.display())))
}

impl<M: Module> Loop<M> {
    /// Counts on from what is there.
    pub(crate) fn count_on(&mut self) -> Result<(), Failure> {
        let largest = largest_number(&self.shared.run.checkpoints);
        self.at(Who::Trainer, "begin");
        self.checkpointer.number =
            self.checkpointer.number.max(self.checked(largest.map_err(BoxError::from))?);
        Ok(())
    }

    /// Nobody else saves here from now on: sets aside what the resume skips, removes what a killed process left, and
    /// finishes what it had begun.
    pub(crate) fn take_over_checkpoints(&mut self, unreadable: &[PathBuf]) -> Result<(), Failure> {
        if self.shared.run.fast_dev_run {
            return Ok(());
        }
        let roots = self.roots();
        self.at(Who::Trainer, "begin");
        let aside = self.checked(roots.set_aside(&RealDisk, unreadable))?;
        self.count_on()?;
        let left_open = self.checkpointer.left_open.take();
        let finish = || {
            // Also refuses a directory of checkpoints that is a symbolic link.
            roots.latest()?;
            tidy(&RealDisk, roots.own())?;
            left_open.map_or_else(|| Ok(Removed::default()), |left| left.finish(&RealDisk, &roots))
        };
        let mut finished = self.checked(finish())?;
        finished.removed.extend(unrecorded_removals(&roots, &self.shared.run.removed_checkpoints));
        let Progress { step, epoch, .. } = self.state.progress;
        self.note_removed(step, epoch, finished);
        self.note_texts(aside);
        Ok(())
    }
}
