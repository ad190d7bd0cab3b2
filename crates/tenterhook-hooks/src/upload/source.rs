//! The checkpoint on the disk: its manifest, and files that are what it says.
//!
//! A checkpoint's name leads to another one from one instant to the next, when it is replaced. So nothing is believed
//! that the manifest, which was read first, does not confirm: what is copied is one checkpoint, never two halves.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use tenterhook_files::{SMALL_FILE, open_regular, read_bounded};

/// The file that says what a checkpoint consists of.
pub(super) const MANIFEST: &str = "manifest.json";
/// Names of checkpoints may have slashes; so many are looked behind.
const DEPTH: usize = 8;
/// So much is read at once.
const BLOCK: usize = 1 << 20;

/// The manifest as it was read.
pub(super) struct Manifest {
    /// To the byte, as it is to be written at last.
    pub(super) text: Vec<u8>,
    /// The files by name.
    pub(super) files: BTreeMap<String, Sum>,
}

/// What a file must be.
#[derive(Deserialize)]
pub(super) struct Sum {
    pub(super) bytes: u64,
    blake3: String,
}

#[derive(Deserialize)]
struct Listed {
    files: BTreeMap<String, Sum>,
}

impl Manifest {
    /// The manifest of this checkpoint; nothing where there is none (any more).
    pub(super) fn of(checkpoint: &Path) -> io::Result<Option<Manifest>> {
        let text = match read_bounded(&checkpoint.join(MANIFEST), SMALL_FILE) {
            Err(error) if is_gone(&error) => return Ok(None),
            read => read?,
        };
        let Listed { files } = serde_json::from_slice(&text)?;
        if let Some(name) = files.keys().find(|name| Path::new(name).file_name() != Some(name.as_ref())) {
            return Err(io::Error::other(format!("its manifest lists `{name}`, which is no name of a file")));
        }
        Ok(Some(Manifest { text, files }))
    }
}

/// Why a file could not be read to its end.
#[derive(Debug)]
pub(super) enum Unread {
    /// It is not, or no longer, what the manifest says.
    Changed,
    Io(io::Error),
}

impl From<io::Error> for Unread {
    fn from(error: io::Error) -> Unread {
        if is_gone(&error) { Unread::Changed } else { Unread::Io(error) }
    }
}

/// A file that is read once, from its beginning to its end, and held against the manifest on the way.
pub(super) struct Checked<'a> {
    file: File,
    sum: &'a Sum,
    read: u64,
    hasher: blake3::Hasher,
}

impl Checked<'_> {
    pub(super) fn open<'a>(path: &Path, sum: &'a Sum) -> Result<Checked<'a>, Unread> {
        Ok(Checked { file: open_regular(path)?, sum, read: 0, hasher: blake3::Hasher::new() })
    }

    /// The next part. Nothing is left when all of it was right; what is wrong with it shows by then at the latest.
    pub(super) fn next(&mut self) -> Result<Option<Vec<u8>>, Unread> {
        let mut block = Vec::new();
        (&self.file).take(BLOCK as u64).read_to_end(&mut block)?;
        self.read += block.len() as u64;
        self.hasher.update(&block);
        if !block.is_empty() && self.read <= self.sum.bytes {
            return Ok(Some(block));
        }
        if self.read != self.sum.bytes || *self.hasher.finalize().to_hex() != *self.sum.blake3 {
            return Err(Unread::Changed);
        }
        Ok(None)
    }

    /// All of it.
    pub(super) fn whole(mut self) -> Result<Vec<u8>, Unread> {
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

/// The checkpoints below a directory, in order. Links and hidden names are none.
pub(super) fn below(root: &Path) -> io::Result<Vec<PathBuf>> {
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
            } else if depth < DEPTH {
                open.push((path, depth + 1));
            }
        }
    }
    found.sort();
    Ok(found)
}
