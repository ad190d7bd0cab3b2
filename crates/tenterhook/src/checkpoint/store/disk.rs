//! Everything that the store does to the disk. Tests put one in between that fails, or dies, wherever they like.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use tenterhook_files::create_own;

use super::large::LargeFile;

/// What gives a file its content.
pub(crate) type Fill<'a> = &'a mut dyn FnMut(&mut dyn Write) -> io::Result<()>;

/// The few operations that change something on the disk.
pub(crate) trait Disk: Send + Sync {
    /// Makes a directory and those that it lies in.
    fn make_directory(&self, path: &Path) -> io::Result<()>;
    /// Makes a file and fills it.
    fn write(&self, path: &Path, fill: Fill<'_>) -> io::Result<()>;
    /// Waits until the content of a file is on the disk.
    fn sync_file(&self, path: &Path) -> io::Result<()>;
    /// Waits until the names in a directory are on the disk.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;
    /// Gives something another name. A file or link of that name makes way.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Gives each of two the name of the other, at one instant; [`ErrorKind::Unsupported`] where that is impossible.
    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()>;
    /// Makes a symbolic link.
    fn link(&self, link: &Path, target: &Path) -> io::Result<()>;
    /// Removes a file, a link, or a directory with all that it holds. That there is none is no error.
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
        let mut made = LargeFile::new(create_own(path)?);
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
        // An old kernel; or a file system that cannot, as some network ones.
        Errno::NOSYS | Errno::INVAL | Errno::NOTSUP => ErrorKind::Unsupported.into(),
        error => error.into(),
    })
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
fn exchange(_: &Path, _: &Path) -> io::Result<()> {
    Err(ErrorKind::Unsupported.into())
}

/// Why something could not be done to a checkpoint.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} {}: {source}; {}", path.display(), fix(source))]
pub(super) struct DiskError {
    /// What was tried.
    pub(super) what: &'static str,
    /// Of what.
    pub(super) path: PathBuf,
    /// Why it failed.
    pub(super) source: io::Error,
}

impl DiskError {
    /// For `map_err`.
    pub(super) fn of(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DiskError {
        let path = path.to_owned();
        move |source| DiskError { what, path, source }
    }
}

/// The one thing to do about it.
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
