//! Checking a checkpoint to the byte before anything in it is used.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use tenterhook_core::BoxError;
use tenterhook_files::{SMALL_FILE, open_regular, read_bounded};

use super::manifest::{Manifest, Read, Sum};
use super::{FORMAT, MANIFEST, STATE, STATE_LIMIT};
use crate::tensors::TensorMap;

/// Why a checkpoint cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// One of its files is not what was written.
    #[error("checkpoint {} is damaged: {problem}; use another one", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A newer or an older version of this program wrote it.
    #[error("checkpoint {} has format {format}, and this program reads format {FORMAT}; use {} version", path.display(),
        if *format > FORMAT { "a newer" } else { "the older" })]
    OtherFormat {
        /// The checkpoint.
        path: PathBuf,
        /// Its format.
        format: u32,
    },
    /// Nothing has this name.
    #[error("there is no checkpoint {}", path.display())]
    Missing {
        /// The name.
        path: PathBuf,
    },
    /// What has this name is something else.
    #[error("{} is not a checkpoint: it is no directory with a {STATE}", path.display())]
    NotACheckpoint {
        /// The name.
        path: PathBuf,
    },
    /// It cannot be read.
    #[error("cannot read checkpoint {}: {source}; check that disk, and whether this program may read it", file.display())]
    Io {
        /// The file or directory.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl Unreadable {
    pub(in crate::checkpoint) fn damaged(file: &Path, problem: impl Into<String>) -> Unreadable {
        Unreadable::Damaged { file: file.to_owned(), problem: problem.into() }
    }

    /// A file that must be there cannot be read.
    fn of_file(file: &Path, source: io::Error) -> Unreadable {
        match source.kind() {
            ErrorKind::NotFound => Unreadable::damaged(file, "it is missing"),
            _ => Unreadable::Io { file: file.to_owned(), source },
        }
    }
}

/// Checks that a checkpoint is whole: that every file is there, and is to the byte what was written.
pub fn verify(path: &Path) -> Result<(), Unreadable> {
    open(path).map(drop)
}

/// Everything that is wrong with the files of a checkpoint; nothing when they are whole.
pub(crate) fn problems(path: &Path) -> Vec<Unreadable> {
    // One that was replaced meanwhile is looked at again.
    if verify(path).is_ok() {
        return Vec::new();
    }
    match Verified::at(path) {
        Err(error) => vec![error],
        Ok(found) => found.files.keys().filter_map(|name| found.check_file(name).err()).collect(),
    }
}

/// Opens a checkpoint that is whole.
pub(crate) fn open(path: &Path) -> Result<Verified, Unreadable> {
    steady(path, || Verified::at(path).and_then(|found| found.check().map(|()| found)))
}

/// Looks at a checkpoint again when another process has replaced it meanwhile: half of what was seen may have been
/// of the one, half of the other.
pub(super) fn steady<T>(path: &Path, look: impl Fn() -> Result<T, Unreadable>) -> Result<T, Unreadable> {
    let identity = || {
        let found = path.metadata().ok()?;
        // The number of one that is gone may be given to the next.
        Some((found.dev(), found.ino(), found.mtime(), found.mtime_nsec()))
    };
    let mut seen = identity();
    loop {
        let found = look();
        let now = identity();
        if found.is_ok() || now == seen {
            return found;
        }
        seen = now;
    }
}

/// A checkpoint whose files are known to be whole.
#[derive(Debug)]
pub(crate) struct Verified {
    path: PathBuf,
    /// What every file must be, by name.
    files: BTreeMap<String, Sum>,
}

/// What `state.json` of any format says.
#[derive(Deserialize)]
struct Described {
    format: u32,
}

