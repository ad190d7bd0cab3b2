//! A file of JSON lines that is written in blocks of whole lines.

use std::io::Error;
use std::path::{Path, PathBuf};

use serde::Serialize;
use tenterhook_files::{ResumableFile, TextLines};

/// So much is held back at the most.
const MOST: usize = 64 * 1024;

/// Lines older than this are held back no longer when another one comes.
const SECONDS: f64 = 1.0;

pub(super) struct Lines {
    path: PathBuf,
    /// `None` after the first failure: what may be cut short is not written behind.
    file: Option<ResumableFile<TextLines>>,
    buffer: Vec<u8>,
    /// How many lines the buffer holds.
    waiting: u64,
    /// How many bytes of whole lines the file holds.
    written: u64,
    flushed_at: f64,
    lost: u64,
}

impl Lines {
    pub(super) fn append_to(path: &Path) -> std::io::Result<Lines> {
        ResumableFile::open(path).map(Lines::to)
    }

    fn to(file: ResumableFile<TextLines>) -> Lines {
        let (path, written) = (file.path().to_owned(), file.length());
        let (buffer, waiting, flushed_at, lost) = Default::default();
        Lines { path, file: Some(file), buffer, waiting, written, flushed_at, lost }
    }

    /// Adds a line; `time` is the run's, in seconds.
    pub(super) fn push(&mut self, line: &impl Serialize, time: f64) -> Result<(), Error> {
        if self.file.is_none() {
            self.lost += 1;
            return Ok(());
        }
        let whole = self.buffer.len();
        if let Err(error) = serde_json::to_writer(&mut self.buffer, line) {
            self.buffer.truncate(whole);
            self.lost += 1;
            return Err(self.named(&error.into()));
        }
        self.buffer.push(b'\n');
        self.waiting += 1;
        if self.buffer.len() >= MOST || time - self.flushed_at >= SECONDS {
            self.flushed_at = time;
            return self.flush();
        }
        Ok(())
    }

    /// Writes what was held back.
    pub(super) fn flush(&mut self) -> Result<(), Error> {
        let Some(file) = self.file.as_mut().filter(|_| self.waiting > 0) else { return Ok(()) };
        if let Err(error) = file.push(&self.buffer) {
            self.lost += self.waiting;
            self.file = None;
            (self.buffer, self.waiting) = (Vec::new(), 0);
            return Err(self.named(&error));
        }
        self.written = file.length();
        self.buffer.clear();
        self.waiting = 0;
        Ok(())
    }

    /// Makes what was written durable.
    pub(super) fn sync(&self) -> Result<(), Error> {
        self.file.as_ref().map_or(Ok(()), ResumableFile::sync).map_err(|error| self.named(&error))
    }

    /// How many lines could not be written.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// How many bytes of whole lines the file holds.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    fn named(&self, error: &Error) -> Error {
        Error::new(error.kind(), format!("cannot write {}: {error}", self.path.display()))
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        // Nobody is left to be told.
        let _ = self.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_held_back_for_a_second_and_then_written_whole() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("lines");
        let mut lines = Lines::append_to(&path).expect("it opens");
        let text = || std::fs::read_to_string(&path).expect("it is there");
        lines.push(&1, 0.2).expect("it is taken");
        lines.push(&2, 0.9).expect("it is taken");
        assert_eq!(text(), "");
        lines.push(&3, 1.0).expect("it is written");
        assert_eq!(text(), "1\n2\n3\n");
        lines.push(&4, 1.9).expect("it is taken");
        assert_eq!(text(), "1\n2\n3\n");
        drop(lines);
        assert_eq!(text(), "1\n2\n3\n4\n");
    }

    #[test]
    fn a_large_buffer_is_written_whatever_the_time() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("lines");
        let mut lines = Lines::append_to(&path).expect("it opens");
        lines.push(&"x".repeat(MOST), 0.0).expect("it is written");
        assert_eq!(std::fs::metadata(&path).expect("it is there").len(), MOST as u64 + 3);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_full_disk_is_told_once_and_what_is_lost_is_counted() {
        let path = Path::new("/dev/full");
        let file = std::fs::File::options().append(true).open(path).expect("it opens");
        let mut lines = Lines::to(ResumableFile::of(path, file).expect("it has a length"));
        lines.push(&1, 0.0).expect("it is taken");
        lines.push(&2, 0.0).expect("it is taken");
        let error = lines.flush().expect_err("the disk is full").to_string();
        assert!(error.starts_with("cannot write /dev/full: "), "{error}");
        lines.push(&3, 9.0).expect("it is dropped");
        lines.flush().expect("there is nothing to write");
        assert_eq!(lines.lost(), 3);
    }
}
