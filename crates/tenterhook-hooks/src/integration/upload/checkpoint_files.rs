//! Reads a checkpoint from the disk and verifies its files against its manifest.
//!
//! A checkpoint may be replaced at any time by another one of the same name. The manifest is read first, and every file must
//! match it, so a copy never mixes two checkpoints.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use tenterhook_files::{SMALL_FILE, open_regular, read_bounded};

/// The file that lists the files of a checkpoint.
pub(super) const MANIFEST: &str = "manifest.json";
/// The maximum number of slashes in the name of a checkpoint.
const MAX_DEPTH: usize = 8;
/// The size of a read.
const BLOCK: usize = 1 << 20;

/// A manifest.
pub(super) struct Manifest {
    /// The exact bytes, which are uploaded last.
    pub(super) text: Vec<u8>,
    /// The files by name.
    pub(super) files: BTreeMap<String, FileSum>,
}

/// Size and hash of a file.
#[derive(Deserialize)]
pub(super) struct FileSum {
    pub(super) bytes: u64,
    blake3: String,
}

#[derive(Deserialize)]
struct ManifestFiles {
    files: BTreeMap<String, FileSum>,
}

impl Manifest {
    /// Reads the manifest of a checkpoint; `None` if it does not exist.
    pub(super) fn of(checkpoint: &Path) -> io::Result<Option<Manifest>> {
        let text = match read_bounded(&checkpoint.join(MANIFEST), SMALL_FILE) {
            Err(error) if is_gone(&error) => return Ok(None),
            read => read?,
        };
        let ManifestFiles { files } = serde_json::from_slice(&text)?;
        if let Some(name) = files.keys().find(|name| Path::new(name).file_name() != Some(name.as_ref())) {
            return Err(io::Error::other(format!("its manifest lists `{name}`, which is not a file name")));
        }
        Ok(Some(Manifest { text, files }))
    }
}

/// The reason why a file could not be read.
#[derive(Debug)]
pub(super) enum ReadError {
    /// The file does not, or no longer, match the manifest.
    Changed,
    Io(io::Error),
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> ReadError {
        if is_gone(&error) { ReadError::Changed } else { ReadError::Io(error) }
    }
}

/// A file that is verified against the manifest while it is read.
pub(super) struct VerifiedFile<'a> {
    file: File,
    sum: &'a FileSum,
    read: u64,
    hasher: blake3::Hasher,
}

impl VerifiedFile<'_> {
    pub(super) fn open<'a>(path: &Path, sum: &'a FileSum) -> Result<VerifiedFile<'a>, ReadError> {
        Ok(VerifiedFile { file: open_regular(path)?, sum, read: 0, hasher: blake3::Hasher::new() })
    }

    /// The next block; `None` at the end of a file that matches the manifest. A mismatch is an error by the end of the file.
    pub(super) fn next(&mut self) -> Result<Option<Vec<u8>>, ReadError> {
        let mut block = Vec::new();
        (&self.file).take(BLOCK as u64).read_to_end(&mut block)?;
        self.read += block.len() as u64;
        self.hasher.update(&block);
        if !block.is_empty() && self.read <= self.sum.bytes {
            return Ok(Some(block));
        }
        if self.read != self.sum.bytes || *self.hasher.finalize().to_hex() != *self.sum.blake3 {
            return Err(ReadError::Changed);
        }
        Ok(None)
    }

    /// The whole content.
    pub(super) fn whole(mut self) -> Result<Vec<u8>, ReadError> {
        let mut bytes = Vec::new();
        while let Some(block) = self.next()? {
            bytes.extend(block);
        }
        Ok(bytes)
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// The checkpoints below a directory, sorted. Links and hidden directories are skipped.
pub(super) fn list(root: &Path) -> io::Result<Vec<PathBuf>> {
    let (mut found, mut open) = (Vec::new(), vec![(root.to_owned(), 0)]);
    while let Some((directory, depth)) = open.pop() {
        let entries = match fs::read_dir(&directory) {
            Err(error) if is_gone(&error) => continue,
            entries => entries?.collect::<io::Result<Vec<_>>>()?,
        };
        for entry in entries {
            if !entry.file_type()?.is_dir() || entry.file_name().as_encoded_bytes().starts_with(b".") {
                continue;
            }
            let path = entry.path();
            if path.join(MANIFEST).try_exists()? {
                found.push(path);
            } else if depth < MAX_DEPTH {
                open.push((path, depth + 1));
            }
        }
    }
    found.sort();
    Ok(found)
}
