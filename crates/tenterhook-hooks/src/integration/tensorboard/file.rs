//! An event file that a resumed run continues.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufReader, ErrorKind, Read, Seek};
use std::path::{Path, PathBuf};

use tenterhook_core::{HookResult, Phase};
use tenterhook_files::{RecordFormat, ResumableFile, open_regular, write_durably};

use super::entry::Entry;
use super::{event, record};
use crate::support::sink::{self, LoggedLine, Records, SinkFormat};
use crate::worker::{Work, WorkerContext};

/// The prefix of the names of event files.
pub(super) const PREFIX: &str = "events.out.tfevents.";

/// `TFRecord` framing: a length and checksums.
#[derive(Debug)]
pub(super) enum TfRecords {}

impl RecordFormat for TfRecords {
    fn end_of_records(file: &mut File, length: u64) -> io::Result<u64> {
        file.rewind()?;
        let mut reader = BufReader::new(file.take(length));
        let mut end = 0;
        while let Some(content) = record::next(&mut reader)? {
            end += record::size_of(&content);
        }
        Ok(end)
    }
}

/// The format of an event file. `wall_time` is the time of the first event of a new file.
pub(super) struct EventFormat {
    pub(super) wall_time: f64,
}

impl SinkFormat for EventFormat {
    type Record = Vec<u8>;
    type Framing = TfRecords;
    type Writer = EventFile;

    const OPTION: &'static str = "dir";
    const RECORDS: &'static str = "events";
    /// One record: the configuration of the run.
    const HEADER_RECORDS: u64 = 1;
    const UNRESTORABLE: &'static str =
        "histograms and images that only TensorBoard receives are in no other file of the run";

    /// Removes all event files of the directory, because TensorBoard would merge them.
    fn clear(&self, path: &Path) -> io::Result<()> {
        let directory = path.parent().unwrap_or(path);
        let entries = fs::read_dir(directory)?.collect::<io::Result<Vec<_>>>()?;
        let old = entries.iter().filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
        old.map(fs::DirEntry::path).try_for_each(fs::remove_file)
    }

    /// The events after the version.
    fn records(&self, path: &Path) -> io::Result<Records<'static, Vec<u8>>> {
        let mut reader = BufReader::new(open_regular(path)?);
        Ok(Box::new(std::iter::from_fn(move || record::next(&mut reader).transpose()).skip(1)))
    }

    /// A hash of everything but the time at the start of an event.
    fn key(event: &Vec<u8>) -> u64 {
        let mut hasher = DefaultHasher::new();
        event.get(event::TIME_SIZE..).hash(&mut hasher);
        hasher.finish()
    }

    fn time(event: &Vec<u8>) -> f64 {
        event::wall_time(event).unwrap_or(f64::NEG_INFINITY)
    }

    fn from_line(line: &LoggedLine, offset: f64) -> Option<Vec<u8>> {
        let is_written =
            line.stage != Phase::SanityCheck && !(line.metrics.is_empty() && line.histograms.is_empty());
        let (wall_time, step) = (line.time + offset, line.step);
        is_written.then(|| event::logged(wall_time, step, &line.metrics, &line.histograms))
    }

    fn rewrite<'r>(
        &self,
        path: &Path,
        records: &dyn Fn() -> io::Result<Records<'r, Vec<u8>>>,
    ) -> io::Result<()> {
        let first = match open_regular(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            opened => record::next(&mut BufReader::new(opened?))?,
        };
        let version = first.unwrap_or_else(|| event::version(self.wall_time));
        write_durably(path, |file| {
            file.write_all(&record::framed(&version))?;
            records()?.try_for_each(|event| file.write_all(&record::framed(&event?)))
        })
    }

    fn writer(&self, mut file: ResumableFile<TfRecords>) -> io::Result<EventFile> {
        if file.length() == 0 {
            file.push(&record::framed(&event::version(self.wall_time)))?;
        }
        Ok(EventFile { file })
    }
}

/// Writes the file on the worker thread.
#[derive(Debug)]
pub(super) struct EventFile {
    file: ResumableFile<TfRecords>,
}

impl Work for EventFile {
    type Item = Entry;

    fn process(&mut self, entry: Entry, _: &WorkerContext) -> HookResult {
        let frame = record::framed(&entry.into_event()?);
        let written = self.file.push(&frame);
        Ok(written.map_err(|error| sink::cannot_write::<EventFormat>(self.file.path(), &error))?)
    }
}

