//! Verifying a checkpoint against its manifest before anything in it is used.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use tenterhook_core::BoxError;
use tenterhook_files::{SMALL_FILE, open_regular, read_bounded};

use super::manifest::{FileDigest, Manifest, ParsedManifest};
use super::{FORMAT, MANIFEST, STATE, STATE_LIMIT};
use crate::tensors::TensorMap;

/// Why a checkpoint cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// A file does not hold what was written.
    #[error("checkpoint {} is damaged: {problem}; use another one", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// The problem.
        problem: String,
    },
    /// Another version of this program wrote it.
    #[error("checkpoint {} has format {format}, and this program reads format {FORMAT}; use {} version", path.display(),
        if *format > FORMAT { "a newer" } else { "the older" })]
    OtherFormat {
        /// The checkpoint.
        path: PathBuf,
        /// Its format.
        format: u32,
    },
    /// There is nothing at this path.
    #[error("there is no checkpoint {}", path.display())]
    Missing {
        /// The path.
        path: PathBuf,
    },
    /// The path is not a checkpoint.
    #[error("{} is not a checkpoint: it is not a directory with a {STATE}", path.display())]
    NotACheckpoint {
        /// The path.
        path: PathBuf,
    },
    /// The system cannot read it.
    #[error("cannot read checkpoint {}: {source}; check that disk, and whether this program may read it", file.display())]
    Io {
        /// The file or directory.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl CheckpointError {
    pub(in crate::checkpoint) fn damaged(file: &Path, problem: impl Into<String>) -> CheckpointError {
        CheckpointError::Damaged { file: file.to_owned(), problem: problem.into() }
    }

    /// The error of a required file that cannot be read.
    fn of_file(file: &Path, source: io::Error) -> CheckpointError {
        match source.kind() {
            ErrorKind::NotFound => CheckpointError::damaged(file, "it is missing"),
            _ => CheckpointError::Io { file: file.to_owned(), source },
        }
    }
}

/// Verifies that a checkpoint is whole: every file exists and has the length and the hash of the manifest.
pub fn verify(path: &Path) -> Result<(), CheckpointError> {
    open(path).map(drop)
}

/// All problems of a checkpoint's files; empty if they are whole.
pub(crate) fn problems(path: &Path) -> Vec<CheckpointError> {
    // `verify` retries if the checkpoint is replaced during the check.
    if verify(path).is_ok() {
        return Vec::new();
    }
    match VerifiedCheckpoint::at(path) {
        Err(error) => vec![error],
        Ok(found) => found.files.keys().filter_map(|name| found.check_file(name).err()).collect(),
    }
}

/// Opens a checkpoint and verifies all of its files.
pub(crate) fn open(path: &Path) -> Result<VerifiedCheckpoint, CheckpointError> {
    retry_if_replaced(path, || VerifiedCheckpoint::at(path).and_then(|found| found.check().map(|()| found)))
}

/// Reads a checkpoint again if another process replaced it meanwhile, because the files may belong to both.
pub(super) fn retry_if_replaced<T>(
    path: &Path,
    read: impl Fn() -> Result<T, CheckpointError>,
) -> Result<T, CheckpointError> {
    let identity = || {
        let found = path.metadata().ok()?;
        // The inode of a removed directory may be reused.
        Some((found.dev(), found.ino(), found.mtime(), found.mtime_nsec()))
    };
    let mut seen = identity();
    loop {
        let found = read();
        let now = identity();
        if found.is_ok() || now == seen {
            return found;
        }
        seen = now;
    }
}

/// A checkpoint that [`open`] has verified.
#[derive(Debug)]
pub(crate) struct VerifiedCheckpoint {
    path: PathBuf,
    /// The digest of each file, by name.
    files: BTreeMap<String, FileDigest>,
}

/// The field of `state.json` that every format has.
#[derive(Deserialize)]
struct FormatField {
    format: u32,
}

