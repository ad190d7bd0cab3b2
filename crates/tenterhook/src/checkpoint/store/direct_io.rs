//! Direct I/O: writing large files without the system's page cache.
//!
//! A checkpoint is rarely read soon after it was written, and copying it into the page cache takes processor time and
//! memory from training and its data. So whole blocks are written directly where the file system supports it; small
//! files and the ends of large ones are written through the cache.

use std::fs::File;
use std::io::{self, ErrorKind, Write};

/// The size of a direct write. Its address in memory and its length must be multiples of [`ALIGNED`].
const BLOCK: usize = 1 << 20;
const ALIGNED: usize = 4096;

/// A file with a switch for direct I/O.
pub(super) trait DirectFile: Write {
    /// Switches direct I/O on or off. Returns whether that worked.
    fn set_direct(&self, direct: bool) -> bool;
}

/// Writes a file from its beginning to its end, in direct blocks where possible.
pub(super) struct DirectWriter<F = File> {
    file: F,
    /// Data begin at the first multiple of `ALIGNED`; allocated at the first write.
    block: Vec<u8>,
    filled: usize,
    /// Whether direct I/O is on; `None` before the first whole block.
    direct: Option<bool>,
}

impl<F: DirectFile> DirectWriter<F> {
    pub(super) fn new(file: F) -> DirectWriter<F> {
        DirectWriter { file, block: Vec::new(), filled: 0, direct: None }
    }

    /// Writes the rest. Must be called, or the end of the file is missing.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.stop_direct();
        self.write_block()
    }

    fn start(&self) -> usize {
        self.block.as_ptr().align_offset(ALIGNED)
    }

    /// Writes the buffered block.
    fn write_block(&mut self) -> io::Result<()> {
        let start = self.start();
        let mut left = start..start + std::mem::take(&mut self.filled);
        while !left.is_empty() {
            match self.file.write(&self.block[left.clone()]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => left.start += written,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // The disk may need another alignment, or only a part of the block was written before. Nothing of this
                // write took effect, and a real error occurs again through the cache.
                Err(_) if self.direct == Some(true) => self.stop_direct(),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn stop_direct(&mut self) {
        if self.direct == Some(true) {
            self.file.set_direct(false);
        }
        self.direct = Some(false);
    }
}

impl<F: DirectFile> Write for DirectWriter<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.block.is_empty() {
            self.block = vec![0; BLOCK + ALIGNED];
        }
        let taken = bytes.len().min(BLOCK - self.filled);
        let at = self.start() + self.filled;
        self.block[at..at + taken].copy_from_slice(&bytes[..taken]);
        self.filled += taken;
        if self.filled == BLOCK {
            self.direct.get_or_insert_with(|| self.file.set_direct(true));
            self.write_block()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl DirectFile for File {
    #[cfg(target_os = "linux")]
    fn set_direct(&self, direct: bool) -> bool {
        use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

        let set = || {
            let mut flags = fcntl_getfl(self)?;
            flags.set(OFlags::DIRECT, direct);
            fcntl_setfl(self, flags)
        };
        set().is_ok()
    }

    #[cfg(not(target_os = "linux"))]
    fn set_direct(&self, _: bool) -> bool {
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
                let mut file = DirectWriter::new(File::create(&path).expect("a file"));
                bytes[..length].chunks(piece).for_each(|piece| file.write_all(piece).expect("it is written"));
                file.finish().expect("and its end");
                assert!(std::fs::read(&path).expect("it is there") == bytes[..length], "{length} by {piece}");
            }
        }
    }

    /// A disk that requires whole sectors for direct writes, writes at most `most` bytes at once, and may be
    /// full at a byte.
    #[derive(Default)]
    struct Sectors {
        written: Vec<u8>,
        past_cache: Cell<bool>,
        /// The largest number of bytes per write.
        most: usize,
        /// The error of misaligned direct writes.
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

    impl DirectFile for &mut Sectors {
        fn set_direct(&self, direct: bool) -> bool {
            self.past_cache.set(direct);
            true
        }
    }

    fn written(disk: &mut Sectors, bytes: &[u8]) -> io::Result<()> {
        let mut file = DirectWriter::new(disk);
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
    fn a_direct_write_that_is_refused_or_partial_continues_through_the_cache() {
        let bytes = bytes(3 * BLOCK + 5000);
        for refuses in [ErrorKind::InvalidInput, ErrorKind::Unsupported] {
            // After the first write, the next does not begin at a sector boundary.
            let mut disk = Sectors { most: 700_001, refuses: Some(refuses), ..Sectors::default() };
            written(&mut disk, &bytes).expect("it is written");
            assert!(disk.written == bytes, "nothing is missing, nothing is there twice");
            assert_eq!(disk.direct, 700_001);
        }
    }

    #[test]
    fn a_full_disk_is_an_error_at_every_length() {
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
