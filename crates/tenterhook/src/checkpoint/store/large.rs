//! Writing large files past the system's cache of files.
//!
//! Nobody reads a checkpoint soon, and copying it into that cache takes processor time and memory from the training that
//! goes on meanwhile, and from the data that it reads. So whole blocks go to the disk from here, where the system and its
//! file system let them; small files and the ends of large ones go the usual way.

use std::fs::File;
use std::io::{self, ErrorKind, Write};

/// What is written at once. Disks want the beginning of such a block in memory, and its length, to be multiples of
/// [`ALIGNED`].
const BLOCK: usize = 1 << 20;
const ALIGNED: usize = 4096;

/// A file that is written from its beginning to its end.
pub(super) struct LargeFile {
    file: File,
    /// Begins at the first multiple of `ALIGNED` in it; made when something is written.
    block: Vec<u8>,
    filled: usize,
    /// Blocks are written past the cache; known from the first of them on.
    past_cache: Option<bool>,
}

impl LargeFile {
    pub(super) fn new(file: File) -> LargeFile {
        LargeFile { file, block: Vec::new(), filled: 0, past_cache: None }
    }

    /// Writes what is left. Without it the end of the file is missing.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.back_to_cache();
        self.put()
    }

    fn start(&self) -> usize {
        self.block.as_ptr().align_offset(ALIGNED)
    }

    /// Writes what is in the block.
    fn put(&mut self) -> io::Result<()> {
        let start = self.start();
        let mut left = start..start + std::mem::take(&mut self.filled);
        while !left.is_empty() {
            match self.file.write(&self.block[left.clone()]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => left.start += written,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // This disk wants other multiples, or a part of a block is left over.
                Err(error) if error.kind() == ErrorKind::InvalidInput && self.past_cache == Some(true) => {
                    self.back_to_cache();
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn back_to_cache(&mut self) {
        if self.past_cache == Some(true) {
            set_past_cache(&self.file, false);
        }
        self.past_cache = Some(false);
    }
}

impl Write for LargeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.block.is_empty() {
            self.block = vec![0; BLOCK + ALIGNED];
        }
        let taken = bytes.len().min(BLOCK - self.filled);
        let at = self.start() + self.filled;
        self.block[at..at + taken].copy_from_slice(&bytes[..taken]);
        self.filled += taken;
        if self.filled == BLOCK {
            self.past_cache.get_or_insert_with(|| set_past_cache(&self.file, true));
            self.put()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whether it has come to be so.
#[cfg(target_os = "linux")]
fn set_past_cache(file: &File, past_cache: bool) -> bool {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

    let set = || {
        let mut flags = fcntl_getfl(file)?;
        flags.set(OFlags::DIRECT, past_cache);
        fcntl_setfl(file, flags)
    };
    set().is_ok()
}

#[cfg(not(target_os = "linux"))]
fn set_past_cache(_: &File, _: bool) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_arrives_whole_in_pieces_of_any_size() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("file");
        let bytes: Vec<u8> =
            (0..2 * BLOCK + 5000).map(|at| u8::try_from(at % 251).expect("a byte")).collect();
        for length in [0, 1, 4096, BLOCK - 1, BLOCK, BLOCK + 1, BLOCK + 4096, 2 * BLOCK, 2 * BLOCK + 5000] {
            for piece in [4096, 65_537, BLOCK, 3 * BLOCK] {
                let mut file = LargeFile::new(File::create(&path).expect("a file"));
                bytes[..length].chunks(piece).for_each(|piece| file.write_all(piece).expect("it is written"));
                file.finish().expect("and its end");
                assert!(std::fs::read(&path).expect("it is there") == bytes[..length], "{length} by {piece}");
            }
        }
    }

    /// As where a file system takes the flag and then wants larger blocks.
    #[test]
    #[cfg(target_os = "linux")]
    fn what_the_disk_refuses_past_the_cache_goes_the_usual_way() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("file");
        let mut file = LargeFile::new(File::create(&path).expect("a file"));
        if !set_past_cache(&file.file, true) {
            eprintln!("skipped: this disk cannot be written past the cache");
            return;
        }
        file.past_cache = Some(true);
        file.write_all(&[7; 100]).expect("it is gathered");
        file.put().expect("it is written although its length is odd");
        assert_eq!(file.past_cache, Some(false));
        file.write_all(&[8; 100]).expect("and goes on");
        file.finish().expect("to its end");
        assert_eq!(std::fs::read(&path).expect("it is there"), [[7; 100], [8; 100]].concat());
    }
}