impl VerifiedCheckpoint {
    /// Reads the manifest, without verifying the files.
    pub(super) fn at(path: &Path) -> Result<VerifiedCheckpoint, CheckpointError> {
        let missing = || CheckpointError::Missing { path: path.to_owned() };
        match path.metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(missing()),
            Err(source) => return Err(CheckpointError::Io { file: path.to_owned(), source }),
            Ok(found) if !found.is_dir() => {
                return Err(CheckpointError::NotACheckpoint { path: path.to_owned() });
            }
            Ok(_) => {}
        }
        let file = path.join(MANIFEST);
        let bytes = match read_bounded(&file, SMALL_FILE) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return VerifiedCheckpoint::without_manifest(path);
            }
            Err(source) => return Err(CheckpointError::of_file(&file, source)),
            Ok(bytes) => bytes,
        };
        let manifest = match Manifest::parse(&bytes, FORMAT) {
            Err(problem) => return Err(CheckpointError::damaged(&file, problem)),
            Ok(ParsedManifest::OtherFormat(format)) => {
                return Err(CheckpointError::OtherFormat { path: path.to_owned(), format });
            }
            Ok(ParsedManifest::Known(manifest)) => manifest,
        };
        let strange = manifest.files.keys().find(|name| Path::new(name).file_name() != Some(name.as_ref()));
        if let Some(name) = strange {
            return Err(CheckpointError::damaged(
                &file,
                format!("it lists `{name}`, which is not a file name"),
            ));
        }
        if !manifest.files.contains_key(STATE) {
            return Err(CheckpointError::damaged(&file, format!("it does not list {STATE}")));
        }
        Ok(VerifiedCheckpoint { path: path.to_owned(), files: manifest.files })
    }

    /// The error for a directory without a manifest.
    fn without_manifest(path: &Path) -> Result<VerifiedCheckpoint, CheckpointError> {
        let file = path.join(STATE);
        let bytes = match read_bounded(&file, STATE_LIMIT) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(CheckpointError::NotACheckpoint { path: path.to_owned() });
            }
            read => read.map_err(|source| CheckpointError::of_file(&file, source))?,
        };
        let described: FormatField = serde_json::from_slice(&bytes)
            .map_err(|error| CheckpointError::damaged(&file, error.to_string()))?;
        Err(match described.format {
            FORMAT => CheckpointError::damaged(&path.join(MANIFEST), "it is missing"),
            format => CheckpointError::OtherFormat { path: path.to_owned(), format },
        })
    }

    /// Verifies all files.
    fn check(&self) -> Result<(), CheckpointError> {
        self.files.keys().try_for_each(|name| self.check_file(name))
    }

    /// Verifies one file.
    fn check_file(&self, name: &str) -> Result<(), CheckpointError> {
        let (file, sum) = self.listed(name)?;
        let mut hasher = blake3::Hasher::new();
        let bytes = open_regular(&file).and_then(|open| {
            let bytes = open.metadata()?.len();
            // With another length, the hash need not be computed.
            if bytes == sum.bytes {
                hasher.update_reader(open.take(bytes))?;
            }
            Ok(bytes)
        });
        let bytes = bytes.map_err(|source| CheckpointError::of_file(&file, source))?;
        check_digest(&file, sum, bytes, &hasher)
    }

    fn listed(&self, name: &str) -> Result<(PathBuf, &FileDigest), CheckpointError> {
        let file = self.path.join(name);
        match self.files.get(name) {
            Some(sum) => Ok((file, sum)),
            None => Err(CheckpointError::damaged(&file, "it is missing")),
        }
    }

    /// Whether the manifest lists this file.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.files.contains_key(name)
    }

    /// The content of a file, verified again, as another process may have replaced it.
    pub(crate) fn bytes(&self, name: &str) -> Result<Vec<u8>, CheckpointError> {
        let (file, sum) = self.listed(name)?;
        let limit = if name == STATE { STATE_LIMIT } else { u64::MAX };
        let unreadable = |source| CheckpointError::of_file(&file, source);
        // A file with another length may be huge and is not read.
        let found = open_regular(&file).and_then(|open| open.metadata()).map_err(unreadable)?;
        check_length(&file, sum, found.len())?;
        let bytes = read_bounded(&file, limit).map_err(unreadable)?;
        let mut hasher = blake3::Hasher::new();
        hasher.update(&bytes);
        check_digest(&file, sum, bytes.len() as u64, &hasher)?;
        Ok(bytes)
    }

    /// The tensors of a file.
    pub(crate) fn tensors(&self, name: &str) -> Result<TensorMap, BoxError> {
        Ok(TensorMap::from_file(&self.path.join(name), &self.bytes(name)?)?)
    }
}

fn check_digest(
    file: &Path,
    sum: &FileDigest,
    bytes: u64,
    hasher: &blake3::Hasher,
) -> Result<(), CheckpointError> {
    check_length(file, sum, bytes)?;
    if *hasher.finalize().to_hex() != *sum.blake3 {
        return Err(CheckpointError::damaged(file, "its hash is not the one in the manifest"));
    }
    Ok(())
}

fn check_length(file: &Path, sum: &FileDigest, bytes: u64) -> Result<(), CheckpointError> {
    if bytes == sum.bytes {
        return Ok(());
    }
    Err(CheckpointError::damaged(file, format!("it has {bytes} bytes instead of {}", sum.bytes)))
}
