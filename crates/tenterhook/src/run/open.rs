//! A run directory that exists and is written to, and how it is made.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::Serialize;
use tenterhook_core::{BoxError, Stage};
use tenterhook_files::{
    FileError, FilePosition, RelPath, cannot, create_directories, sync_parent, write_durably,
};

use super::lines::Lines;
use super::lock::RunLock;
use super::record::RunRecord;
use super::starting::announce;
use super::{Begun, Entry, Happening, RunDirectoryPlan};

/// The files that a resumed run cuts back.
pub(super) const METRICS: &str = "metrics.jsonl";
pub(super) const HISTOGRAMS: &str = "histograms.jsonl";
pub(super) const UPDATES: &str = "updates.jsonl";
/// What really happened; it is never cut.
pub(crate) const EVENTS: &str = "events.jsonl";

/// A directory that exists.
pub(super) struct Open {
    pub(super) record: RunRecord,
    pub(super) files: Files,
    /// The call that it was made for.
    pub(super) made_for: Stage,
    /// The checkpoints that were removed, and not saved again since then.
    pub(super) removed: Vec<PathBuf>,
    /// What is known of the run since it was opened, until that is asked for.
    pub(super) begun: Begun,
    /// Last, so that it is released when everything is written.
    lock: RunLock,
}

/// The files that lines are appended to.
pub(super) struct Files {
    pub(super) metrics: Lines,
    events: Lines,
    pub(super) histograms: Later,
    pub(super) updates: Later,
}

impl Files {
    fn open(directory: &Path) -> Result<Files, FileError> {
        let lines = |file: &str| {
            let path = directory.join(file);
            Lines::append_to(&path).map_err(cannot("open", &path))
        };
        let [histograms, updates] = [HISTOGRAMS, UPDATES].map(|file| Later::at(directory.join(file)));
        Ok(Files { metrics: lines(METRICS)?, events: lines(EVENTS)?, histograms, updates })
    }

    pub(super) fn flush(&mut self) -> std::io::Result<()> {
        let later = self.histograms.flush().and(self.updates.flush());
        self.metrics.flush().and(self.events.flush()).and(later)
    }

    /// Makes what was written durable.
    pub(super) fn sync(&self) -> std::io::Result<()> {
        let later = [&self.histograms, &self.updates].into_iter().filter_map(|later| later.lines.as_ref());
        [&self.metrics, &self.events].into_iter().chain(later).try_for_each(Lines::sync)
    }

    pub(super) fn lost(&self) -> u64 {
        self.metrics.lost() + self.events.lost() + self.histograms.lost() + self.updates.lost()
    }

    /// The positions of the files that a resumed run cuts back. A file that does not exist yet has none.
    pub(super) fn positions(&self) -> Result<Vec<FilePosition>, BoxError> {
        let later = [(HISTOGRAMS, self.histograms.written()?), (UPDATES, self.updates.written()?)];
        let later = later.into_iter().filter_map(|(file, length)| Some((file, length?)));
        let all = [(METRICS, self.metrics.written())].into_iter().chain(later);
        all.map(|(file, length)| Ok(FilePosition { file: RelPath::new(file)?, length })).collect()
    }
}

impl Open {
    /// Opens the files of a locked directory.
    pub(super) fn of(mut lock: RunLock, record: RunRecord, made_for: Stage) -> Result<Open, BoxError> {
        let files = Files::open(lock.directory())?;
        // Without it, others are only told less.
        let _ = lock.write_holder(&record.command);
        let begun = Begun { lacks: lock.take_unlocked().into_iter().collect(), ..Begun::default() };
        Ok(Open { record, files, made_for, removed: Vec::new(), begun, lock })
    }

    /// The directory.
    pub(super) fn path(&self) -> &Path {
        self.lock.directory()
    }

    pub(super) fn write_record(&self) -> Result<(), FileError> {
        let path = self.path().join("run.json");
        self.record.write(&path).map_err(cannot("write", &path))
    }

    pub(super) fn push(&mut self, mut entry: Entry) -> Result<(), BoxError> {
        note_removal(&mut self.removed, self.lock.directory(), &entry.what);
        match &mut entry.what {
            Happening::Checkpoint { path, .. }
            | Happening::CheckpointFailed { path, .. }
            | Happening::CheckpointRemoved { path }
            | Happening::Start { resumed_from: Some(path), .. } => *path = below(self.lock.directory(), path),
            _ => {}
        }
        self.files.events.push(&entry, entry.time)?;
        // A hook may decide something at every step; everything else is rare, and may be the last there is.
        if !matches!(entry.what, Happening::Decision { .. }) {
            self.files.events.flush()?;
        }
        Ok(())
    }
}

