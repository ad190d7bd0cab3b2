//! Giving what has been written its name, so that a crash leaves the old or the new under it.

use std::io::{self, ErrorKind};
use std::path::Path;

use super::disk::Disk;
use super::{REMOVED, REPLACED, UNFINISHED, beside, exists, parent_of};

/// How something got its name, so that it can be taken back.
enum Placed {
    /// Nothing was there.
    New,
    /// In one rename, over a file or a link, which is gone.
    Over,
    /// The older one has the name of the unfinished now.
    Exchanged,
    /// The older one has the name of what is replaced now.
    Replaced,
}

/// Gives the unfinished its name and waits until that is on the disk; then the older one goes. When that fails, the
/// older one has its name again.
pub(super) fn put_in_place(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    let unfinished = beside(path, UNFINISHED);
    let placed = match name_it(disk, path) {
        Ok(placed) => placed,
        Err(error) => {
            let _ = disk.remove(&unfinished);
            return Err(error);
        }
    };
    if let Err(error) = disk.sync_directory(parent_of(path)) {
        // As far as the disk still does anything. Whichever of the two has the name is whole.
        let _ = take_back(disk, path, &placed).and_then(|()| disk.remove(&unfinished));
        return Err(error);
    }
    // The new one is there to stay. What cannot be removed is litter, which the next save or start tidies away.
    let _ = match placed {
        Placed::New | Placed::Over => Ok(()),
        Placed::Exchanged => disk.remove(&unfinished),
        Placed::Replaced => disk.remove(&beside(path, REPLACED)),
    };
    Ok(())
}

fn name_it(disk: &dyn Disk, path: &Path) -> io::Result<Placed> {
    let unfinished = beside(path, UNFINISHED);
    let is_directory = |path: &Path| path.symlink_metadata().is_ok_and(|found| found.is_dir());
    if !exists(path)? {
        return disk.rename(&unfinished, path).map(|()| Placed::New);
    }
    if !is_directory(path) && !is_directory(&unfinished) {
        return disk.rename(&unfinished, path).map(|()| Placed::Over);
    }
    match disk.exchange(&unfinished, path) {
        Err(error) if error.kind() == ErrorKind::Unsupported => {}
        exchanged => return exchanged.map(|()| Placed::Exchanged),
    }
    let replaced = beside(path, REPLACED);
    disk.rename(path, &replaced)?;
    if let Err(error) = disk.rename(&unfinished, path) {
        // Where this fails too, whoever tidies finds it.
        let _ = disk.rename(&replaced, path);
        return Err(error);
    }
    Ok(Placed::Replaced)
}

fn take_back(disk: &dyn Disk, path: &Path, placed: &Placed) -> io::Result<()> {
    let unfinished = beside(path, UNFINISHED);
    match placed {
        Placed::New => disk.rename(path, &unfinished),
        Placed::Over => Ok(()),
        Placed::Exchanged => disk.exchange(&unfinished, path),
        Placed::Replaced => {
            disk.rename(path, &unfinished)?;
            disk.rename(&beside(path, REPLACED), path)
        }
    }
}

/// Removes what an earlier attempt left beside a name, and puts back what it had moved away.
pub(super) fn clear(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    let replaced = beside(path, REPLACED);
    if exists(&replaced)? && !exists(path)? {
        disk.rename(&replaced, path)?;
    }
    let mut litter = Vec::new();
    for left in [replaced, beside(path, UNFINISHED), beside(path, REMOVED)] {
        if exists(&left)? {
            litter.push(left);
        }
    }
    if !litter.is_empty() {
        // The one that has the name may have got it a moment before the process died: it must be there to stay
        // before the older one goes.
        disk.sync_directory(parent_of(path))?;
    }
    litter.iter().try_for_each(|litter| disk.remove(litter))
}
