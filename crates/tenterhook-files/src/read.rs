//! Opening and reading files of untrusted type and length.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, ErrorKind, Read};
use std::path::Path;

use crate::SMALL_FILE;

/// Opens a regular file for reading. A FIFO, a device or a directory is an error, and opening one never blocks.
///
/// # Errors
/// The error of the system, or [`ErrorKind::InvalidInput`] if the path is not a regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    open_regular_with(OpenOptions::new().read(true), path)
}

/// [`open_regular`] with other options, such as for appending.
///
/// # Errors
/// Those of [`open_regular`].
pub fn open_regular_with(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        // Without this flag, opening a FIFO waits for a writer. The flag has no effect on regular files.
        options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
    }
    let file = options.open(path).map_err(clearer_error)?;
    let kind = file.metadata()?.file_type();
    if kind.is_file() {
        return Ok(file);
    }
    if kind.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    Err(not_regular())
}

fn not_regular() -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, "not a regular file")
}

/// Replaces the system's "no such device or address" for a FIFO without a reader.
fn clearer_error(error: io::Error) -> io::Error {
    #[cfg(unix)]
    if error.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error()) {
        return not_regular();
    }
    error
}

/// Opens a regular file with these options, such as for writing, without following a symbolic link.
///
/// # Errors
/// The error of the system, or [`ErrorKind::InvalidInput`] if the name is a symbolic link or no regular file.
pub fn open_no_follow(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    #[cfg(unix)]
    {
        use rustix::fs::OFlags;
        use std::os::unix::fs::OpenOptionsExt;
        options.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed());
    }
    let file = options.open(path).map_err(|error| {
        if path.is_symlink() {
            return link_error(path);
        }
        clearer_error(error)
    })?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(not_regular()) }
}

/// Creates or truncates a regular file without following a symbolic link.
///
/// # Errors
/// Those of [`open_no_follow`].
pub fn create_no_follow(path: &Path) -> io::Result<File> {
    open_no_follow(path, OpenOptions::new().write(true).create(true).truncate(true))
}

/// Reads the next line with its line break into `line`. Returns its length; 0 at the end of the file.
///
/// # Errors
/// [`ErrorKind::FileTooLarge`] if the line is longer than [`SMALL_FILE`].
pub fn next_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<usize> {
    line.clear();
    let length = reader.by_ref().take(SMALL_FILE).read_until(b'\n', line)?;
    if length as u64 == SMALL_FILE && !line.ends_with(b"\n") {
        Err(too_large(SMALL_FILE))
    } else {
        Ok(length)
    }
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
    let mut bytes = Vec::new();
    // A sparse file may be longer than the memory.
    let enough = usize::try_from(length).is_ok_and(|length| bytes.try_reserve_exact(length).is_ok());
    if !enough {
        return Err(ErrorKind::OutOfMemory.into());
    }
    // The file may grow while it is read.
    take_bounded(file, limit, &mut bytes)?;
    Ok(bytes)
}

fn take_bounded(file: impl Read, limit: u64, bytes: &mut Vec<u8>) -> io::Result<()> {
    file.take(limit.saturating_add(1)).read_to_end(bytes)?;
    if bytes.len() as u64 > limit { Err(too_large(limit)) } else { Ok(()) }
}

/// Whether a path always means a stream: `-`, `/dev/stdin`, `/dev/fd/N`.
#[must_use]
pub fn is_stream(path: &Path) -> bool {
    ["-", "/dev/stdin"].iter().any(|name| path == Path::new(name))
        || ["/dev/fd", "/proc/self/fd"].iter().any(|streams| path.parent() == Some(Path::new(streams)))
}

/// Reads an input that the user named on the command line: a regular file or a [stream](is_stream) of at most `limit`
/// bytes.
///
/// # Errors
/// Those of [`read_bounded`].
pub fn read_input(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    if !is_stream(path) {
        return read_bounded(path, limit);
    }
    let mut bytes = Vec::new();
    if path == Path::new("-") {
        take_bounded(io::stdin().lock(), limit, &mut bytes)?;
    } else {
        take_bounded(File::open(path)?, limit, &mut bytes)?;
    }
    Ok(bytes)
}

/// Reads an input of UTF-8 text; see [`read_input`].
///
/// # Errors
/// Those of [`read_bounded_text`].
pub fn read_input_text(path: &Path, limit: u64) -> io::Result<String> {
    utf8(read_input(path, limit)?)
}

/// Reads a regular file of at most `limit` bytes of UTF-8 text.
///
/// # Errors
/// Those of [`read_bounded`], and [`ErrorKind::InvalidData`] if it is not UTF-8.
pub fn read_bounded_text(path: &Path, limit: u64) -> io::Result<String> {
    utf8(read_bounded(path, limit)?)
}

fn utf8(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|_| io::Error::new(ErrorKind::InvalidData, "not UTF-8 text"))
}

/// The error for a symbolic link in a path for writing.
pub(crate) fn link_error(link: &Path) -> io::Error {
    let text = format!("{} is a symbolic link, which is not followed for writing", link.display());
    io::Error::new(ErrorKind::InvalidInput, text)
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
    fn a_link_is_not_followed_for_writing() {
        let directory = tempfile::tempdir().unwrap();
        let (target, link) = (directory.path().join("target"), directory.path().join("link"));
        std::fs::write(&target, "mine").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert_eq!(create_no_follow(&link).unwrap_err().kind(), ErrorKind::InvalidInput);
        let appended = open_no_follow(&link, OpenOptions::new().append(true).create(true));
        assert_eq!(appended.unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(std::fs::read(&target).unwrap(), b"mine");
        assert_eq!(create_no_follow(Path::new("/dev/null")).unwrap_err().kind(), ErrorKind::InvalidInput);
        drop(create_no_follow(&target).unwrap());
        assert_eq!(std::fs::read(&target).unwrap(), b"");
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
