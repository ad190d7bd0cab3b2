//! Atomic and durable writes. A new name survives a power cut once its directory is synced.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{create_no_follow, open_no_follow};

/// Writes a file atomically: it is written under a temporary name and then renamed, so readers never see a
/// partial file. The content may be lost in a power cut; [`write_durably`] syncs it.
///
/// # Errors
/// The error of the system or of `content`. The old file is kept, and the temporary one is removed.
pub fn write_atomically(
    path: &Path,
    content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    write(path, content, |_| Ok(()))
}

/// Writes a file atomically, and syncs its content and its name.
///
/// # Errors
/// Those of [`write_atomically`].
pub fn write_durably(path: &Path, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    write(path, content, File::sync_all)?;
    sync_parent(path)
}

fn write(
    path: &Path,
    content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    sync: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<()> {
    let unfinished = unfinished(path, "")?;
    let created = create_no_follow(&unfinished);
    finish(&unfinished, created, content, sync, |unfinished| fs::rename(unfinished, path))
}

/// Writes a file atomically that several processes may write at the same time; the last one wins.
///
/// # Errors
/// Those of [`write_atomically`].
pub fn write_shared(path: &Path, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let (unfinished, file) = create_unique(path, OpenOptions::new().write(true))?;
    finish(&unfinished, Ok(file), content, |_| Ok(()), |unfinished| fs::rename(unfinished, path))
}

/// Creates a file that only this user can access, atomically. An existing file is kept.
///
/// # Errors
/// Those of [`write_durably`].
pub fn create_private(path: &Path, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let (unfinished, file) = create_unique(path, options.write(true))?;
    finish(&unfinished, Ok(file), content, File::sync_all, |unfinished| {
        match fs::hard_link(unfinished, path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                // Some file systems have no hard links.
                fs::rename(unfinished, path)
            }
            _ => fs::remove_file(unfinished),
        }
    })?;
    sync_parent(path)
}

/// Creates a file under a temporary name that no other process or thread uses.
fn create_unique(path: &Path, options: &mut OpenOptions) -> io::Result<(PathBuf, File)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let process = std::process::id();
    loop {
        let unfinished = unfinished(path, &format!(".{process}-{}", NEXT.fetch_add(1, Ordering::Relaxed)))?;
        match open_no_follow(&unfinished, options.create_new(true)) {
            // Another machine, or a killed process with the same id.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            created => return Ok((unfinished, created?)),
        }
    }
}

/// Writes a created file and gives it its name.
fn finish(
    unfinished: &Path,
    created: io::Result<File>,
    content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    sync: impl FnOnce(&File) -> io::Result<()>,
    name: impl FnOnce(&Path) -> io::Result<()>,
) -> io::Result<()> {
    let written = created.and_then(|file| {
        let mut file = BufWriter::with_capacity(1 << 20, file);
        content(&mut file)?;
        sync(&file.into_inner().map_err(io::IntoInnerError::into_error)?)?;
        name(unfinished)
    });
    written.inspect_err(|_| {
        // Only the first error is reported.
        let _ = fs::remove_file(unfinished);
    })
}

/// The temporary name of a file during an atomic write.
fn unfinished(path: &Path, unique: &str) -> io::Result<PathBuf> {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().ok_or_else(|| {
        io::Error::new(ErrorKind::InvalidInput, format!("{} does not name a file", path.display()))
    })?);
    name.push(unique);
    name.push(".unfinished");
    Ok(path.with_file_name(name))
}

/// Removes the leftover of an atomic write by a killed process.
pub fn remove_unfinished(path: &Path) {
    // A remaining file is harmless: the next write replaces it.
    let _ = unfinished(path, "").and_then(fs::remove_file);
}

/// Syncs the parent directory of a path, which makes the names of created or renamed files durable.
///
/// # Errors
/// The error of the system.
pub fn sync_parent(path: &Path) -> io::Result<()> {
    File::open(parent_of(path))?.sync_all()
}

/// Creates a directory and its missing parents, and syncs the parent of each new one.
///
/// # Errors
/// The error of the system.
pub fn create_directories(path: &Path) -> io::Result<()> {
    let missing: Vec<_> =
        path.ancestors().take_while(|made| !made.as_os_str().is_empty() && !made.exists()).collect();
    fs::create_dir_all(path)?;
    missing.into_iter().rev().try_for_each(sync_parent)
}

fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_made_as_deep_as_they_are_named() {
        let root = tempfile::tempdir().unwrap();
        let deep = root.path().join("a/b/c");
        create_directories(&deep).unwrap();
        create_directories(&deep).unwrap();
        assert!(deep.is_dir());
        fs::write(deep.join("file"), "").unwrap();
        create_directories(&deep.join("file/d")).unwrap_err();
    }

    #[test]
    fn a_file_is_replaced_whole_or_stays_as_it_was() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("file");
        for write in [write_atomically, write_durably, write_shared]
            as [fn(&Path, fn(&mut dyn Write) -> io::Result<()>) -> _; 3]
        {
            write(&path, |file| file.write_all(b"one")).unwrap();
            let error =
                write(&path, |file| file.write_all(b"half").and(Err(io::Error::other("full")))).unwrap_err();
            assert_eq!((error.to_string(), fs::read(&path).unwrap()), ("full".into(), b"one".to_vec()));
            write(&path, |file| file.write_all(b"two")).unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"two");
            assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1, "no temporary file remains");
        }
        write_atomically(Path::new("/"), |_| Ok(())).unwrap_err();
        fs::create_dir(root.path().join("taken")).unwrap();
        write_atomically(&root.path().join("taken"), |_| Ok(())).unwrap_err();
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 2);
    }

    #[cfg(unix)]
    #[test]
    fn a_link_under_the_temporary_name_is_not_followed() {
        let root = tempfile::tempdir().unwrap();
        let (path, victim) = (root.path().join("file"), root.path().join("victim"));
        fs::write(&victim, "mine").unwrap();
        std::os::unix::fs::symlink(&victim, root.path().join(".file.unfinished")).unwrap();
        write_atomically(&path, |file| file.write_all(b"other")).unwrap_err();
        assert_eq!(fs::read(&victim).unwrap(), b"mine");
    }

    #[cfg(unix)]
    #[test]
    fn a_private_file_is_created_once_for_this_user_alone() {
        use std::os::unix::fs::MetadataExt;
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("key");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| create_private(&path, |file| file.write_all(b"one")).unwrap());
            }
        });
        create_private(&path, |file| file.write_all(b"two")).unwrap();
        create_private(&path, |_| Err(io::Error::other("full"))).unwrap_err();
        assert_eq!(
            (fs::read(&path).unwrap(), path.metadata().unwrap().mode() & 0o777),
            (b"one".to_vec(), 0o600)
        );
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1, "no temporary file remains");
    }

    #[test]
    fn a_name_without_a_directory_lies_in_the_working_directory() {
        assert_eq!(parent_of(Path::new("runs")), Path::new("."));
        assert_eq!(parent_of(Path::new("a/runs")), Path::new("a"));
        sync_parent(Path::new("runs")).unwrap();
    }
}
