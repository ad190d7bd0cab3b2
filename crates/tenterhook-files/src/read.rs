//! Opening and reading files without trusting their kind or length.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// Opens a regular file for reading. A FIFO, a device or a directory is an error, and opening one never blocks.
///
/// # Errors
/// The error of the system, or [`ErrorKind::InvalidInput`] if the path is not a regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        // Without it, opening a FIFO waits for a writer. It changes nothing for regular files.
        options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
    }
    let file = options.open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_file() {
        return Ok(file);
    }
    if kind.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    Err(io::Error::new(ErrorKind::InvalidInput, "not a regular file"))
}

/// Reads a regular file of at most `limit` bytes.
///
/// # Errors
/// The error of the system, [`ErrorKind::InvalidInput`] if the path is not a regular file, and
/// [`ErrorKind::FileTooLarge`] if it is longer than `limit`.
pub fn read_bounded(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let file = open_regular(path)?;
    let length = file.metadata()?.len();
    if length > limit {
        return Err(too_large(limit));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
    // The file may grow while it is read.
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(too_large(limit));
    }
    Ok(bytes)
}

/// Reads a regular file of at most `limit` bytes of UTF-8.
///
/// # Errors
/// Those of [`read_bounded`], and [`ErrorKind::InvalidData`] if it is not UTF-8.
pub fn read_bounded_text(path: &Path, limit: u64) -> io::Result<String> {
    let bytes = read_bounded(path, limit)?;
    String::from_utf8(bytes).map_err(|_| io::Error::new(ErrorKind::InvalidData, "not UTF-8 text"))
}

fn too_large(limit: u64) -> io::Error {
    io::Error::new(ErrorKind::FileTooLarge, format!("longer than the {limit} bytes that are read at most"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_up_to_its_limit() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(read_bounded(&path, 5).unwrap(), b"12345");
        assert_eq!(read_bounded(&path, 4).unwrap_err().kind(), ErrorKind::FileTooLarge);
        assert_eq!(read_bounded_text(&path, 9).unwrap(), "12345");
        assert_eq!(read_bounded(&directory.path().join("none"), 4).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(read_bounded(directory.path(), 4).unwrap_err().kind(), ErrorKind::IsADirectory);
    }

    #[cfg(unix)]
    #[test]
    fn endless_and_blocking_files_are_refused_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        for path in [fifo.as_path(), Path::new("/dev/zero")] {
            assert_eq!(
                read_bounded(path, 4).unwrap_err().kind(),
                ErrorKind::InvalidInput,
                "{}",
                path.display()
            );
        }
    }
}
