//! Reopening a run directory to resume the run: its files are truncated to the checkpoint, so that no line is
//! duplicated; only the journal keeps everything.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use tenterhook_core::{BoxError, Stage};
use tenterhook_files::{
    FilePosition, RelPath, ResumableFile, SMALL_FILE, TextLines, cannot, open_no_follow, read_bounded,
    write_durably,
};

use super::files::{EVENTS, HISTOGRAMS, METRICS, RunFiles, UPDATES, note_removal, relative_to};
use super::lock::RunLock;
use super::reading::{EventLog, ReadError, Run, read_record};
use super::record::{RunPart, RunRecord, RunStatus};
use super::{JournalEvent, Resumption, RunDirectoryOptions, RunStart};
use crate::checkpoint::{LATEST, is_unreadable};

/// Refuses a resume if the run's files cannot be read or truncated, or if the checkpoint is of another run. Writes
/// nothing.
pub(super) fn validate_resume(lock: &RunLock, resumed_from: Option<&Path>) -> Result<(), BoxError> {
    let directory = lock.directory();
    for path in [EVENTS, METRICS, HISTOGRAMS, UPDATES].map(|file| directory.join(file)) {
        match open_no_follow(&path, OpenOptions::new().read(true).write(true)) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            opened => drop(opened.map_err(cannot("cut", &path))?),
        }
    }
    let event_log = EventLog::read(&directory.join(EVENTS))?;
    if let Some(from) = resumed_from.filter(|from| !is_of_run(directory, &event_log, from)) {
        return Err(format!(
            "checkpoint {} is not one of run {}; resume the run it belongs to, or start a new one from it",
            from.display(),
            directory.file_name().unwrap_or_default().display()
        )
        .into());
    }
    match Run::read(directory) {
        // A damaged record is written again.
        Ok(_) | Err(ReadError::Damaged { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Reopens the directory of a run. The process may be killed at any point of it: the next resume repeats it.
pub(super) fn reopen(
    options: &RunDirectoryOptions,
    mut lock: RunLock,
    start: &RunStart<'_>,
) -> Result<(RunFiles, Resumption), BoxError> {
    validate_resume(&lock, start.resumed_from)?;
    let path = &lock.directory().to_owned();
    let mut missing = Vec::new();
    let event_log = EventLog::read(&path.join(EVENTS))?;
    let record_path = path.join("run.json");
    // Read before anything is truncated, as the progress of a killed run is known from its metrics alone.
    let earlier = match Run::read(path) {
        Err(ReadError::Damaged { .. }) => {
            missing.push(format!("{} was damaged and is written again", record_path.display()));
            None
        }
        read => Some(read?.record),
    };
    let resumed = resumption(path, start, earlier.as_ref());
    // A checkpoint of a run with a directory has at least one position, unless its format is older.
    if start.resumed_from.is_some() && start.file_positions.is_empty() {
        missing.push(
            "the checkpoint does not say how long the files of the run were, so lines may appear in them twice".into(),
        );
    } else {
        for file in [METRICS, HISTOGRAMS, UPDATES] {
            let mut known = start.file_positions.iter().filter(|_| start.resumed_from.is_some());
            let position = match known.find(|position| position.file.as_str() == file) {
                Some(position) => position.clone(),
                None => FilePosition { file: RelPath::new(file)?, length: 0 },
            };
            missing.extend(truncate(&lock, &position).map_err(cannot("cut", &path.join(file)))?);
        }
    }
    let unreadable_checkpoints = unreadable_checkpoints(&mut lock, &event_log);
    let earlier_part_ended = earlier.as_ref().is_some_and(RunRecord::training_ended);
    let parts = earlier.as_ref().map_or(0, |earlier| earlier.parts.len());
    let record = RunRecord::resumed(options, start, earlier, path);
    // The record, with the signatures of both configurations, comes before the configuration, so the
    // configuration is signed even if the process is killed in between.
    record.write(&record_path).map_err(cannot("write", &record_path))?;
    replace_config(&lock, &options.config, parts.max(1))?;
    let mut files = RunFiles::open(lock, record, start.stage)?;
    files.removed = removed_checkpoints(files.path(), &event_log);
    files.start_report.missing.extend(missing);
    files.start_report.unreadable_checkpoints = unreadable_checkpoints;
    files.start_report.earlier_part_ended = earlier_part_ended;
    Ok((files, resumed))
}

/// Whether the training of this run has ended and only its test is left to do.
pub(super) fn is_untested(lock: &RunLock) -> Result<bool, ReadError> {
    Ok(read_record(&lock.directory().join("run.json"))?.trained.is_some())
}

/// Reopens the directory of a run only for its test, which was interrupted.
pub(super) fn reopen_for_test(
    options: &RunDirectoryOptions,
    lock: RunLock,
    start: &RunStart<'_>,
) -> Result<RunFiles, BoxError> {
    let mut record = read_record(&lock.directory().join("run.json"))?;
    let changes = record.identity.data_changes(start.identity);
    if !changes.is_empty() {
        let lines: Vec<_> = changes.iter().map(|change| format!("\n  {change}")).collect();
        return Err(format!(
            "the data differs from that of the run:{}\nrestore it, or test the weights alone with `test --weights`",
            lines.concat()
        )
        .into());
    }
    truncate_test(&lock).map_err(cannot("cut", &lock.directory().join(METRICS)))?;
    record.status = RunStatus::Running;
    let parts = RunRecord::new(options, start).parts;
    record.parts.extend(parts.into_iter().map(|part| RunPart { step: record.steps, ..part }));
    let files = RunFiles::open(lock, record, Stage::Fit)?;
    files.write_record()?;
    Ok(files)
}

/// Removes the lines of an interrupted test from the end of the metrics.
fn truncate_test(lock: &RunLock) -> io::Result<()> {
    let mut lines = ResumableFile::<TextLines>::open(&lock.directory().join(METRICS))?;
    while let Some((start, line)) = lines.last_record()? {
        let line: Result<serde_json::Value, _> = serde_json::from_slice(&line);
        if !line.is_ok_and(|line| line["stage"] == "test") {
            break;
        }
        lines.truncate(start)?;
    }
    Ok(())
}

/// Where the run continues, and how much of it is trained again.
pub(super) fn resumption(directory: &Path, start: &RunStart<'_>, earlier: Option<&RunRecord>) -> Resumption {
    let (epochs, steps) = (start.progress.epochs_done, start.progress.step);
    let is_newest = start.resumed_from.is_some_and(|from| {
        let newest = directory.join("checkpoints").join(LATEST).canonicalize();
        newest.is_ok_and(|newest| from.canonicalize().is_ok_and(|from| from == newest))
    });
    Resumption {
        checkpoint: start.resumed_from.map(|from| relative_to(directory, from)),
        is_newest,
        epochs,
        steps,
        epochs_again: earlier.map_or(0, |earlier| earlier.epochs.saturating_sub(epochs)),
        steps_again: earlier.map_or(0, |earlier| earlier.steps.saturating_sub(steps)),
    }
}

/// The checkpoints that the run has saved, according to its journal.
fn saved_checkpoints<'a>(directory: &'a Path, event_log: &'a EventLog) -> impl Iterator<Item = PathBuf> + 'a {
    event_log.entries.iter().filter_map(|entry| match &entry.what {
        JournalEvent::Checkpoint { path, .. } => Some(directory.join(path)),
        _ => None,
    })
}

/// Whether a checkpoint belongs to this run: it is in the directory, or the journal says that the run has saved it.
fn is_of_run(directory: &Path, event_log: &EventLog, checkpoint: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let real_checkpoint = real(checkpoint);
    checkpoint.starts_with(directory)
        || real_checkpoint.starts_with(real(directory))
        || saved_checkpoints(directory, event_log).any(|path| real(&path) == real_checkpoint)
}

/// The unreadable checkpoints, if the resume skips them: those that were found in the directory, and those that the
/// run has saved elsewhere.
fn unreadable_checkpoints(lock: &mut RunLock, event_log: &EventLog) -> Vec<PathBuf> {
    let Some(found) = lock.take_unreadable() else { return Vec::new() };
    let saved: BTreeSet<_> = saved_checkpoints(lock.directory(), event_log).collect();
    found.into_iter().chain(saved.into_iter().filter(|path| is_unreadable(path))).collect()
}

/// The checkpoints that a run has removed and not saved again.
pub(super) fn removed_checkpoints(directory: &Path, event_log: &EventLog) -> Vec<PathBuf> {
    let mut removed = Vec::new();
    for entry in &event_log.entries {
        note_removal(&mut removed, directory, &entry.what);
    }
    removed
}

/// Writes another configuration to `config.toml`. The earlier one is kept under the number of its part.
fn replace_config(lock: &RunLock, config: &str, part: usize) -> Result<(), BoxError> {
    let directory = lock.directory();
    let path = directory.join("config.toml");
    let before = match read_bounded(&path, SMALL_FILE) {
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        read => read.map_err(cannot("read", &path))?,
    };
    if config.is_empty() || before == config.as_bytes() {
        return Ok(());
    }
    if !before.is_empty() {
        let kept = directory.join(format!("config.{part}.toml"));
        write_durably(&kept, |file| file.write_all(&before)).map_err(cannot("write", &kept))?;
    }
    Ok(write_durably(&path, |file| file.write_all(config.as_bytes())).map_err(cannot("write", &path))?)
}

/// Truncates a file to its position at the checkpoint, and returns a message if lines before it are missing.
/// An empty file is removed, as it did not exist before its first line.
fn truncate(lock: &RunLock, position: &FilePosition) -> io::Result<Option<String>> {
    let path = &position.file.below(lock.directory());
    let file = match open_no_follow(path, OpenOptions::new().read(true).write(true)) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(position.missing(path, 0)),
        opened => opened?,
    };
    let mut lines = ResumableFile::<TextLines>::of(path, file)?;
    let end = lines.end_within(position.length)?;
    lines.truncate(end)?;
    if end == 0 {
        fs::remove_file(path)?;
    }
    Ok(position.missing(path, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_truncated_to_whole_lines_and_missing_ones_are_reported() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("lines");
        let text = || fs::read_to_string(&path).unwrap_or_else(|_| "none".into());
        let lock = RunLock::lock(dir.path().to_owned()).expect("it is locked");
        let cut_to = |length| {
            let position = FilePosition { file: RelPath::new("lines").expect("a name"), length };
            truncate(&lock, &position).expect("it is cut").is_some()
        };
        fs::write(&path, "one\ntwo\nthree\nfo").expect("it is written");
        assert_eq!((cut_to(8), text().as_str()), (false, "one\ntwo\n"));
        assert_eq!((cut_to(6), text().as_str()), (true, "one\n"), "no line ends there");
        assert_eq!((cut_to(9), text().as_str()), (true, "one\n"), "it is shorter");
        assert_eq!((cut_to(0), text().as_str()), (false, "none"));
        assert_eq!((cut_to(0), cut_to(1)), (false, true), "there is none");
    }

    #[test]
    fn the_lines_of_an_unfinished_test_are_removed_from_the_end() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join(METRICS);
        let lock = RunLock::lock(dir.path().to_owned()).expect("it is locked");
        let (fit, test) = ("{\"stage\":\"fit\"}\n", "{\"stage\":\"test\"}\n");
        let long = format!("{{\"stage\":\"test\",\"x\":\"{}\"}}\n", "x".repeat(200_000));
        for (text, left) in [
            (String::new(), ""),
            (fit.to_owned(), fit),
            (test.repeat(2), ""),
            ([fit, test, &long, test, "{\"sta"].concat(), fit),
            (["not JSON\n", test].concat(), "not JSON\n"),
        ] {
            fs::write(&path, text).expect("it is written");
            truncate_test(&lock).expect("it is cut");
            assert_eq!(fs::read_to_string(&path).expect("it is there"), left);
        }
        // Only the end of an endless line is read.
        fs::write(&path, fit).expect("it is written");
        fs::File::options()
            .write(true)
            .open(&path)
            .and_then(|file| file.set_len(SMALL_FILE + 1))
            .expect("it grows");
        truncate_test(&lock).expect("it is cut");
        assert_eq!(fs::read_to_string(&path).expect("it is there"), fit);
    }
}
