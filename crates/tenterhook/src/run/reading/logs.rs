//! Reading `metrics.jsonl` and `events.jsonl`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use tenterhook_files::{next_line, open_regular};

use super::ReadError;
use crate::journal::Failures;
use crate::run::JournalEntry;

/// A logged value of a metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Completed optimizer steps.
    pub step: u64,
    /// The epoch, from 0.
    pub epoch: u64,
    /// Seconds since the run began.
    pub time: f64,
    /// The value; may not be finite.
    pub value: f64,
}

/// The logged metrics of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curves {
    /// The values of each metric, in the order in which they were logged.
    pub by_name: BTreeMap<String, Vec<Point>>,
    /// The number of lines that could not be parsed. An incomplete last line does not count.
    pub unreadable: usize,
}

/// The journal of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventLog {
    /// The entries, in order.
    pub entries: Vec<JournalEntry>,
    /// The number of lines that could not be parsed. An incomplete last line does not count.
    pub unreadable: usize,
}

impl EventLog {
    /// The failures, by kind.
    #[must_use]
    pub fn failures(&self) -> Failures {
        let mut failures = Failures::default();
        for entry in &self.entries {
            failures.read(entry);
        }
        failures
    }
}

/// A line of `metrics.jsonl`; [`crate::run::MetricsLine`] is its counterpart for writing.
#[derive(Deserialize)]
pub(super) struct Logged {
    pub(super) step: u64,
    #[serde(default)]
    pub(super) epoch: u64,
    #[serde(default)]
    pub(super) epoch_end: bool,
    #[serde(default)]
    pub(super) time: f64,
    #[serde(with = "tenterhook_core::number::map")]
    pub(super) metrics: BTreeMap<String, f64>,
}

/// The length of the end of a file that is read for the latest values: some thousand lines.
const END: u64 = 1024 * 1024;

/// Opens a file of a run; `None` if it does not exist.
fn open(path: &Path) -> Result<Option<File>, ReadError> {
    match open_regular(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        opened => opened.map(Some).map_err(ReadError::unreadable(path)),
    }
}

/// The last lines of `metrics.jsonl`, without those that cannot be parsed.
pub(super) fn last(path: &Path) -> Result<Vec<Logged>, ReadError> {
    let Some(mut file) = open(path)? else { return Ok(Vec::new()) };
    let mut text = Vec::new();
    let read = || {
        let start = file.metadata()?.len().saturating_sub(END);
        file.seek(SeekFrom::Start(start))?;
        file.take(END).read_to_end(&mut text)?;
        Ok(start)
    };
    let start = read().map_err(ReadError::unreadable(path))?;
    // The first line is probably incomplete, unless it is the first of the file.
    let lines = text.split(|byte| *byte == b'\n').skip(usize::from(start > 0));
    Ok(lines.filter_map(|line| serde_json::from_slice(line).ok()).collect())
}

impl Curves {
    pub(super) fn read(path: &Path) -> Result<Curves, ReadError> {
        let mut by_name: BTreeMap<String, Vec<Point>> = BTreeMap::new();
        let unreadable = each_line(path, |Logged { step, epoch, time, metrics, .. }| {
            for (name, value) in metrics {
                by_name.entry(name).or_default().push(Point { step, epoch, time, value });
            }
        })?;
        Ok(Curves { by_name, unreadable })
    }
}

impl EventLog {
    pub(in crate::run) fn read(path: &Path) -> Result<EventLog, ReadError> {
        let mut entries = Vec::new();
        let unreadable = each_line(path, |entry| entries.push(entry))?;
        Ok(EventLog { entries, unreadable })
    }
}

/// Reads a file of JSON lines, and returns the number of lines that could not be parsed. A missing file is empty.
fn each_line<T: DeserializeOwned>(path: &Path, mut take: impl FnMut(T)) -> Result<usize, ReadError> {
    let Some(file) = open(path)? else { return Ok(0) };
    let (mut reader, mut line, mut unreadable) = (BufReader::new(file), Vec::new(), 0);
    loop {
        match next_line(&mut reader, &mut line) {
            Ok(0) => break,
            Ok(_) => {}
            // The rest of the file has no line breaks.
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => return Ok(unreadable + 1),
            Err(error) => return Err(ReadError::unreadable(path)(error)),
        }
        match serde_json::from_slice(&line) {
            Ok(read) => take(read),
            Err(_) if !line.ends_with(b"\n") || line.trim_ascii().is_empty() => {}
            Err(_) => unreadable += 1,
        }
    }
    Ok(unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endless_line_counts_as_unreadable() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("metrics.jsonl");
        std::fs::write(&path, "{\"step\":1,\"metrics\":{\"a\":1}}\n").expect("it is written");
        let file = std::fs::OpenOptions::new().write(true).open(&path).expect("it opens");
        // A hole of a terabyte; reading it whole would take hours.
        file.set_len(1 << 40).expect("it grows");
        let curves = Curves::read(&path).expect("it is read");
        assert_eq!((curves.by_name["a"].len(), curves.unreadable), (1, 1));
    }

    #[test]
    fn only_whole_lines_at_the_end_of_a_long_file_are_read() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("metrics.jsonl");
        let line = |step: u64| format!("{{\"step\":{step},\"metrics\":{{\"m{step}\":1}}}}\n");
        let text: String = (0..60_000).map(line).collect();
        std::fs::write(&path, &text).expect("it is written");
        assert!(text.len() as u64 > END, "the test is about more");
        let lines = last(&path).expect("it is read");
        let read: u64 = lines.iter().map(|logged| line(logged.step).len() as u64).sum();
        assert!(read <= END && END - read < 40, "all whole lines of the end: {read}");
        assert_eq!(lines.last().map(|line| line.step), Some(59_999));
        std::fs::write(&path, &text[..100]).expect("it is written");
        assert_eq!(last(&path).expect("it is read")[0].step, 0, "of a short one, all");
    }
}
