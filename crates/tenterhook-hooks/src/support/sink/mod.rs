//! The file of a sink: a worker writes it, and a resumed run continues it.
//!
//! A checkpoint records which data was sent to the worker, not which data is written. A resumed run therefore compares the
//! file with `metrics.jsonl`, which the trainer has truncated to the checkpoint: later records are removed, and records that
//! the worker did not write are restored.

mod position;
mod run_lines;

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tenterhook_core::{DeliveryStats, HookResult, RunContext, Stage};
use tenterhook_files::{
    RecordFormat, RelPath, ResumableFile, open_no_follow, open_regular_with, remove_unfinished,
};

use crate::support::output_path::{self, OutputRoot};
use crate::worker::{LazyWorker, QueueOptions, Work};
use position::{Piece, RestorePlan, SinkPosition};
pub(crate) use run_lines::LoggedLine;
use run_lines::RunLines;

#[cfg(test)]
mod tests;

/// An iterator over the records of a file.
pub(crate) type Records<'a, R> = Box<dyn Iterator<Item = io::Result<R>> + 'a>;

/// The format of a sink's file.
pub(crate) trait SinkFormat {
    /// The items that the worker receives.
    type Entry: Send + 'static;
    /// A record of the file.
    type Record;
    /// How records are delimited.
    type Framing: RecordFormat;
    /// Writes the file on the worker thread.
    type Writer: Work<Item = Self::Entry>;

    /// The option that holds the path.
    const OPTION: &'static str;
    /// The name of the records in messages.
    const RECORDS: &'static str;
    /// The number of header records that the hook writes to a new file.
    const HEADER_RECORDS: u64;
    /// The reason why some records cannot be restored.
    const UNRESTORABLE: &'static str;

    /// Removes the file of an earlier attempt of the same run.
    fn clear(&self, path: &Path) -> io::Result<()>;

    /// The records of an existing file. [`ErrorKind::InvalidData`] means that the file has another format.
    fn records(&self, path: &Path) -> io::Result<Records<'static, Self::Record>>;

    /// A key that is equal only for a record and its line in `metrics.jsonl`.
    fn key(record: &Self::Record) -> u64;

    /// The time at which the record was sent.
    fn time(record: &Self::Record) -> f64;

    /// The record of a line; `None` if the sink does not write it. `offset` is the difference between the file's clock and
    /// the run's elapsed time.
    fn from_line(line: &LoggedLine, offset: f64) -> Option<Self::Record>;

    /// Replaces the file by one with these records, which can be iterated several times.
    fn rewrite<'r>(
        &self,
        path: &Path,
        records: &dyn Fn() -> io::Result<Records<'r, Self::Record>>,
    ) -> io::Result<()>;

    /// The writer that appends to the file. An empty file gets its header.
    fn writer(&self, file: ResumableFile<Self::Framing>) -> io::Result<Self::Writer>;
}

/// A sink's file on the training thread: its position, which checkpoints save, and its worker.
#[derive(Debug)]
pub(crate) struct SinkFile<T> {
    worker: LazyWorker<T>,
    /// The position of a checkpoint, until the file is opened.
    resumed: Option<SinkPosition>,
    /// The file of an earlier attempt of this run, which is removed when the file is opened.
    stale: Option<RelPath>,
    current: Option<(PathBuf, SinkPosition)>,
}

impl<T> Default for SinkFile<T> {
    fn default() -> SinkFile<T> {
        SinkFile { worker: LazyWorker::default(), resumed: None, stale: None, current: None }
    }
}

impl<T> Serialize for SinkFile<T> {
    /// Serializes the position for a checkpoint.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let current = self.current.as_ref().map(|(_, position)| position.clone());
        // Nothing was sent yet, so a run that resumes from here starts with an empty file.
        let empty = || self.stale.as_ref().map(|path| SinkPosition::new(path.clone(), 0));
        current.or_else(|| self.resumed.clone()).or_else(empty).serialize(serializer)
    }
}

impl<'de, T> Deserialize<'de> for SinkFile<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<SinkFile<T>, D::Error> {
        Ok(SinkFile { resumed: Option::deserialize(deserializer)?, ..SinkFile::default() })
    }
}

