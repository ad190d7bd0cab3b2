//! The files of a run directory while a run writes to them, and creating the directory.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use tenterhook_core::{BoxError, Stage};
use tenterhook_files::{
    FileError, FilePosition, RelPath, cannot, create_directories, sync_parent, write_durably,
};

use super::jsonl::JsonlWriter;
use super::lock::RunLock;
use super::record::RunRecord;
use super::startup::announce;
use super::{JournalEntry, JournalEvent, RunDirectoryOptions, StartReport};

/// The files that a resumed run truncates.
pub(super) const METRICS: &str = "metrics.jsonl";
pub(super) const HISTOGRAMS: &str = "histograms.jsonl";
pub(super) const UPDATES: &str = "updates.jsonl";
/// The journal, which is never truncated.
pub(crate) const EVENTS: &str = "events.jsonl";

/// The files of an existing run directory, open for writing.
pub(super) struct RunFiles {
    pub(super) record: RunRecord,
    pub(super) lines: LineFiles,
    /// The call that created the directory or resumed the run.
    pub(super) main_stage: Stage,
    /// The checkpoints that were removed and not saved again.
    pub(super) removed: Vec<PathBuf>,
    /// The report for the loop when the run starts.
    pub(super) start_report: StartReport,
    /// The last field, so that the lock is released when everything is written.
    lock: RunLock,
}

/// The files of JSON lines.
pub(super) struct LineFiles {
    pub(super) metrics: JsonlWriter,
    events: JsonlWriter,
    pub(super) histograms: JsonlWriter,
    pub(super) updates: JsonlWriter,
}

impl LineFiles {
    fn open(directory: &Path) -> Result<LineFiles, FileError> {
        Ok(LineFiles {
            metrics: JsonlWriter::open(directory.join(METRICS))?,
            events: JsonlWriter::open(directory.join(EVENTS))?,
            histograms: JsonlWriter::lazy(directory.join(HISTOGRAMS)),
            updates: JsonlWriter::lazy(directory.join(UPDATES)),
        })
    }

    fn all(&self) -> [&JsonlWriter; 4] {
        [&self.metrics, &self.events, &self.histograms, &self.updates]
    }

    /// Flushes all files, and returns the first error.
    pub(super) fn flush(&mut self) -> Result<(), FileError> {
        let all = [&mut self.metrics, &mut self.events, &mut self.histograms, &mut self.updates];
        all.into_iter().map(JsonlWriter::flush).fold(Ok(()), Result::and)
    }

    pub(super) fn sync(&self) -> Result<(), FileError> {
        self.all().into_iter().try_for_each(JsonlWriter::sync)
    }

    /// The number of lines that could not be written.
    pub(super) fn lost(&self) -> u64 {
        self.all().into_iter().map(JsonlWriter::lost).sum()
    }

    /// The positions of the files that a resumed run truncates. A file that does not exist has none.
    pub(super) fn positions(&self) -> Result<Vec<FilePosition>, BoxError> {
        let mut positions = Vec::new();
        for (file, lines) in
            [(METRICS, &self.metrics), (HISTOGRAMS, &self.histograms), (UPDATES, &self.updates)]
        {
            if let Some(length) = lines.length()? {
                positions.push(FilePosition { file: RelPath::new(file)?, length });
            }
        }
        Ok(positions)
    }
}

impl RunFiles {
    /// Opens the files of a locked directory.
    pub(super) fn open(
        mut lock: RunLock,
        record: RunRecord,
        main_stage: Stage,
    ) -> Result<RunFiles, BoxError> {
        let lines = LineFiles::open(lock.directory())?;
        // Without it, a refused process cannot tell which command holds the lock.
        let _ = lock.write_holder(&record.command);
        let start_report =
            StartReport { missing: lock.take_lock_error().into_iter().collect(), ..StartReport::default() };
        Ok(RunFiles { record, lines, main_stage, removed: Vec::new(), start_report, lock })
    }

    /// The directory.
    pub(super) fn path(&self) -> &Path {
        self.lock.directory()
    }

    pub(super) fn write_record(&self) -> Result<(), FileError> {
        let path = self.path().join("run.json");
        self.record.write(&path).map_err(cannot("write", &path))
    }