/// A test that did not begin has failed, so that a resume makes up for it.
impl Drop for Open {
    fn drop(&mut self) {
        if self.record.note_missing_test() {
            // An error cannot be reported from here. The file then says that the run was killed in its test.
            let _ = self.write_record();
        }
    }
}

/// A path as it stands in the files of a run: below its directory, if it is there.
pub(super) fn below(directory: &Path, path: &Path) -> PathBuf {
    path.strip_prefix(directory).unwrap_or(path).to_owned()
}

/// Keeps the list of the checkpoints that were removed, as paths that begin with the directory unless they are
/// elsewhere.
pub(super) fn note_removal(removed: &mut Vec<PathBuf>, directory: &Path, what: &Happening) {
    match what {
        // It is there again.
        Happening::Checkpoint { path, .. } => {
            let path = directory.join(below(directory, path));
            removed.retain(|gone| *gone != path);
        }
        Happening::CheckpointRemoved { path } => {
            let path = directory.join(below(directory, path));
            if !removed.contains(&path) {
                removed.push(path);
            }
        }
        _ => {}
    }
}

/// A file that is made when its first line is written.
pub(super) struct Later {
    path: PathBuf,
    lines: Option<Lines>,
}

impl Later {
    fn at(path: PathBuf) -> Later {
        Later { path, lines: None }
    }

    pub(super) fn push(&mut self, line: &impl Serialize, time: f64) -> Result<(), BoxError> {
        let lines = match &mut self.lines {
            Some(lines) => lines,
            unmade => unmade.insert(Lines::append_to(&self.path).map_err(cannot("open", &self.path))?),
        };
        Ok(lines.push(line, time)?)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.lines.as_mut().map_or(Ok(()), Lines::flush)
    }

    fn lost(&self) -> u64 {
        self.lines.as_ref().map_or(0, Lines::lost)
    }

    /// How long the file is, if there is one: an earlier part of the run may have made it.
    fn written(&self) -> Result<Option<u64>, FileError> {
        if let Some(lines) = &self.lines {
            return Ok(Some(lines.written()));
        }
        match fs::metadata(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            found => Ok(Some(found.map_err(cannot("read", &self.path))?.len())),
        }
    }
}

/// Makes the directory with its first files, whole or not at all.
pub(super) fn create(
    plan: &RunDirectoryPlan,
    id: &str,
    record: RunRecord,
    stage: Stage,
) -> Result<Open, BoxError> {
    let runs = &plan.runs_dir;
    // What cannot be made is told about where the user named it, not under a temporary name.
    let no_place = |error: std::io::Error| {
        format!(
            "cannot make a run directory in {}: {error}; make it writable, or choose another `runs_dir`",
            runs.display()
        )
    };
    create_directories(runs).map_err(no_place)?;
    let (path, unfinished) = (runs.join(id), runs.join(format!(".{id}.unfinished")));
    // From here on it is ours to remove.
    fs::create_dir(&unfinished).map_err(no_place)?;
    let made = || -> Result<RunLock, BoxError> {
        // Locked before anybody can see it.
        let mut lock = RunLock::of(unfinished.clone())?;
        fs::create_dir(unfinished.join("checkpoints")).map_err(cannot("make", &unfinished))?;
        for (file, text) in [("config.toml", plan.config.as_bytes()), (METRICS, b""), (EVENTS, b"")] {
            write_durably(&unfinished.join(file), |file| file.write_all(text))
                .map_err(cannot("write", &path.join(file)))?;
        }
        record.write(&unfinished.join("run.json")).map_err(cannot("write", &path.join("run.json")))?;
        let durable = || {
            File::open(&unfinished)?.sync_all()?;
            // Where it cannot be made, that is told when `latest` is to be pointed at the run.
            let _ = announce(runs, id);
            fs::rename(&unfinished, &path)?;
            sync_parent(&path)
        };
        durable().map_err(cannot("make", &path))?;
        lock.moved_to(path.clone());
        Ok(lock)
    };
    let lock = made().inspect_err(|_| {
        // It is the first error that matters. A link to a run that does not exist goes with the next start.
        let _ = fs::remove_dir_all(&unfinished);
    })?;
    Open::of(lock, record, stage).inspect_err(|_| {
        // Nobody would write an end to it.
        let _ = fs::remove_dir_all(&path);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_no_mark_only_if_it_does_not_exist() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join(UPDATES);
        assert_eq!(Later::at(path.clone()).written().expect("it is known"), None);
        fs::write(&path, "1\n").expect("it is written");
        assert_eq!(Later::at(path.clone()).written().expect("it is known"), Some(2));
        // Its status cannot be read.
        let error = Later::at(path.join(UPDATES)).written().expect_err("not a directory").to_string();
        assert!(error.contains("cannot read"), "{error}");
    }
}
