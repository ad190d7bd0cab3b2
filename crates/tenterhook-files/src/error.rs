//! A system error with the file that it concerns.

use std::io;
use std::path::{Path, PathBuf};

/// A failed operation on a file or a directory.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} {}: {source}", path.display())]
pub struct FileError {
    /// The operation, such as `read`.
    pub doing: &'static str,
    /// The file or directory.
    pub path: PathBuf,
    /// The cause.
    pub source: io::Error,
}

/// Adds the operation and the file to a system error: `.map_err(cannot("read", path))`.
pub fn cannot(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FileError {
    move |source| FileError { doing, path: path.to_owned(), source }
}
