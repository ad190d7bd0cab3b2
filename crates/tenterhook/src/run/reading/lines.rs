//! `metrics.jsonl` and `events.jsonl`, read as far as they were written.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::ReadError;
use crate::failures::Failures;
use crate::run::Entry;

/// A metric at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Completed optimizer steps.
    pub step: u64,
    /// The epoch, from 0.
    pub epoch: u64,
    /// Seconds since the run began.
    pub time: f64,
    /// What was logged; perhaps not finite.
    pub value: f64,
}

/// Everything that a run logged, by the metric's name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curves {
    /// The points of each metric, in the order in which they were logged.
    pub by_name: BTreeMap<String, Vec<Point>>,
    /// How many lines could not be read. Half a line at the very end is not one: it was being written.
    pub unreadable: usize,
}

/// What happened in a run besides numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Happenings {
    /// In the order in which it happened.
    pub entries: Vec<Entry>,
    /// How many lines could not be read. Half a line at the very end is not one: it was being written.
    pub unreadable: usize,
}

impl Happenings {
    /// What failed, by kind.
    #[must_use]
    pub fn failures(&self) -> Failures {
        let mut failures = Failures::default();
        for entry in &self.entries {
            failures.read(entry);
        }
        failures
    }
}

/// A line of `metrics.jsonl`; [`crate::run::Line`] is the same while it is written.
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

/// So much of a file's end is read where only the latest counts: some thousand lines.
const END: u64 = 1024 * 1024;

/// The last lines of `metrics.jsonl`. What cannot be read is left out.
pub(super) fn last(path: &Path) -> io::Result<Vec<Logged>> {
    let mut file = File::open(path)?;
    let start = file.metadata()?.len().saturating_sub(END);
    file.seek(SeekFrom::Start(start))?;
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    // Within a file, the first line is most likely the rest of one.
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

impl Happenings {
    pub(in crate::run) fn read(path: &Path) -> Result<Happenings, ReadError> {
        let mut entries = Vec::new();
        let unreadable = each_line(path, |entry| entries.push(entry))?;
        Ok(Happenings { entries, unreadable })
    }
}

/// Reads a file of JSON lines. How many could not be read is returned. A file that was never written is empty.
fn each_line<T: DeserializeOwned>(path: &Path, mut take: impl FnMut(T)) -> Result<usize, ReadError> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(ReadError::unreadable(path)(error)),
    };
    let mut unreadable = 0;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        match serde_json::from_slice(line) {
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
    fn of_a_long_file_only_the_end_is_read_in_whole_lines() {
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
