//! What could not be done with which file.

use std::io;
use std::path::{Path, PathBuf};

/// Something that could not be done with a file or a directory.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} {}: {source}", path.display())]
pub struct FileError {
    /// What was to be done, such as `read`.
    pub doing: &'static str,
    /// The file or directory.
    pub path: PathBuf,
    /// Why it failed.
    pub source: io::Error,
}

/// Makes an error of the system one that names the file: `.map_err(cannot("read", path))`.
pub fn cannot(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FileError {
    move |source| FileError { doing, path: path.to_owned(), source }
}
