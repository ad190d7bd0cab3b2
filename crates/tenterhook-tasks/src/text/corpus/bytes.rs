//! Reading the bytes of a text.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use tenterhook::data::Fingerprint;
use tenterhook::task::Problem;
use tenterhook_files::{open_regular, read_bounded};

/// The default text.
const HANDBOOK: &[u8] = include_bytes!("../../../assets/handbook.md");
/// Texts below this size are kept in memory.
const MAX_IN_MEMORY: u64 = 8 << 20;
/// The number of files that are kept open; others are opened for every read.
const MAX_OPEN_FILES: usize = 64;

/// The bytes of a text: one file, or several files one after the other. Small texts are kept in memory;
/// larger ones are read in parts as needed.
#[derive(Debug)]
pub struct Corpus {
    name: PathBuf,
    pieces: Vec<Piece>,
    len: u64,
    fingerprint: OnceLock<Fingerprint>,
}

#[derive(Debug)]
struct Piece {
    path: PathBuf,
    /// The position of its first byte in the text.
    start: u64,
    len: u64,
    bytes: Bytes,
}

#[derive(Debug)]
enum Bytes {
    Memory(Cow<'static, [u8]>),
    Open(File),
    Closed,
}

impl Corpus {
    /// The built-in handbook.
    #[must_use]
    pub fn handbook() -> Corpus {
        let path = PathBuf::from("the built-in handbook");
        let len = HANDBOOK.len() as u64;
        let piece = Piece { path: path.clone(), start: 0, len, bytes: Bytes::Memory(HANDBOOK.into()) };
        Corpus { name: path, pieces: vec![piece], len, fingerprint: OnceLock::new() }
    }

    /// Opens a file, or all files below a directory, sorted by path and without hidden ones.
    pub fn open(path: &Path) -> Result<Corpus, Problem> {
        Corpus::open_with(path, MAX_IN_MEMORY)
    }

    pub(super) fn open_with(path: &Path, max_in_memory: u64) -> Result<Corpus, Problem> {
        let wrong = |problem| Problem::new("path", format!("{} {problem}", path.display()));
        let metadata = fs::metadata(path).map_err(failed(path))?;
        let mut files = Vec::new();
        if metadata.is_dir() {
            collect(path, &mut files)?;
            files.sort();
            if files.is_empty() {
                return Err(wrong("holds no file, not counting hidden ones; give a directory with text"));
            }
        } else if metadata.is_file() {
            files.push((path.to_owned(), metadata.len()));
        } else {
            return Err(wrong("is neither a file nor a directory; give one of them"));
        }
        let in_memory = files.iter().map(|(_, len)| len).sum::<u64>() < max_in_memory;
        let pieces = Vec::with_capacity(files.len());
        let mut corpus = Corpus { name: path.to_owned(), pieces, len: 0, fingerprint: OnceLock::new() };
        for (path, len) in files {
            corpus.append(path, len, in_memory)?;
        }
        Ok(corpus)
    }

    fn append(&mut self, path: PathBuf, mut len: u64, in_memory: bool) -> Result<(), Problem> {
        let bytes = if in_memory {
            let bytes = read_bounded(&path, MAX_IN_MEMORY).map_err(failed(&path))?;
            len = bytes.len() as u64;
            Bytes::Memory(bytes.into())
        } else {
            // Every file is opened once, so an unreadable file is refused before training.
            let file = open_regular(&path).map_err(failed(&path))?;
            if self.pieces.len() < MAX_OPEN_FILES { Bytes::Open(file) } else { Bytes::Closed }
        };
        self.pieces.push(Piece { path, start: self.len, len, bytes });
        self.len += len;
        Ok(())
    }

    /// The path that was opened.
    #[must_use]
    pub fn name(&self) -> &Path {
        &self.name
    }

    /// The length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the length is 0.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The fingerprint of all bytes. The first call reads the whole text.
    pub fn fingerprint(&self) -> Result<Fingerprint, Problem> {
        if let Some(known) = self.fingerprint.get() {
            return Ok(known.clone());
        }
        let of_piece = |piece: &Piece| match &piece.bytes {
            Bytes::Memory(bytes) => Ok(Fingerprint::of_bytes([bytes])),
            Bytes::Open(_) | Bytes::Closed => Fingerprint::of_file(&piece.path).map_err(failed(&piece.path)),
        };
        let pieces: Vec<_> = self.pieces.iter().map(of_piece).collect::<Result<_, _>>()?;
        Ok(self.fingerprint.get_or_init(|| Fingerprint::of_parts(pieces)).clone())
    }

    /// Reads the bytes from a position on. Can be called from any thread.
    pub fn read(&self, position: u64, bytes: &mut [u8]) -> Result<(), Problem> {
        let first = self.pieces.partition_point(|piece| piece.start + piece.len <= position);
        let mut position = position;
        let mut wanted = bytes;
        for piece in &self.pieces[first..] {
            if wanted.is_empty() {
                break;
            }
            let within = position - piece.start;
            let here =
                usize::try_from(piece.len - within).map_or(wanted.len(), |left| left.min(wanted.len()));
            let (now, later) = wanted.split_at_mut(here);
            piece.read(within, now).map_err(failed(&piece.path))?;
            position += here as u64;
            wanted = later;
        }
        if wanted.is_empty() {
            return Ok(());
        }
        Err(failed(&self.name)(io::Error::from(io::ErrorKind::UnexpectedEof)))
    }
}

impl Piece {
    fn read(&self, from: u64, into: &mut [u8]) -> io::Result<()> {
        match &self.bytes {
            Bytes::Memory(bytes) => {
                let found = usize::try_from(from).ok().and_then(|from| bytes.get(from..)?.get(..into.len()));
                into.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
                Ok(())
            }
            Bytes::Open(file) => read_exact_at(file, from, into),
            Bytes::Closed => read_exact_at(&open_regular(&self.path)?, from, into),
        }
    }
}

/// A file or directory that cannot be read.
fn failed(path: &Path) -> impl FnOnce(io::Error) -> Problem {
    move |error| {
        let path = path.display();
        let message =
            format!("cannot read {path}: {error}; give the path of a file or directory that can be read");
        Problem::new("path", message)
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, from: u64, into: &mut [u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, into, from)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut from: u64, mut into: &mut [u8]) -> io::Result<()> {
    while !into.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, into, from)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => {
                into = &mut into[read..];
                from += read as u64;
            }
        }
    }
    Ok(())
}

/// All regular files below a directory. Links to directories are not followed, because they may form cycles.
fn collect(directory: &Path, files: &mut Vec<(PathBuf, u64)>) -> Result<(), Problem> {
    for entry in fs::read_dir(directory).map_err(failed(directory))? {
        let entry = entry.map_err(failed(directory))?;
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let path = entry.path();
        if entry.file_type().map_err(failed(&path))?.is_dir() {
            collect(&path, files)?;
            continue;
        }
        // Follows links.
        let metadata = fs::metadata(&path).map_err(failed(&path))?;
        if metadata.is_file() {
            files.push((path, metadata.len()));
        }
    }
    Ok(())
}