/// The name of a new file. TensorBoard reads the files of a directory in the order of their names.
pub(super) fn name(wall_time: f64, host: &str) -> PathBuf {
    let plain = |letter: char| if letter.is_alphanumeric() || "-_.".contains(letter) { letter } else { '_' };
    let host: String = host.chars().map(plain).collect();
    format!("{PREFIX}{wall_time:010.0}.{host}.{}.0", std::process::id()).into()
}

/// The events of a file after the version, without their times.
#[cfg(test)]
pub(crate) fn timeless(path: &Path) -> Vec<Vec<u8>> {
    let records = EventFormat { wall_time: 0.0 }.records(path).expect("it opens");
    records.map(|event| event.expect("it reads").split_off(event::TIME_SIZE)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::integration::tensorboard::entry::Content;
    use crate::integration::tensorboard::event::Summary;

    const FORMAT: EventFormat = EventFormat { wall_time: 7.0 };

    fn scalar(step: u64) -> Vec<u8> {
        let mut summary = Summary::new(step as f64, step);
        summary.scalar("x", 1.0);
        summary.into_event()
    }

    fn opened(path: &Path) -> EventFile {
        FORMAT.writer(ResumableFile::open(path).expect("it opens")).expect("it has a head")
    }

    fn contents(path: &Path) -> Vec<Vec<u8>> {
        let (bytes, mut contents) = (fs::read(path).expect("it is there"), Vec::new());
        let mut rest = bytes.as_slice();
        while let Some(content) = record::next(&mut rest).expect("memory reads") {
            contents.push(content);
        }
        let size: u64 = contents.iter().map(|content| record::size_of(content)).sum();
        assert_eq!(size, bytes.len() as u64, "nothing but whole records");
        contents
    }

    /// A file of three events in this directory.
    fn three(directory: &Path) -> PathBuf {
        let path = directory.join(name(7.0, "a/b c"));
        let mut file = opened(&path).file;
        (1..=3).for_each(|step| file.push(&record::framed(&scalar(step))).expect("it is written"));
        path
    }

    #[test]
    fn a_file_begins_with_its_version_and_keeps_it_when_it_is_rewritten() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = three(directory.path());
        assert!(path.display().to_string().contains("events.out.tfevents.0000000007.a_b_c."), "{path:?}");
        let all = [event::version(7.0), scalar(1), scalar(2), scalar(3)];
        assert_eq!(contents(&path), all);
        opened(&path);
        assert_eq!(contents(&path), all);
        let later = EventFormat { wall_time: 9.0 };
        later.rewrite(&path, &|| Ok(Box::new(later.records(&path)?.take(2)))).expect("it is rewritten");
        assert_eq!(contents(&path), all[..3]);
    }

    #[test]
    fn an_incomplete_record_is_removed() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = three(directory.path());
        let whole = fs::read(&path).expect("it is there");
        let last = record::framed(&scalar(3));
        for missing in 1..last.len() {
            fs::write(&path, &whole[..whole.len() - missing]).expect("it is written");
            opened(&path).file.push(&last).expect("it is written");
            assert!(fs::read(&path).expect("it is there") == whole, "{missing}");
        }
    }

    #[test]
    fn a_restarted_run_removes_the_event_files_of_its_directory_and_nothing_else() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = three(directory.path());
        let beside = path.with_file_name("notes.txt");
        fs::write(&beside, "mine").expect("it is written");
        FORMAT.clear(&path.with_file_name(name(9.0, "host"))).expect("they are removed");
        assert!(!path.exists() && beside.exists());
    }

    #[test]
    fn a_file_of_another_format_is_overwritten() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join(name(7.0, "host"));
        fs::write(&path, "something else").expect("it is written");
        opened(&path);
        assert_eq!(contents(&path), [event::version(7.0)]);
    }

    #[test]
    fn the_key_of_an_event_does_not_depend_on_its_time() {
        let line = r#"{"step":3,"stage":"train","time":1.5,"metrics":{"a":0.1,"b":"nan"}}"#;
        let line: LoggedLine = serde_json::from_str(line).expect("it reads");
        let metrics = [("a".to_owned(), 0.1), ("b".to_owned(), -f64::NAN)].into();
        let content = Content::Line { metrics, histograms: BTreeMap::default() };
        let sent = Entry { wall_time: 99.0, step: 3, content }.into_event().expect("an event");
        let restored = EventFormat::from_line(&line, 8.0).expect("it is one of the lines");
        assert_eq!(
            (EventFormat::key(&restored), EventFormat::time(&restored)),
            (EventFormat::key(&sent), 9.5)
        );
    }
}
