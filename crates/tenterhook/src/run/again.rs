//! Going on in a run directory that exists: its files are cut back to the checkpoint, so that nothing stands there
//! twice, and what really happened stays.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Result};
use std::path::{Path, PathBuf};

use tenterhook_core::{BoxError, Stage};
use tenterhook_files::{
    FilePosition, RelPath, ResumableFile, SMALL_FILE, TextLines, cannot, open_own, read_bounded,
    write_durably,
};

use super::lock::RunLock;
use super::open::{EVENTS, HISTOGRAMS, METRICS, Open, UPDATES, below, note_removal};
use super::reading::{Happenings, ReadError, Run, read_record};
use super::record::{RunPart, RunRecord, RunStatus};
use super::{Beginning, Happening, Resumption, RunDirectoryPlan};
use crate::checkpoint::{LATEST, is_unreadable};

/// Refuses to resume a run whose files cannot be read or cut, and from a checkpoint of another run. Writes nothing.
pub(super) fn admit(lock: &RunLock, resumed_from: Option<&Path>) -> std::result::Result<(), BoxError> {
    let directory = lock.directory();
    for path in [EVENTS, METRICS, HISTOGRAMS, UPDATES].map(|file| directory.join(file)) {
        match open_own(&path, OpenOptions::new().read(true).write(true)) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            opened => drop(opened.map_err(cannot("cut", &path))?),
        }
    }
    let happened = Happenings::read(&directory.join(EVENTS))?;
    if let Some(from) = resumed_from.filter(|from| !belongs(directory, &happened, from)) {
        return Err(format!(
            "checkpoint {} is not one of run {}; resume the run it belongs to, or start a new one from it",
            from.display(),
            directory.file_name().unwrap_or_default().display()
        )
        .into());
    }
    match Run::read(directory) {
        // It is written anew.
        Ok(_) | Err(ReadError::Damaged { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Opens a directory that an earlier part of the run has left. Everything here may be killed at any moment: the next
/// start does the same again.
pub(super) fn go_on(
    plan: &RunDirectoryPlan,
    mut lock: RunLock,
    beginning: &Beginning<'_>,
) -> std::result::Result<(Open, Resumption), BoxError> {
    admit(&lock, beginning.resumed_from)?;
    let path = &lock.directory().to_owned();
    let mut lacks = Vec::new();
    let happened = Happenings::read(&path.join(EVENTS))?;
    let record_path = path.join("run.json");
    // Before anything is cut: how far it had come may be known from its metrics alone.
    let earlier = match Run::read(path) {
        Err(ReadError::Damaged { .. }) => {
            lacks.push(format!("{} was damaged, and is written anew", record_path.display()));
            None
        }
        read => Some(read?.record),
    };
    let resumed = resumption(path, beginning, earlier.as_ref());
    // A checkpoint of an older format does not know how long they were, and there always is one.
    let unknown = beginning.resumed_from.is_some() && beginning.marks.is_empty();
    if unknown {
        lacks.push("the checkpoint does not say how long the files of the run were, so lines may stand in them twice".into());
    }
    for file in [METRICS, HISTOGRAMS, UPDATES].into_iter().filter(|_| !unknown) {
        let known = beginning.marks.iter().find(|position| position.file.as_str() == file);
        let position = match known.filter(|_| beginning.resumed_from.is_some()) {
            Some(position) => position.clone(),
            None => FilePosition { file: RelPath::new(file)?, length: 0 },
        };
        lacks.extend(cut(&lock, &position).map_err(cannot("cut", &path.join(file)))?);
    }
    let unreadable = unreadable(&mut lock, &happened);
    let earlier_part_ended = earlier.as_ref().is_some_and(RunRecord::training_ended);
    let parts = earlier.as_ref().map_or(0, |earlier| earlier.parts.len());
    let record = RunRecord::again(plan, beginning, earlier, path);
    // First the signatures of both configurations: a process that is killed in between leaves one of them.
    record.write(&record_path).map_err(cannot("write", &record_path))?;
    replace_config(&lock, &plan.config, parts.max(1))?;
    let mut open = Open::of(lock, record, beginning.stage)?;
    open.removed = removed(open.path(), &happened);
    open.begun.lacks.extend(lacks);
    open.begun.unreadable_checkpoints = unreadable;
    open.begun.earlier_part_ended = earlier_part_ended;
    Ok((open, resumed))
}

/// Opens the directory of a run whose training has ended and whose test was cut off, for that test alone. `None` where the run
/// is not one of those; its lock is given back.
pub(super) fn test_again(
    plan: &RunDirectoryPlan,
    lock: RunLock,
    beginning: &Beginning<'_>,
) -> std::result::Result<std::result::Result<Open, RunLock>, BoxError> {
    let mut record = read_record(&lock.directory().join("run.json"))?;
    if record.trained.is_none() {
        return Ok(Err(lock));
    }
    let other = record.identity.other_data(beginning.identity);
    if !other.is_empty() {
        let lines: Vec<_> = other.iter().map(|difference| format!("\n  {difference}")).collect();
        return Err(format!(
            "the data is not that of the run:{}\nrestore it, or test the weights alone with `test --weights`",
            lines.concat()
        )
        .into());
    }
    cut_test(&lock).map_err(cannot("cut", &lock.directory().join(METRICS)))?;
    record.status = RunStatus::Running;
    record.parts.extend(
        RunRecord::new(plan, beginning).parts.into_iter().map(|part| RunPart { step: record.steps, ..part }),
    );
    let open = Open::of(lock, record, Stage::Fit)?;
    open.write_record()?;
    Ok(Ok(open))
}

/// Takes the lines of a test that was cut off from the end of the metrics.
fn cut_test(lock: &RunLock) -> Result<()> {
    let mut lines = ResumableFile::<TextLines>::open(&lock.directory().join(METRICS))?;
    while let Some((start, line)) = lines.last_record()? {
        let line: std::result::Result<serde_json::Value, _> = serde_json::from_slice(&line);
        if !line.is_ok_and(|line| line["stage"] == "test") {
            break;
        }
        lines.truncate(start)?;
    }
    Ok(())
}

/// Where the run continues, and how much of it is trained again.
pub(super) fn resumption(
    directory: &Path,
    beginning: &Beginning<'_>,
    earlier: Option<&RunRecord>,
) -> Resumption {
    let (epochs, steps) = (beginning.progress.epochs_done, beginning.progress.step);
    let is_newest = beginning.resumed_from.is_some_and(|from| {
        let newest = directory.join("checkpoints").join(LATEST).canonicalize();
        newest.is_ok_and(|newest| from.canonicalize().is_ok_and(|from| from == newest))
    });
    Resumption {
        checkpoint: beginning.resumed_from.map(|from| below(directory, from)),
        is_newest,
        epochs,
        steps,
        epochs_again: earlier.map_or(0, |earlier| earlier.epochs.saturating_sub(epochs)),
        steps_again: earlier.map_or(0, |earlier| earlier.steps.saturating_sub(steps)),
    }
}

/// Whether a checkpoint was saved by this run: it lies there, or the run has told about it.
fn belongs(directory: &Path, happened: &Happenings, checkpoint: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let of_it = real(checkpoint);
    let told = || {
        happened.entries.iter().any(|entry| match &entry.what {
            Happening::Checkpoint { path, .. } => real(&directory.join(path)) == of_it,
            _ => false,
        })
    };
    checkpoint.starts_with(directory) || of_it.starts_with(real(directory)) || told()
}

/// The checkpoints that cannot be read, if the resume skips them: those that were found in the directory, and those that the
/// run has saved elsewhere.
fn unreadable(lock: &mut RunLock, happened: &Happenings) -> Vec<PathBuf> {
    let Some(found) = lock.take_unreadable() else { return Vec::new() };
    let saved: BTreeSet<_> = happened
        .entries
        .iter()
        .filter_map(|entry| match &entry.what {
            Happening::Checkpoint { path, .. } => Some(lock.directory().join(path)),
            _ => None,
        })
        .collect();
    found.into_iter().chain(saved.into_iter().filter(|path| is_unreadable(path))).collect()
}

/// The checkpoints that a run has removed, and not saved again since then.
pub(super) fn removed(directory: &Path, happened: &Happenings) -> Vec<PathBuf> {
    let mut removed = Vec::new();
    for entry in &happened.entries {
        note_removal(&mut removed, directory, &entry.what);
    }
    removed
}

/// Another configuration takes the place of the one before it, which stays under the number of its part.
fn replace_config(lock: &RunLock, config: &str, part: usize) -> std::result::Result<(), BoxError> {
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

/// Cuts a file of the run to its position at the checkpoint, and says what is missing before it. A file that is cut to
/// nothing is removed, as it did not exist before its first line.
fn cut(lock: &RunLock, position: &FilePosition) -> Result<Option<String>> {
    let path = &position.file.below(lock.directory());
    let file = match open_own(path, OpenOptions::new().read(true).write(true)) {
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
    fn a_file_is_cut_to_whole_lines_and_what_is_missing_is_told() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("lines");
        let text = || fs::read_to_string(&path).unwrap_or_else(|_| "none".into());
        let lock = RunLock::of(dir.path().to_owned()).expect("it is locked");
        let cut_to = |length| {
            let position = FilePosition { file: RelPath::new("lines").expect("a name"), length };
            cut(&lock, &position).expect("it is cut").is_some()
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
        let lock = RunLock::of(dir.path().to_owned()).expect("it is locked");
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
            cut_test(&lock).expect("it is cut");
            assert_eq!(fs::read_to_string(&path).expect("it is there"), left);
        }
        // Of an endless line only the end is read.
        fs::write(&path, fit).expect("it is written");
        fs::File::options()
            .write(true)
            .open(&path)
            .and_then(|file| file.set_len(SMALL_FILE + 1))
            .expect("it grows");
        cut_test(&lock).expect("it is cut");
        assert_eq!(fs::read_to_string(&path).expect("it is there"), fit);
    }
}