impl<T: Send + 'static> SinkFile<T> {
    /// At `setup`: resets the statistics of the last call.
    pub(crate) fn begin_call(&mut self) {
        self.worker.begin_call();
    }

    /// At `on_train_start`. `own` is the path if only this run writes there; an existing file is then from an earlier
    /// attempt that was killed before its first checkpoint. `configured` is the path in the configuration.
    pub(crate) fn begin_training(
        &mut self,
        run_cx: &RunContext<'_>,
        configured: &Path,
        own: Option<PathBuf>,
    ) -> HookResult {
        let root = OutputRoot::of(run_cx.run, configured)?;
        let own = own.filter(|_| run_cx.total_batches == 0 && !self.was_written());
        self.stale = own.map(|own| root.name(&own)).transpose()?;
        Ok(())
    }

    /// Whether this run has written to the file already.
    pub(crate) fn was_written(&self) -> bool {
        self.resumed.is_some() || self.current.is_some()
    }

    /// Whether the file of a checkpoint has to be opened again.
    pub(crate) fn is_resumed(&self) -> bool {
        self.resumed.is_some()
    }

    /// The file in this directory that the run continues.
    pub(crate) fn path_in(
        &self,
        run_cx: &RunContext<'_>,
        configured: &Path,
        directory: &Path,
    ) -> HookResult<Option<PathBuf>> {
        let root = OutputRoot::of(run_cx.run, configured)?;
        let current = || self.current.as_ref().map(|(path, _)| path.clone());
        let resumed = self.resumed.as_ref().map(|position| root.resolve(&position.path));
        Ok(resumed.or_else(current).filter(|path| path.parent() == Some(directory)))
    }

    pub(crate) fn is_open(&self) -> bool {
        self.worker.is_running()
    }

    /// Whether the file holds records that no other file of the run holds.
    pub(crate) fn has_own_records(&self) -> bool {
        self.current.as_ref().is_some_and(|(_, position)| position.others > 0)
    }

    /// Opens the file and starts its worker. `configured` is the path in the configuration; paths in checkpoints are
    /// relative to it.
    pub(crate) fn open<F: SinkFormat<Entry = T>>(
        &mut self,
        run_cx: &RunContext<'_>,
        queue: QueueOptions,
        (configured, path): (&Path, PathBuf),
        format: &F,
    ) -> HookResult {
        let path = output_path::refuse_links(run_cx.run, path)?;
        let name = OutputRoot::of(run_cx.run, configured)?.name(&path)?;
        let shown = path.display().to_string();
        let cannot =
            |error| format!("cannot write {shown}: {error}; make room, or choose another `{}`", F::OPTION);
        let resumed = self.resumed.clone().filter(|position| position.path == name);
        let same = self.current.clone().filter(|(current, _)| *current == path && resumed.is_none());
        let opened = || -> io::Result<_> {
            if let Some(directory) = path.parent() {
                fs::create_dir_all(directory)?;
            }
            let own = output_path::is_in_run(run_cx.run, &path);
            // A link outside of the run directory is followed.
            let real = if own { None } else { fs::canonicalize(&path).ok() };
            let real = real.unwrap_or_else(|| path.clone());
            remove_unfinished(&real);
            let position = match (resumed, same) {
                // An evaluation of an older checkpoint must not remove later records.
                (Some(position), _) if run_cx.stage == Stage::Fit => {
                    continue_file(run_cx, (&real, own), format, position)?
                }
                (_, Some((_, position))) => position,
                (None, None) if self.stale.is_some() => {
                    format.clear(&real)?;
                    SinkPosition::new(name, 0)
                }
                _ => SinkPosition::new(name, existing_records(&real, own, format)?.len() as u64),
            };
            Ok((position, format.writer(open_at_end::<F>(&real, own)?)?))
        };
        let (position, writer) = opened().map_err(cannot)?;
        self.worker.get_or_start(&run_cx.hook_name(), queue, || writer)?;
        (self.current, self.resumed, self.stale) = (Some((path, position)), None, None);
        Ok(())
    }

    /// Sends an entry that becomes a record of this time, if the file is open. `line` is the time of its line of
    /// `metrics.jsonl`.
    pub(crate) fn send(&mut self, entry: T, time: f64, line: Option<f64>) -> HookResult {
        let Some((_, position)) = self.current.as_mut().filter(|_| self.worker.is_running()) else {
            return Ok(());
        };
        match line {
            Some(line) => {
                position.first = if position.lines == 0 { line } else { position.first };
                position.lines += 1;
            }
            None => position.others += 1,
        }
        position.time = time;
        self.worker.send(entry)
    }

    pub(crate) fn finish(&mut self) -> HookResult {
        self.worker.finish()
    }

    pub(crate) fn delivery_stats(&self) -> Option<DeliveryStats> {
        self.worker.delivery_stats()
    }
}

/// Opens a file at the end of its last complete record, or creates it.
fn open_at_end<F: SinkFormat>(path: &Path, own: bool) -> io::Result<ResumableFile<F::Framing>> {
    ResumableFile::of(path, open(path, own, OpenOptions::new().read(true).append(true).create(true))?)
}

fn open(path: &Path, own: bool, options: &mut OpenOptions) -> io::Result<File> {
    if own { open_no_follow(path, options) } else { open_regular_with(options, path) }
}

/// The keys and times of a file's complete records. A missing file has none.
fn existing_records<F: SinkFormat>(path: &Path, own: bool, format: &F) -> io::Result<Vec<(u64, f64)>> {
    match open(path, own, OpenOptions::new().read(true).write(true)) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        // Opening truncates an incomplete record at the end.
        file => drop(ResumableFile::<F::Framing>::of(path, file?)?),
    }
    format.records(path)?.map(|record| record.map(|record| (F::key(&record), F::time(&record)))).collect()
}

