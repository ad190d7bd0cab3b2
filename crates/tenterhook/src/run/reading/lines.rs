//! `metrics.jsonl` and `events.jsonl`, read as far as they were written.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::ReadError;
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

/// A line of `metrics.jsonl`; [`crate::run::Line`] is the same while it is written.
#[derive(Deserialize)]
struct Logged {
    step: u64,
    #[serde(default)]
    epoch: u64,
    #[serde(default)]
    time: f64,
    #[serde(with = "tenterhook_core::number::map")]
    metrics: BTreeMap<String, f64>,
}

impl Curves {
    pub(super) fn read(path: &Path) -> Result<Curves, ReadError> {
        let mut by_name: BTreeMap<String, Vec<Point>> = BTreeMap::new();
        let unreadable = each_line(path, |Logged { step, epoch, time, metrics }| {
            for (name, value) in metrics {
                by_name.entry(name).or_default().push(Point { step, epoch, time, value });
            }
        })?;
        Ok(Curves { by_name, unreadable })
    }
}

impl Happenings {
    pub(super) fn read(path: &Path) -> Result<Happenings, ReadError> {
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
