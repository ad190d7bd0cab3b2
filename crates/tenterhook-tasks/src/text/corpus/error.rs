//! Why a text cannot be used.

use std::io;
use std::path::PathBuf;

/// Why a text cannot be used. Says which option it is about.
#[derive(Debug, thiserror::Error)]
pub enum CorpusError {
    /// It cannot be read.
    #[error("cannot read {}: {error}; give the path of a file or directory that can be read", .path.display())]
    Read {
        /// Which file or directory.
        path: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// It is neither a file nor a directory.
    #[error("{} is neither a file nor a directory; give one of them", .path.display())]
    Kind {
        /// What was given.
        path: PathBuf,
    },
    /// A directory without a file.
    #[error("{} holds no file, not counting hidden ones; give a directory with text", .path.display())]
    NoFile {
        /// The directory.
        path: PathBuf,
    },
    /// Too little text for a single window of each part.
    #[error(
        "{} is {len} bytes long; with `context = {context}` at least {needed} are needed to train, validate and \
         test: give more text, or lower `context`",
        .path.display()
    )]
    TooShort {
        /// Where the text is.
        path: PathBuf,
        /// How long it is.
        len: u64,
        /// Bytes in a window.
        context: usize,
        /// How long it would have to be.
        needed: u64,
    },
    /// An option is wrong, whatever the text is.
    #[error("`{key}` {problem}")]
    Option {
        /// The option.
        key: &'static str,
        /// What is wrong, and what to do.
        problem: String,
    },
}

impl CorpusError {
    /// Which option it is about.
    #[must_use]
    pub fn key(&self) -> &'static str {
        match self {
            CorpusError::Option { key, .. } => key,
            _ => "path",
        }
    }
}
