//! Safe file access: bounded reads of regular files, paths that stay below a root, atomic writes and resumable files.
//!
//! Checkpoints, run directories and data are not trusted (SECURITY.md). All code that reads them opens files
//! with [`open_regular`] or [`read_bounded`], so a FIFO cannot block the program and an endless file cannot
//! fill the memory. Paths in such files are [`RelPath`]s, which cannot leave the directory to which they are
//! joined.
//!
//! **Invariant.** Only [`std::io::ErrorKind::NotFound`] means that a file is absent. Every other error means that it
//! could not be read, and must be reported.

// Only the command line prints, since it escapes untrusted text.
#![warn(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

mod durable;
mod error;
mod fingerprint;
mod read;
mod rel_path;
mod resumable;
mod retry;

pub use durable::{
    create_directories, create_private, remove_unfinished, sync_parent, write_atomically, write_durably,
    write_shared,
};
pub use error::{FileError, cannot};
pub use fingerprint::Fingerprint;
pub use read::{
    create_no_follow, is_stream, next_line, open_no_follow, open_regular, open_regular_with, read_bounded,
    read_bounded_text, read_input, read_input_text,
};
pub use rel_path::{RelPath, RelPathError};
pub use resumable::{FilePosition, RecordFormat, ResumableFile, TextLines};
pub use retry::Backoff;

/// The maximum size of a configuration, a scenario, a manifest or `run.json`, in bytes.
pub const SMALL_FILE: u64 = 16 << 20;
