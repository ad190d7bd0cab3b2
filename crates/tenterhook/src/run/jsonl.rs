//! A writer of JSON lines that buffers and writes whole lines.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use serde::Serialize;
use tenterhook_files::{FileError, ResumableFile, TextLines, cannot};

/// The size at which the buffer is written.
const BUFFER: usize = 64 * 1024;

/// The time since the last write after which the next line writes the buffer.
const SECONDS: f64 = 1.0;

/// Appends JSON lines to a file. After the first failure it writes nothing more, as the file may end in half a line.
pub(super) struct JsonlWriter {
    path: PathBuf,
    file: State,
    buffer: Vec<u8>,
    /// The number of lines in the buffer.
    buffered: u64,
    flushed_at: f64,
    lost: u64,
}

enum State {
    /// The first line opens the file.
    NotOpen,
    Open(ResumableFile<TextLines>),
    /// The length of the lines that were written before the failure.
    Failed(u64),
}

impl JsonlWriter {
    fn new(path: PathBuf, file: State) -> JsonlWriter {
        let (buffer, buffered, flushed_at, lost) = Default::default();
        JsonlWriter { path, file, buffer, buffered, flushed_at, lost }
    }

    /// A writer that opens or creates the file when the first line comes.
    pub(super) fn lazy(path: PathBuf) -> JsonlWriter {
        JsonlWriter::new(path, State::NotOpen)
    }

    /// Opens or creates a file.
    pub(super) fn open(path: PathBuf) -> Result<JsonlWriter, FileError> {
        let file = ResumableFile::open(&path).map_err(cannot("open", &path))?;
        Ok(JsonlWriter::new(path, State::Open(file)))
    }

    /// Adds a line at this time of the run, in seconds.
    pub(super) fn push(&mut self, line: &impl Serialize, time: f64) -> Result<(), FileError> {
        match self.file {
            State::Open(_) => {}
            State::NotOpen => {
                let opened = ResumableFile::open(&self.path).map_err(cannot("open", &self.path));
                self.file = State::Open(opened.inspect_err(|_| self.lost += 1)?);
            }
            State::Failed(_) => {
                self.lost += 1;
                return Ok(());
            }
        }
        let whole = self.buffer.len();
        if let Err(error) = serde_json::to_writer(&mut self.buffer, line) {
            self.buffer.truncate(whole);
            self.lost += 1;
            return Err(cannot("write", &self.path)(error.into()));
        }
        self.buffer.push(b'\n');
        self.buffered += 1;
        if self.buffer.len() >= BUFFER || time - self.flushed_at >= SECONDS {
            self.flushed_at = time;
            return self.flush();
        }
        Ok(())
    }

    /// Writes the buffered lines.
    pub(super) fn flush(&mut self) -> Result<(), FileError> {
        let State::Open(file) = &mut self.file else { return Ok(()) };
        if self.buffered == 0 {
            return Ok(());
        }
        let written = file.push(&self.buffer);
        if written.is_err() {
            self.lost += self.buffered;
            self.file = State::Failed(file.length());
            self.buffer = Vec::new();
        }
        self.buffer.clear();
        self.buffered = 0;
        written.map_err(cannot("write", &self.path))
    }

    /// Syncs what was written.
    pub(super) fn sync(&self) -> Result<(), FileError> {
        match &self.file {
            State::Open(file) => file.sync().map_err(cannot("write", &self.path)),
            State::NotOpen | State::Failed(_) => Ok(()),
        }
    }

    /// The number of lines that could not be written.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// The length of the file without buffered lines; `None` if it does not exist. An earlier part of the run may have
    /// created a file that is not open.
    pub(super) fn length(&self) -> Result<Option<u64>, FileError> {
        match &self.file {
            State::Open(file) => Ok(Some(file.length())),
            State::Failed(length) => Ok(Some(*length)),
            State::NotOpen => match fs::metadata(&self.path) {
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
                found => Ok(Some(found.map_err(cannot("read", &self.path))?.len())),
            },
        }
    }
}

impl Drop for JsonlWriter {
    fn drop(&mut self) {
        // An error cannot be reported from here.
        let _ = self.flush();
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn lines_are_held_back_for_a_second_and_then_written_whole() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("lines");
        let mut lines = JsonlWriter::open(path.clone()).expect("it opens");
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
    fn a_full_buffer_is_written_at_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("lines");
        let mut lines = JsonlWriter::open(path.clone()).expect("it opens");
        lines.push(&"x".repeat(BUFFER), 0.0).expect("it is written");
        assert_eq!(std::fs::metadata(&path).expect("it is there").len(), BUFFER as u64 + 3);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_full_disk_is_reported_once_and_lost_lines_are_counted() {
        let path = Path::new("/dev/full");
        let file = std::fs::File::options().append(true).open(path).expect("it opens");
        let file = State::Open(ResumableFile::of(path, file).expect("it has a length"));
        let mut lines = JsonlWriter::new(path.to_owned(), file);
        lines.push(&1, 0.0).expect("it is taken");
        lines.push(&2, 0.0).expect("it is taken");
        let error = lines.flush().expect_err("the disk is full").to_string();
        assert!(error.starts_with("cannot write /dev/full: "), "{error}");
        lines.push(&3, 9.0).expect("it is dropped");
        lines.flush().expect("there is nothing to write");
        assert_eq!(lines.lost(), 3);
    }

    #[test]
    fn only_a_file_that_does_not_exist_has_no_length() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("lines");
        let length = |path: &Path| JsonlWriter::lazy(path.to_owned()).length();
        assert_eq!(length(&path).expect("it is known"), None);
        fs::write(&path, "1\n").expect("it is written");
        assert_eq!(length(&path).expect("it is known"), Some(2));
        // Its status cannot be read.
        let error = length(&path.join("below")).expect_err("not a directory").to_string();
        assert!(error.contains("cannot read"), "{error}");
    }
}
