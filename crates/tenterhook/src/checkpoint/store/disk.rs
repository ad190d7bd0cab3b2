//! The disk operations of the store. Tests replace them with ones that fail or stop at any point.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use tenterhook_files::create_no_follow;

use super::direct_io::DirectWriter;

/// Writes the content of a file.
pub(crate) type Fill<'a> = &'a mut dyn FnMut(&mut dyn Write) -> io::Result<()>;

/// The operations that change the disk.
pub(crate) trait Disk: Send + Sync {
    /// Creates a directory and its parents.
    fn make_directory(&self, path: &Path) -> io::Result<()>;
    /// Creates a file with this content.
    fn write(&self, path: &Path, fill: Fill<'_>) -> io::Result<()>;
    /// Syncs the content of a file.
    fn sync_file(&self, path: &Path) -> io::Result<()>;
    /// Syncs the names in a directory.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;
    /// Renames; replaces a file or link of the new name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Exchanges two names atomically; [`ErrorKind::Unsupported`] if the system cannot.
    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()>;
    /// Creates a symbolic link.
    fn link(&self, link: &Path, target: &Path) -> io::Result<()>;
    /// Removes a file, a link, or a directory with its content. Does nothing if there is none.
    fn remove(&self, path: &Path) -> io::Result<()>;
}

/// The disk of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RealDisk;

impl Disk for RealDisk {
    fn make_directory(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn write(&self, path: &Path, fill: Fill<'_>) -> io::Result<()> {
        let mut made = DirectWriter::new(create_no_follow(path)?);
        fill(&mut made)?;
        made.finish()
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        exchange(one, other)
    }

    fn link(&self, link: &Path, target: &Path) -> io::Result<()> {
        std::os::unix::fs::symlink(target, link)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let removed = match path.symlink_metadata() {
            Ok(found) if found.is_dir() => fs::remove_dir_all(path),
            Ok(_) => fs::remove_file(path),
            Err(error) => Err(error),
        };
        match removed {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

#[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use rustix::io::Errno;

    renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).map_err(|error| match error {
        // An old kernel, or a file system without support, such as some network file systems.
        Errno::NOSYS | Errno::INVAL | Errno::NOTSUP => ErrorKind::Unsupported.into(),
        error => error.into(),
    })
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
fn exchange(_: &Path, _: &Path) -> io::Result<()> {
    Err(ErrorKind::Unsupported.into())
}

/// A failed operation on a checkpoint.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} {}: {source}; {}", path.display(), fix(source))]
pub(super) struct DiskError {
    /// The operation.
    pub(super) what: &'static str,
    /// The checkpoint.
    pub(super) path: PathBuf,
    /// The cause.
    pub(super) source: io::Error,
}

impl DiskError {
    /// For `map_err`.
    pub(super) fn of(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DiskError {
        let path = path.to_owned();
        move |source| DiskError { what, path, source }
    }
}

/// What the user can do about it.
fn fix(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "make room there, or choose another directory",
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            "let this program write there, or choose another directory"
        }
        ErrorKind::InvalidInput => "move it away, or choose another directory",
        _ => "check that disk, or choose another directory",
    }
}