impl Verified {
    /// A checkpoint by what its manifest says; nothing has been checked against it yet.
    pub(super) fn at(path: &Path) -> Result<Verified, Unreadable> {
        let missing = || Unreadable::Missing { path: path.to_owned() };
        match path.metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(missing()),
            Err(source) => return Err(Unreadable::Io { file: path.to_owned(), source }),
            Ok(found) if !found.is_dir() => {
                return Err(Unreadable::NotACheckpoint { path: path.to_owned() });
            }
            Ok(_) => {}
        }
        let file = path.join(MANIFEST);
        let bytes = match read_bounded(&file, SMALL_FILE) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Verified::without_manifest(path),
            Err(source) => return Err(Unreadable::of_file(&file, source)),
            Ok(bytes) => bytes,
        };
        let manifest = match Manifest::read(&bytes, FORMAT) {
            Err(problem) => return Err(Unreadable::damaged(&file, problem)),
            Ok(Read::OtherFormat(format)) => {
                return Err(Unreadable::OtherFormat { path: path.to_owned(), format });
            }
            Ok(Read::Known(manifest)) => manifest,
        };
        let strange = manifest.files.keys().find(|name| Path::new(name).file_name() != Some(name.as_ref()));
        if let Some(name) = strange {
            return Err(Unreadable::damaged(&file, format!("it lists `{name}`, which is no name of a file")));
        }
        if !manifest.files.contains_key(STATE) {
            return Err(Unreadable::damaged(&file, format!("it does not list {STATE}")));
        }
        Ok(Verified { path: path.to_owned(), files: manifest.files })
    }

    /// Why a directory without a manifest is no checkpoint of this format.
    fn without_manifest(path: &Path) -> Result<Verified, Unreadable> {
        let file = path.join(STATE);
        let bytes = match read_bounded(&file, STATE_LIMIT) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(Unreadable::NotACheckpoint { path: path.to_owned() });
            }
            read => read.map_err(|source| Unreadable::of_file(&file, source))?,
        };
        let described: Described =
            serde_json::from_slice(&bytes).map_err(|error| Unreadable::damaged(&file, error.to_string()))?;
        Err(match described.format {
            FORMAT => Unreadable::damaged(&path.join(MANIFEST), "it is missing"),
            format => Unreadable::OtherFormat { path: path.to_owned(), format },
        })
    }

    /// Checks every file.
    fn check(&self) -> Result<(), Unreadable> {
        self.files.keys().try_for_each(|name| self.check_file(name))
    }

    /// Checks one of the files.
    fn check_file(&self, name: &str) -> Result<(), Unreadable> {
        let (file, sum) = self.listed(name)?;
        let mut hasher = blake3::Hasher::new();
        let bytes = open_regular(&file).and_then(|open| {
            let bytes = open.metadata()?.len();
            // A wrong length says it all.
            if bytes == sum.bytes {
                hasher.update_reader(open.take(bytes))?;
            }
            Ok(bytes)
        });
        let bytes = bytes.map_err(|source| Unreadable::of_file(&file, source))?;
        agrees(&file, sum, bytes, &hasher)
    }

    fn listed(&self, name: &str) -> Result<(PathBuf, &Sum), Unreadable> {
        let file = self.path.join(name);
        match self.files.get(name) {
            Some(sum) => Ok((file, sum)),
            None => Err(Unreadable::damaged(&file, "it is missing")),
        }
    }

    /// Whether there is such a file.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.files.contains_key(name)
    }

    /// The content of a file. It is checked again: another process may have replaced it.
    pub(crate) fn bytes(&self, name: &str) -> Result<Vec<u8>, Unreadable> {
        let (file, sum) = self.listed(name)?;
        let limit = if name == STATE { STATE_LIMIT } else { u64::MAX };
        let unreadable = |source| Unreadable::of_file(&file, source);
        // A file of another length is not read at all: it may be huge.
        let there = open_regular(&file).and_then(|open| open.metadata()).map_err(unreadable)?;
        has_length(&file, sum, there.len())?;
        let bytes = read_bounded(&file, limit).map_err(unreadable)?;
        let mut hasher = blake3::Hasher::new();
        hasher.update(&bytes);
        agrees(&file, sum, bytes.len() as u64, &hasher)?;
        Ok(bytes)
    }

    /// The tensors of a file.
    pub(crate) fn tensors(&self, name: &str) -> Result<TensorMap, BoxError> {
        Ok(TensorMap::from_file(&self.path.join(name), &self.bytes(name)?)?)
    }
}

fn agrees(file: &Path, sum: &Sum, bytes: u64, hasher: &blake3::Hasher) -> Result<(), Unreadable> {
    has_length(file, sum, bytes)?;
    if *hasher.finalize().to_hex() != *sum.blake3 {
        return Err(Unreadable::damaged(file, "its hash is not the one in the manifest"));
    }
    Ok(())
}

fn has_length(file: &Path, sum: &Sum, bytes: u64) -> Result<(), Unreadable> {
    if bytes == sum.bytes {
        return Ok(());
    }
    Err(Unreadable::damaged(file, format!("it has {bytes} bytes instead of {}", sum.bytes)))
}
