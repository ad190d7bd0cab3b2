//! An event file that only grows, except that a resumed run takes up where its checkpoint was.

use std::fs::{self, File, OpenOptions};
use std::io::{BufReader, Result, Write};
use std::path::{Path, PathBuf};

use tenterhook_files::open_regular_with;

use super::{event, record};
use crate::bookmark::Keep;

/// How the names of event files begin.
pub(super) const PREFIX: &str = "events.out.tfevents.";

#[derive(Debug)]
pub(super) struct EventFile {
    file: File,
    /// How many bytes of whole records it holds.
    length: u64,
    /// How many events stayed when it was opened.
    pub(super) found: u64,
}

impl EventFile {
    /// Opens the file at the end of what is kept, or makes it with its first record. Half a record at its end, which
    /// a killed run may have left, goes in any case.
    pub(super) fn open(path: &Path, keep: &Keep, wall_time: f64) -> Result<EventFile> {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
            if *keep == Keep::Nothing {
                remove_event_files(directory)?;
            }
        }
        let file = open_regular_with(OpenOptions::new().read(true).append(true).create(true), path)?;
        let (length, found) = kept(&file, keep)?;
        if file.metadata()?.len() > length {
            file.set_len(length)?;
        }
        let mut file = EventFile { file, length, found };
        if length == 0 {
            file.push(&event::version(wall_time))?;
        }
        Ok(file)
    }

    /// Adds an event, whole or not at all, and leaves it to nobody's buffer.
    pub(super) fn push(&mut self, event: &[u8]) -> Result<()> {
        let frame = record::framed(event);
        let written = self.file.write_all(&frame).and_then(|()| self.file.flush());
        match written {
            Ok(()) => self.length += frame.len() as u64,
            // Half a record must not stay. If that fails too, whoever opens the file next cuts it off.
            Err(_) => drop(self.file.set_len(self.length)),
        }
        written
    }
}

/// How many bytes of a file stay, and how many events behind its version.
fn kept(file: &File, keep: &Keep) -> Result<(u64, u64)> {
    let mut reader = BufReader::new(file);
    // Where each record ends, and when it was: the first is the version's.
    let (mut ends, mut times) = (Vec::new(), Vec::new());
    let mut end = 0;
    while let Some(event) = record::next(&mut reader)? {
        end += record::size_of(&event);
        ends.push(end);
        times.push(event::wall_time(&event).unwrap_or(f64::NEG_INFINITY));
    }
    let events = keep.count(times.into_iter().skip(1));
    let last = usize::try_from(events).unwrap_or(usize::MAX);
    Ok((ends.get(last).copied().unwrap_or(0), events))
}

/// What a first attempt of the same run left: two files side by side would be drawn as one.
fn remove_event_files(directory: &Path) -> Result<()> {
    let entries = fs::read_dir(directory)?.collect::<Result<Vec<_>>>()?;
    let old = entries.iter().filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    old.map(fs::DirEntry::path).try_for_each(fs::remove_file)
}

/// The name of a new one: TensorBoard reads those of a directory in the order of their names.
pub(super) fn name(wall_time: f64, host: &str) -> PathBuf {
    let plain = |letter: char| if letter.is_alphanumeric() || "-_.".contains(letter) { letter } else { '_' };
    let host: String = host.chars().map(plain).collect();
    format!("{PREFIX}{wall_time:010.0}.{host}.{}.0", std::process::id()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensorboard::event::Summary;

    fn scalar(step: u64) -> Vec<u8> {
        let mut summary = Summary::new(step as f64, step);
        summary.scalar("x", 1.0);
        summary.into_event()
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

    /// A file of three events in a directory below this one.
    fn three(directory: &Path) -> PathBuf {
        let path = directory.join("below").join(name(7.0, "a/b c"));
        let mut file = EventFile::open(&path, &Keep::Nothing, 7.0).expect("it is made");
        (1..=3).for_each(|step| file.push(&scalar(step)).expect("it is written"));
        path
    }

    #[test]
    fn a_file_begins_with_its_version_and_is_gone_on_with_where_it_is_said() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = three(directory.path());
        assert!(path.display().to_string().contains("events.out.tfevents.0000000007.a_b_c."), "{path:?}");
        let all = [event::version(7.0), scalar(1), scalar(2), scalar(3)];
        assert_eq!(contents(&path), all);
        EventFile::open(&path, &Keep::All, 8.0).expect("it opens");
        assert_eq!(contents(&path), all);
        EventFile::open(&path, &Keep::Until { before: 0, sent: 2, time: 2.0 }, 8.0).expect("it opens");
        assert_eq!(contents(&path), all[..3]);
        EventFile::open(&path, &Keep::Until { before: 0, sent: 0, time: 0.0 }, 8.0).expect("it opens");
        assert_eq!(contents(&path), all[..1]);
    }

    #[test]
    fn half_a_record_goes_wherever_it_was_cut() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = three(directory.path());
        let whole = fs::read(&path).expect("it is there");
        let last = record::framed(&scalar(3)).len();
        for missing in 1..last {
            fs::write(&path, &whole[..whole.len() - missing]).expect("it is written");
            let mut file = EventFile::open(&path, &Keep::All, 8.0).expect("it opens");
            file.push(&scalar(3)).expect("it is written");
            assert!(fs::read(&path).expect("it is there") == whole, "{missing}");
        }
    }

    #[test]
    fn a_run_that_begins_anew_removes_the_event_files_of_its_directory_and_nothing_else() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = three(directory.path());
        let beside = path.with_file_name("notes.txt");
        fs::write(&beside, "mine").expect("it is written");
        let anew = path.with_file_name(name(9.0, "host"));
        EventFile::open(&anew, &Keep::Nothing, 9.0).expect("it is made");
        assert_eq!(contents(&anew), [event::version(9.0)]);
        assert!(!path.exists() && beside.exists());
    }

    #[test]
    fn what_is_no_event_file_is_begun_anew() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join(name(7.0, "host"));
        fs::write(&path, "something else").expect("it is written");
        EventFile::open(&path, &Keep::All, 7.0).expect("it opens");
        assert_eq!(contents(&path), [event::version(7.0)]);
    }
}