/// The lines of `metrics.jsonl` that were sent to the worker before a position.
struct SentLines {
    /// Their keys, or the reason why they are unknown.
    keys: Result<Vec<u64>, &'static str>,
    /// The number of lines before them.
    skipped: usize,
    /// The difference between the file's clock and the run's elapsed time.
    offset: f64,
}

impl SentLines {
    /// The last lines of the run's files, which end at the checkpoint.
    fn read<F: SinkFormat>(run: Option<&Path>, position: &SinkPosition) -> io::Result<SentLines> {
        let unknown = |why, skipped| SentLines { keys: Err(why), skipped, offset: 0.0 };
        let Some(source) = run.map(RunLines::open).transpose()?.flatten() else {
            return Ok(unknown("there is no metrics.jsonl to restore them from", 0));
        };
        let mut lines = Vec::new();
        for line in source {
            let line = line?;
            lines.extend(F::from_line(&line, 0.0).map(|record| (F::key(&record), line.time)));
        }
        let all = lines.len();
        let skipped = usize::try_from(position.lines).ok().and_then(|sent| all.checked_sub(sent));
        let sent = skipped
            .map(|skipped| lines.split_off(skipped))
            .filter(|sent| sent.first().is_none_or(|(_, time)| time.total_cmp(&position.first).is_eq()));
        Ok(match sent {
            Some(sent) => SentLines {
                skipped: all - sent.len(),
                offset: sent.last().map_or(0.0, |(_, last)| position.time - last),
                keys: Ok(sent.into_iter().map(|(key, _)| key).collect()),
            },
            None => unknown("the hook did not receive every line of metrics.jsonl", all),
        })
    }
}

/// Continues the file of a checkpoint: restores missing records, removes later ones, and reports both.
fn continue_file<F: SinkFormat>(
    run_cx: &RunContext<'_>,
    (path, own): (&Path, bool),
    format: &F,
    mut position: SinkPosition,
) -> io::Result<SinkPosition> {
    let run = run_cx.run.directory.as_deref();
    let sent = SentLines::read::<F>(run, &position)?;
    let (found, is_damaged) = match existing_records(path, own, format) {
        // Only this run writes there, so a file of another format is damaged.
        Err(error) if error.kind() == ErrorKind::InvalidData && sent.keys.is_ok() && own => {
            (Vec::new(), true)
        }
        found => (found?, false),
    };
    if found.is_empty() && sent.keys.is_err() && sent.skipped == 0 {
        // A run that starts from the checkpoint of another run has neither lines nor a file.
        return Ok(SinkPosition::new(position.path, 0));
    }
    let known = sent.keys.as_deref().unwrap_or_default();
    let expected = match &sent.keys {
        Ok(_) => position.clone(),
        Err(_) => SinkPosition { lines: 0, others: position.lines + position.others, ..position.clone() },
    };
    let plan = RestorePlan::new(&found, known, &expected);
    if is_damaged || !plan.changes_nothing(found.len()) {
        let merged = || -> io::Result<Records<'_, F::Record>> {
            let mut records =
                if found.is_empty() { Box::new(std::iter::empty()) } else { format.records(path)? };
            let source = run.map(RunLines::open).transpose()?.flatten();
            let lines = source.into_iter().flatten().filter_map(|line| match line {
                Ok(line) => F::from_line(&line, sent.offset).map(Ok),
                Err(error) => Some(Err(error)),
            });
            let (mut lines, mut record, mut line) = (lines.skip(sent.skipped), 0, 0);
            Ok(Box::new(plan.pieces.iter().map(move |piece| {
                let next = match *piece {
                    Piece::Found(number) => records.nth(number - std::mem::replace(&mut record, number + 1)),
                    Piece::Restored(number) => lines.nth(number - std::mem::replace(&mut line, number + 1)),
                };
                next.unwrap_or_else(|| Err(ErrorKind::UnexpectedEof.into()))
            })))
        };
        format.rewrite(path, &merged)?;
    }
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let (restored, records) = (plan.restored(), F::RECORDS);
    if restored > 0 {
        run_cx.say(format!("restored {restored} {records} of {file} from metrics.jsonl"));
    }
    // The hook writes the header of an empty file again.
    let header = if plan.others == 0 { F::HEADER_RECORDS.min(expected.others) } else { 0 };
    let lost = plan.lost - header;
    if lost > 0 {
        let why = sent.keys.as_ref().err().unwrap_or(&F::UNRESTORABLE);
        run_cx.say(format!("{lost} {records} of {file} are missing and cannot be restored: {why}"));
    }
    if sent.keys.is_ok() {
        position.others = plan.others;
    } else if plan.others == 0 {
        position = SinkPosition::new(position.path, position.before);
    }
    Ok(position)
}
