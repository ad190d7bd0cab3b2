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

/// What blocks are written to: a file of this system.
pub(super) trait Blocks: Write {
    /// Lets what is written go past the cache, or not; says whether it does what it was asked for.
    fn set_past_cache(&self, past_cache: bool) -> bool;
}

/// A file that is written from its beginning to its end.
pub(super) struct LargeFile<F = File> {
    file: F,
    /// Begins at the first multiple of `ALIGNED` in it; made when something is written.
    block: Vec<u8>,
    filled: usize,
    /// Blocks are written past the cache; known from the first of them on.
    past_cache: Option<bool>,
}

impl<F: Blocks> LargeFile<F> {
    pub(super) fn new(file: F) -> LargeFile<F> {
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
                // This disk wants other multiples, or a part of a block is left over. Whatever it is: nothing of it is
                // written, and what is really wrong shows the usual way, too.
                Err(_) if self.past_cache == Some(true) => self.back_to_cache(),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn back_to_cache(&mut self) {
        if self.past_cache == Some(true) {
            self.file.set_past_cache(false);
        }
        self.past_cache = Some(false);
    }
}

impl<F: Blocks> Write for LargeFile<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.block.is_empty() {
            self.block = vec![0; BLOCK + ALIGNED];
        }
        let taken = bytes.len().min(BLOCK - self.filled);
        let at = self.start() + self.filled;
        self.block[at..at + taken].copy_from_slice(&bytes[..taken]);
        self.filled += taken;
        if self.filled == BLOCK {
            self.past_cache.get_or_insert_with(|| self.file.set_past_cache(true));
            self.put()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Blocks for File {
    #[cfg(target_os = "linux")]
    fn set_past_cache(&self, past_cache: bool) -> bool {
        use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

        let set = || {
            let mut flags = fcntl_getfl(self)?;
            flags.set(OFlags::DIRECT, past_cache);
            fcntl_setfl(self, flags)
        };
        set().is_ok()
    }

    #[cfg(not(target_os = "linux"))]
    fn set_past_cache(&self, _: bool) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn bytes(length: usize) -> Vec<u8> {
        (0..length).map(|at| u8::try_from(at % 251).expect("a byte")).collect()
    }

    #[test]
    fn every_length_arrives_whole_in_pieces_of_any_size() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("file");
        let bytes = bytes(2 * BLOCK + 5000);
        for length in [0, 1, 4096, BLOCK - 1, BLOCK, BLOCK + 1, BLOCK + 4096, 2 * BLOCK, 2 * BLOCK + 5000] {
            for piece in [4096, 65_537, BLOCK, 3 * BLOCK] {
                let mut file = LargeFile::new(File::create(&path).expect("a file"));
                bytes[..length].chunks(piece).for_each(|piece| file.write_all(piece).expect("it is written"));
                file.finish().expect("and its end");
                assert!(std::fs::read(&path).expect("it is there") == bytes[..length], "{length} by {piece}");
            }
        }
    }

    /// A disk that wants whole sectors past the cache, takes a part of what it is given, and at some byte goes wrong.
    #[derive(Default)]
    struct Sectors {
        written: Vec<u8>,
        past_cache: Cell<bool>,
        /// The most that it takes at once.
        most: usize,
        /// What it says of direct writes that it does not like.
        refuses: Option<ErrorKind>,
        full_at: Option<usize>,
        direct: usize,
    }

    const SECTOR: usize = 512;

    impl Write for Sectors {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.most);
            if self.past_cache.get() {
                let aligned = bytes.as_ptr().align_offset(SECTOR) == 0;
                let whole =
                    [self.written.len(), bytes.len()].iter().all(|length| length.is_multiple_of(SECTOR));
                if !aligned || !whole {
                    return Err(self.refuses.unwrap_or(ErrorKind::InvalidInput).into());
                }
                self.direct += taken;
            }
            if self.full_at.is_some_and(|end| self.written.len() + taken > end) {
                return Err(ErrorKind::StorageFull.into());
            }
            self.written.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Blocks for &mut Sectors {
        fn set_past_cache(&self, past_cache: bool) -> bool {
            self.past_cache.set(past_cache);
            true
        }
    }

    fn written(disk: &mut Sectors, bytes: &[u8]) -> io::Result<()> {
        let mut file = LargeFile::new(disk);
        bytes.chunks(100_000).try_for_each(|piece| file.write_all(piece))?;
        file.finish()
    }

    #[test]
    fn whole_blocks_go_past_the_cache_and_the_end_does_not() {
        let bytes = bytes(3 * BLOCK + 5000);
        let mut disk = Sectors { most: usize::MAX, ..Sectors::default() };
        written(&mut disk, &bytes).expect("it is written");
        assert!(disk.written == bytes);
        assert_eq!((disk.direct, disk.past_cache.get()), (3 * BLOCK, false));
    }

    #[test]
    fn what_the_disk_takes_in_part_or_refuses_past_the_cache_goes_on_the_usual_way() {
        let bytes = bytes(3 * BLOCK + 5000);
        for refuses in [ErrorKind::InvalidInput, ErrorKind::Unsupported] {
            // After the first part the next does not begin at a sector.
            let mut disk = Sectors { most: 700_001, refuses: Some(refuses), ..Sectors::default() };
            written(&mut disk, &bytes).expect("it is written");
            assert!(disk.written == bytes, "nothing is missing, nothing is there twice");
            assert_eq!(disk.direct, 700_001);
        }
    }

    #[test]
    fn a_disk_that_is_full_says_so_wherever_it_happens() {
        let bytes = bytes(2 * BLOCK + 5000);
        for end in [0, BLOCK - 1, BLOCK, 2 * BLOCK - 1, 2 * BLOCK, 2 * BLOCK + 4999] {
            let mut disk = Sectors { most: usize::MAX, full_at: Some(end), ..Sectors::default() };
            let failed = written(&mut disk, &bytes).expect_err("there is no room");
            assert_eq!(failed.kind(), ErrorKind::StorageFull, "{end}");
            assert!(bytes.starts_with(&disk.written));
        }
        let mut disk = Sectors { most: usize::MAX, full_at: Some(bytes.len()), ..Sectors::default() };
        written(&mut disk, &bytes).expect("there is just room");
    }
}
