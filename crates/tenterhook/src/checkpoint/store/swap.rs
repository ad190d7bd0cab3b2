//! Gives a finished checkpoint or link its name. After a crash, the name refers to the old one or the new
//! one.

use std::io::{self, ErrorKind};
use std::path::Path;

use super::disk::Disk;
use super::{REMOVED, REPLACED, UNFINISHED, exists, hidden_name, parent_of};

/// How a name was assigned, so that it can be undone.
enum Swapped {
    /// The name was free.
    New,
    /// Renamed over a file or a link, which no longer exists.
    Over,
    /// Exchanged: the older one is now `.<name>.unfinished`.
    Exchanged,
    /// Renamed after the older one was renamed to `.<name>.replaced`.
    Replaced,
}

/// Renames `.<name>.unfinished` to its name, syncs, and then removes the older one. After an error the older one has
/// its name again.
pub(super) fn swap_in(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    let unfinished = hidden_name(path, UNFINISHED);
    let swapped = match rename_over(disk, path) {
        Ok(swapped) => swapped,
        Err(error) => {
            let _ = disk.remove(&unfinished);
            return Err(error);
        }
    };
    if let Err(error) = disk.sync_directory(parent_of(path)) {
        // The disk may fail here too. Whichever of the two has the name is whole.
        let _ = swap_back(disk, path, &swapped).and_then(|()| disk.remove(&unfinished));
        return Err(error);
    }
    // The new one is durable. If the older one cannot be removed now, the next save or start removes it.
    let _ = match swapped {
        Swapped::New | Swapped::Over => Ok(()),
        Swapped::Exchanged => disk.remove(&unfinished),
        Swapped::Replaced => disk.remove(&hidden_name(path, REPLACED)),
    };
    Ok(())
}

fn rename_over(disk: &dyn Disk, path: &Path) -> io::Result<Swapped> {
    let unfinished = hidden_name(path, UNFINISHED);
    let is_directory = |path: &Path| path.symlink_metadata().is_ok_and(|found| found.is_dir());
    if !exists(path)? {
        return disk.rename(&unfinished, path).map(|()| Swapped::New);
    }
    if !is_directory(path) && !is_directory(&unfinished) {
        return disk.rename(&unfinished, path).map(|()| Swapped::Over);
    }
    match disk.exchange(&unfinished, path) {
        Err(error) if error.kind() == ErrorKind::Unsupported => {}
        exchanged => return exchanged.map(|()| Swapped::Exchanged),
    }
    let replaced = hidden_name(path, REPLACED);
    disk.rename(path, &replaced)?;
    if let Err(error) = disk.rename(&unfinished, path) {
        // If this fails too, the next save or start renames it back.
        let _ = disk.rename(&replaced, path);
        return Err(error);
    }
    Ok(Swapped::Replaced)
}

fn swap_back(disk: &dyn Disk, path: &Path, swapped: &Swapped) -> io::Result<()> {
    let unfinished = hidden_name(path, UNFINISHED);
    match swapped {
        Swapped::New => disk.rename(path, &unfinished),
        Swapped::Over => Ok(()),
        Swapped::Exchanged => disk.exchange(&unfinished, path),
        Swapped::Replaced => {
            disk.rename(path, &unfinished)?;
            disk.rename(&hidden_name(path, REPLACED), path)
        }
    }
}

/// Removes leftovers of an earlier attempt beside a name, and renames back what it had moved away.
pub(super) fn remove_leftovers(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    let replaced = hidden_name(path, REPLACED);
    if exists(&replaced)? && !exists(path)? {
        disk.rename(&replaced, path)?;
    }
    let mut leftovers = Vec::new();
    for hidden in [replaced, hidden_name(path, UNFINISHED), hidden_name(path, REMOVED)] {
        if exists(&hidden)? {
            leftovers.push(hidden);
        }
    }
    if !leftovers.is_empty() {
        // The process may have died right after it renamed the new one: that must be durable before the older
        // one is removed.
        disk.sync_directory(parent_of(path))?;
    }
    leftovers.iter().try_for_each(|hidden| disk.remove(hidden))
}
