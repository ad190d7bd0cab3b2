//! Reads `metrics.jsonl` and `histograms.jsonl` of the run.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, ErrorKind};
use std::path::Path;

use serde::Deserialize;
use tenterhook_core::Phase;
use tenterhook_core::metrics::Histogram;
use tenterhook_files::{next_line, open_regular};

/// The values logged at one time: a line of one file or of both.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct LoggedLine {
    pub(crate) step: u64,
    #[serde(default)]
    pub(crate) epoch: u64,
    pub(crate) stage: Phase,
    pub(crate) time: f64,
    #[serde(default, with = "tenterhook_core::number::map")]
    pub(crate) metrics: BTreeMap<String, f64>,
    #[serde(default)]
    pub(crate) histograms: BTreeMap<String, Histogram>,
}

/// Both files, merged by time.
pub(crate) struct RunLines {
    metrics: Lines,
    histograms: Lines,
}

impl RunLines {
    /// Opens the files of the run in this directory; `None` if there is no `metrics.jsonl`.
    pub(crate) fn open(run: &Path) -> io::Result<Option<RunLines>> {
        let Some(metrics) = Lines::open(&run.join("metrics.jsonl"))? else { return Ok(None) };
        let histograms = Lines::open(&run.join("histograms.jsonl"))?;
        let none = Lines { reader: None, next: None };
        Ok(Some(RunLines { metrics, histograms: histograms.unwrap_or(none) }))
    }

    fn read(&mut self) -> io::Result<Option<LoggedLine>> {
        let RunLines { metrics, histograms } = self;
        match (&metrics.next, &histograms.next) {
            // The trainer writes the two lines of one time with equal times.
            (Some(line), Some(other))
                if line.time.total_cmp(&other.time).is_eq() && line.step == other.step =>
            {
                let histograms = histograms.take()?.map(|line| line.histograms).unwrap_or_default();
                Ok(metrics.take()?.map(|line| LoggedLine { histograms, ..line }))
            }
            (Some(line), Some(other)) if other.time < line.time => histograms.take(),
            (Some(_), _) => metrics.take(),
            (None, _) => histograms.take(),
        }
    }
}

impl Iterator for RunLines {
    type Item = io::Result<LoggedLine>;

    fn next(&mut self) -> Option<io::Result<LoggedLine>> {
        self.read().transpose()
    }
}

/// The lines of one file.
struct Lines {
    reader: Option<BufReader<File>>,
    next: Option<LoggedLine>,
}

impl Lines {
    fn open(path: &Path) -> io::Result<Option<Lines>> {
        let reader = match open_regular(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            opened => Some(BufReader::new(opened?)),
        };
        let mut lines = Lines { reader, next: None };
        lines.take()?;
        Ok(Some(lines))
    }

    /// The next valid line. Damaged lines are skipped; the sink then finds that lines are missing.
    fn take(&mut self) -> io::Result<Option<LoggedLine>> {
        let taken = self.next.take();
        let Some(reader) = &mut self.reader else { return Ok(taken) };
        let mut line = Vec::new();
        while self.next.is_none() {
            match next_line(reader, &mut line) {
                Ok(0) => break,
                Ok(_) => {}
                // The rest of the file is not text.
                Err(error) if error.kind() == ErrorKind::FileTooLarge => {
                    self.reader = None;
                    break;
                }
                Err(error) => return Err(error),
            }
            self.next = serde_json::from_slice(&line).ok();
        }
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_one_time_are_joined_and_damaged_ones_skipped() {
        let run = tempfile::tempdir().expect("a directory");
        assert!(RunLines::open(run.path()).expect("it is looked for").is_none());
        let metrics = "{\"step\":1,\"epoch\":0,\"stage\":\"train\",\"time\":0.1,\"metrics\":{\"a\":\"nan\"}}\n\
                       half a line\n\
                       {\"step\":3,\"epoch\":0,\"stage\":\"validate\",\"time\":0.3,\"metrics\":{\"a\":1.5}}\n";
        std::fs::write(run.path().join("metrics.jsonl"), metrics).expect("it is written");
        let read = || {
            let source = RunLines::open(run.path()).expect("it opens").expect("it is there");
            let lines = source.map(|line| line.expect("it reads"));
            lines.map(|line| (line.step, line.metrics.len(), line.histograms.len())).collect::<Vec<_>>()
        };
        assert_eq!(read(), [(1, 1, 0), (3, 1, 0)]);
        let histogram = |step: u64| {
            format!(
                "{{\"step\":{step},\"epoch\":0,\"stage\":\"train\",\"time\":0.{step},\
                 \"histograms\":{{\"h\":{{\"edges\":[0.0,1.0],\"counts\":[2],\"non_finite\":0}}}}}}\n"
            )
        };
        let text: String = [0, 2, 3, 4].map(histogram).concat();
        std::fs::write(run.path().join("histograms.jsonl"), text).expect("it is written");
        assert_eq!(read(), [(0, 0, 1), (1, 1, 0), (2, 0, 1), (3, 1, 1), (4, 0, 1)]);
    }
}
