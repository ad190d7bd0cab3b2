//! Why images cannot be loaded.

use std::path::{Path, PathBuf};

/// Why images cannot be loaded. Says which option it is about.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// A file cannot be read.
    #[error("cannot read {}: {error}; {fix}", .path.display())]
    Read {
        /// The option that names the file.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        error: std::io::Error,
        /// What to do.
        fix: &'static str,
    },
    /// A line of a CSV file is wrong.
    #[error("{}, line {line}: {problem}", .path.display())]
    Line {
        /// The option to look at.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// Its line, counted from 1.
        line: usize,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// A file as a whole is wrong.
    #[error("{}: {problem}", .path.display())]
    File {
        /// The option to look at.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// An option is wrong, whatever the files hold.
    #[error("`{key}` {problem}")]
    Option {
        /// The option.
        key: &'static str,
        /// What is wrong, and what to do.
        problem: String,
    },
}

impl DataError {
    /// Which option it is about.
    #[must_use]
    pub fn key(&self) -> &'static str {
        match self {
            DataError::Read { key, .. }
            | DataError::Line { key, .. }
            | DataError::File { key, .. }
            | DataError::Option { key, .. } => key,
        }
    }

    pub(super) fn read(key: &'static str, path: &Path, error: std::io::Error) -> DataError {
        let fix = match error.kind() {
            std::io::ErrorKind::NotFound => "check the path",
            std::io::ErrorKind::PermissionDenied => "check its permissions",
            _ => "the file may be damaged or incomplete",
        };
        DataError::Read { key, path: path.to_owned(), error, fix }
    }

    pub(super) fn file(key: &'static str, path: &Path, problem: impl Into<String>) -> DataError {
        DataError::File { key, path: path.to_owned(), problem: problem.into() }
    }

    pub(super) fn option(key: &'static str, problem: impl Into<String>) -> DataError {
        DataError::Option { key, problem: problem.into() }
    }
}
