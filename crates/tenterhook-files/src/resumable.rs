//! Files of records that a resumed run truncates to its checkpoint and continues.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{RelPath, SMALL_FILE, open_no_follow};

/// The division of a file into records.
pub trait RecordFormat {
    /// The end of the last whole record within the first `length` bytes.
    ///
    /// # Errors
    /// The error of the system.
    fn end_of_records(file: &mut File, length: u64) -> io::Result<u64>;
}

/// The maximum number of bytes that are searched for a line break at the end of a file.
const SEARCHED: u64 = 4 * SMALL_FILE;

/// Records that end with a line break.
#[derive(Clone, Copy, Debug)]
pub enum TextLines {}

impl RecordFormat for TextLines {
    fn end_of_records(file: &mut File, length: u64) -> io::Result<u64> {
        const BLOCK: u64 = 64 * 1024;
        let (mut end, mut block) = (length, Vec::new());
        while end > 0 {
            let start = end.saturating_sub(BLOCK);
            block.clear();
            file.seek(SeekFrom::Start(start))?;
            file.take(end - start).read_to_end(&mut block)?;
            if let Some(at) = block.iter().rposition(|byte| *byte == b'\n') {
                return Ok(start + at as u64 + 1);
            }
            end = start;
            if length - end > SEARCHED {
                let error = format!(
                    "its last {SEARCHED} bytes contain no line break, so this program did not write it"
                );
                return Err(io::Error::new(io::ErrorKind::InvalidData, error));
            }
        }
        Ok(0)
    }
}

/// The position in a file at a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePosition {
    /// The file, relative to the run directory or to the directory in the configuration.
    pub file: RelPath,
    /// The length of its records in bytes.
    pub length: u64,
}

impl FilePosition {
    /// An error message if the file has lost records before this position and has only `length` bytes.
    #[must_use]
    pub fn missing(&self, path: &Path, length: u64) -> Option<String> {
        (length < self.length).then(|| {
            format!(
                "{} has {length} bytes of the {} that it had at the checkpoint; the rest is missing",
                path.display(),
                self.length
            )
        })
    }
}

/// A file of whole records. Opening it cuts off an incomplete record, which a killed process may have left at the
/// end, and a failed write leaves no incomplete record.
#[derive(Debug)]
pub struct ResumableFile<R> {
    path: PathBuf,
    file: File,
    length: u64,
    format: PhantomData<R>,
}