    pub(super) fn push(&mut self, mut entry: JournalEntry) -> Result<(), BoxError> {
        note_removal(&mut self.removed, self.lock.directory(), &entry.what);
        match &mut entry.what {
            JournalEvent::Checkpoint { path, .. }
            | JournalEvent::CheckpointFailed { path, .. }
            | JournalEvent::CheckpointRemoved { path }
            | JournalEvent::Start { resumed_from: Some(path), .. } => {
                *path = relative_to(self.lock.directory(), path);
            }
            _ => {}
        }
        self.lines.events.push(&entry, entry.time)?;
        // Decisions may come at every step; everything else is rare, and may be the last event before a crash.
        if !matches!(entry.what, JournalEvent::Decision { .. }) {
            self.lines.events.flush()?;
        }
        Ok(())
    }
}

/// A test that did not begin counts as failed, so that a resume runs it.
impl Drop for RunFiles {
    fn drop(&mut self) {
        if self.record.note_missing_test() {
            // An error cannot be reported from here. The file then says that the run was killed in its test.
            let _ = self.write_record();
        }
    }
}

/// A path as the files of a run store it: relative to the run directory if it is below it.
pub(super) fn relative_to(directory: &Path, path: &Path) -> PathBuf {
    path.strip_prefix(directory).unwrap_or(path).to_owned()
}

/// Updates the list of removed checkpoints. Its paths begin with the directory unless they are elsewhere.
pub(super) fn note_removal(removed: &mut Vec<PathBuf>, directory: &Path, what: &JournalEvent) {
    match what {
        // It was saved again.
        JournalEvent::Checkpoint { path, .. } => {
            let path = directory.join(relative_to(directory, path));
            removed.retain(|gone| *gone != path);
        }
        JournalEvent::CheckpointRemoved { path } => {
            let path = directory.join(relative_to(directory, path));
            if !removed.contains(&path) {
                removed.push(path);
            }
        }
        _ => {}
    }
}

/// Creates a run directory with its first files, atomically.
pub(super) fn create(
    options: &RunDirectoryOptions,
    id: &str,
    record: RunRecord,
    stage: Stage,
) -> Result<RunFiles, BoxError> {
    let runs = &options.runs_dir;
    // The error names the directory that the user named, and not a temporary one.
    let not_created = |error: std::io::Error| {
        format!(
            "cannot make a run directory in {}: {error}; make it writable, or choose another `runs_dir`",
            runs.display()
        )
    };
    create_directories(runs).map_err(not_created)?;
    let (path, unfinished) = (runs.join(id), runs.join(format!(".{id}.unfinished")));
    // Once it is created here, it may be removed after an error.
    fs::create_dir(&unfinished).map_err(not_created)?;
    let made = || -> Result<RunLock, BoxError> {
        // Locked before it appears under its name.
        let mut lock = RunLock::lock(unfinished.clone())?;
        fs::create_dir(unfinished.join("checkpoints")).map_err(cannot("make", &unfinished))?;
        for (file, text) in [("config.toml", options.config.as_bytes()), (METRICS, b""), (EVENTS, b"")] {
            write_durably(&unfinished.join(file), |file| file.write_all(text))
                .map_err(cannot("write", &path.join(file)))?;
        }
        record.write(&unfinished.join("run.json")).map_err(cannot("write", &path.join("run.json")))?;
        let durable = || {
            File::open(&unfinished)?.sync_all()?;
            // An error is reported when `latest` is set.
            let _ = announce(runs, id);
            fs::rename(&unfinished, &path)?;
            sync_parent(&path)
        };
        durable().map_err(cannot("make", &path))?;
        lock.set_directory(path.clone());
        Ok(lock)
    };
    let lock = made().inspect_err(|_| {
        // The first error is reported. The next start removes a link to a run that does not exist.
        let _ = fs::remove_dir_all(&unfinished);
    })?;
    RunFiles::open(lock, record, stage).inspect_err(|_| {
        // Otherwise it would look like a killed run.
        let _ = fs::remove_dir_all(&path);
    })
}