impl<R: RecordFormat> ResumableFile<R> {
    /// Opens a file at its end, or creates it. A symbolic link is not followed.
    ///
    /// # Errors
    /// Those of [`open_no_follow`].
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::of(path, open_no_follow(path, OpenOptions::new().read(true).append(true).create(true))?)
    }

    /// Takes over an open file.
    ///
    /// # Errors
    /// The error of the system.
    pub fn of(path: &Path, mut file: File) -> io::Result<Self> {
        // A device or a pipe has length 0 and is not read.
        let there = file.metadata()?.len();
        let length = if there == 0 { 0 } else { R::end_of_records(&mut file, there)? };
        let mut file = ResumableFile { path: path.to_owned(), file, length: there, format: PhantomData };
        file.truncate(length)?;
        Ok(file)
    }

    /// The file's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The length of its records in bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The end of the last whole record within the first `length` bytes. It is less than `length` if the file is
    /// shorter, or if no record ends there because the file is damaged or was changed.
    ///
    /// # Errors
    /// The error of the system.
    pub fn end_within(&mut self, length: u64) -> io::Result<u64> {
        if length >= self.length { Ok(self.length) } else { R::end_of_records(&mut self.file, length) }
    }

    /// Truncates the file to `length` bytes, which must be the end of a record.
    ///
    /// # Errors
    /// The error of the system.
    pub fn truncate(&mut self, length: u64) -> io::Result<()> {
        if length < self.length {
            self.file.set_len(length)?;
            self.length = length;
        }
        Ok(())
    }

    /// The last record and its start; `None` if there is none, or if it is longer than [`SMALL_FILE`].
    ///
    /// # Errors
    /// The error of the system.
    pub fn last_record(&mut self) -> io::Result<Option<(u64, Vec<u8>)>> {
        let start = R::end_of_records(&mut self.file, self.length.saturating_sub(1))?;
        let size = self.length - start;
        if size == 0 || size > SMALL_FILE {
            return Ok(None);
        }
        let mut record = Vec::new();
        self.file.seek(SeekFrom::Start(start))?;
        Read::by_ref(&mut self.file).take(size).read_to_end(&mut record)?;
        Ok(Some((start, record)))
    }

    /// Appends whole records, all of them or none.
    ///
    /// # Errors
    /// The error of the system.
    pub fn push(&mut self, records: &[u8]) -> io::Result<()> {
        let written = self.file.write_all(records);
        match written {
            Ok(()) => self.length += records.len() as u64,
            // If this fails too, the next `open` cuts off the incomplete record.
            Err(_) => drop(self.file.set_len(self.length)),
        }
        written
    }

    /// Syncs the file.
    ///
    /// # Errors
    /// The error of the system.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    type LineFile = ResumableFile<TextLines>;

    #[test]
    fn an_incomplete_record_of_any_length_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lines");
        for half in [0, 1, 64 * 1024 - 1, 64 * 1024, 200_000] {
            fs::write(&path, format!("one\n{}", "x".repeat(half))).unwrap();
            assert_eq!(LineFile::open(&path).unwrap().length(), 4, "{half}");
            assert_eq!(fs::read_to_string(&path).unwrap(), "one\n", "{half}");
        }
    }

    #[test]
    fn the_last_record_is_read_unless_it_is_endless() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lines");
        let mut file = LineFile::open(&path).unwrap();
        assert_eq!(file.last_record().unwrap(), None);
        file.push(b"one\ntwo\n").unwrap();
        assert_eq!(file.last_record().unwrap(), Some((4, b"two\n".to_vec())));
        file.truncate(4).unwrap();
        assert_eq!(file.last_record().unwrap(), Some((0, b"one\n".to_vec())));
        let endless = fs::OpenOptions::new().write(true).open(&path).unwrap();
        endless.set_len(SMALL_FILE + 5).unwrap();
        let mut end = fs::OpenOptions::new().append(true).open(&path).unwrap();
        end.write_all(b"\n").unwrap();
        assert_eq!(LineFile::open(&path).unwrap().last_record().unwrap(), None);
    }

    #[test]
    fn a_file_that_ends_in_a_hole_is_not_searched_to_its_beginning() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lines");
        fs::write(&path, "one\n").unwrap();
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
        let error = LineFile::open(&path).unwrap_err();
        assert!(error.to_string().contains("no line break"), "{error}");
        assert_eq!(fs::metadata(&path).unwrap().len(), 1 << 40, "it stays as it is");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_full_disk_leaves_no_half_record() {
        let path = Path::new("/dev/full");
        let mut file = LineFile::of(path, File::options().append(true).open(path).unwrap()).unwrap();
        file.push(b"one\n").unwrap_err();
        assert_eq!(file.length(), 0);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

        /// For any prefix of the file and any position, the continued run writes the same file again.
        #[test]
        fn a_continued_file_equals_that_of_an_uninterrupted_run(
            records in proptest::collection::vec("[a-z]{0,9}", 0..12),
            checkpoint in 0_usize..13,
            killed_at in 0_usize..120,
        ) {
            let records: Vec<_> = records.into_iter().map(|record| record + "\n").collect();
            let whole = records.concat();
            let checkpoint = checkpoint.min(records.len());
            let position = records[..checkpoint].concat().len();
            // The process was killed after its checkpoint, perhaps within a record.
            let killed_at = killed_at.clamp(position, whole.len().max(position));
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("lines");
            fs::write(&path, &whole.as_bytes()[..killed_at]).unwrap();
            let mut file = LineFile::open(&path).unwrap();
            prop_assert_eq!(file.end_within(position as u64).unwrap(), position as u64);
            file.truncate(position as u64).unwrap();
            for record in &records[checkpoint..] {
                file.push(record.as_bytes()).unwrap();
            }
            prop_assert_eq!(fs::read_to_string(&path).unwrap(), whole);
        }

        /// A file that lost records from before the checkpoint is recognised, and only whole records are
        /// kept.
        #[test]
        fn a_shortened_or_foreign_file_is_recognised(
            text in "[a-z\n]{0,60}",
            length in 0_usize..70,
        ) {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("lines");
            fs::write(&path, &text).unwrap();
            let mut file = LineFile::open(&path).unwrap();
            let ends_there = length == 0 || text.as_bytes().get(length - 1) == Some(&b'\n');
            let length = length as u64;
            let end = file.end_within(length).unwrap();
            prop_assert_eq!(end == length, ends_there, "{:?}", text);
            file.truncate(end).unwrap();
            let kept = fs::read_to_string(&path).unwrap();
            prop_assert!(text.starts_with(&kept) && (kept.is_empty() || kept.ends_with('\n')));
            let position = FilePosition { file: RelPath::new("lines").unwrap(), length };
            prop_assert_eq!(position.missing(&path, end).is_some(), end < length);
        }
    }
}
