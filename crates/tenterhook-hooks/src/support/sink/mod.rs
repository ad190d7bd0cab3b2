//! The file of a sink, which a resumed run continues.
//!
//! A checkpoint records which data was sent to the file, not which data is written, because a worker may lag. A resumed run
//! therefore compares the file with `metrics.jsonl`, which the trainer has truncated to the checkpoint: later records are
//! removed, and records that were not written are restored. Missing records that no other file of the run holds are counted
//! and reported.

mod position;
mod run_lines;

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tenterhook_core::{HookResult, RunContext, Stage};
use tenterhook_files::{
    RecordFormat, RelPath, ResumableFile, open_no_follow, open_regular_with, remove_unfinished,
};

use crate::support::output_path::{self, OutputRoot};
use position::{Piece, RestorePlan, SinkPosition};
pub(crate) use run_lines::LoggedLine;
use run_lines::RunLines;

#[cfg(test)]
mod tests;

/// An iterator over the records of a file.
pub(crate) type Records<'a, R> = Box<dyn Iterator<Item = io::Result<R>> + 'a>;

/// The format of a sink's file.
pub(crate) trait SinkFormat {
    /// A record of the file.
    type Record;
    /// How records are delimited.
    type Framing: RecordFormat;
    /// Appends to the file.
    type Writer;

    /// The option that holds the path.
    const OPTION: &'static str;
    /// The name of the records in messages.
    const RECORDS: &'static str;
    /// The number of header records that the hook writes to a new file.
    const HEADER_RECORDS: u64 = 0;
    /// The reason why some records cannot be restored.
    const UNRESTORABLE: &'static str;
    /// Whether the training thread writes the file, without a worker: it then holds every record that was sent, none of
    /// them can be restored, and it may be a stream.
    const IS_DIRECT: bool = false;

    /// Removes the file of an earlier attempt of the same run.
    fn clear(&self, path: &Path) -> io::Result<()> {
        self.rewrite(path, &|| Ok(Box::new(std::iter::empty())))
    }

    /// The records of an existing file. [`ErrorKind::InvalidData`] means that the file has another format.
    fn records(&self, path: &Path) -> io::Result<Records<'static, Self::Record>>;

    /// A key that is equal only for a record and its line in `metrics.jsonl`.
    fn key(_record: &Self::Record) -> u64 {
        0
    }

    /// The time at which the record was sent.
    fn time(record: &Self::Record) -> f64;

    /// The record of a line; `None` if the sink does not write it. `offset` is the difference between the file's clock and
    /// the run's elapsed time.
    fn from_line(_line: &LoggedLine, _offset: f64) -> Option<Self::Record> {
        None
    }

    /// Replaces the file by one with these records, which can be iterated several times.
    fn rewrite<'r>(
        &self,
        path: &Path,
        records: &dyn Fn() -> io::Result<Records<'r, Self::Record>>,
    ) -> io::Result<()>;

    /// The writer that appends to the file. An empty file gets its header.
    fn writer(&self, file: ResumableFile<Self::Framing>) -> io::Result<Self::Writer>;
}

/// A sink's file on the training thread: its path and its position, which checkpoints save.
#[derive(Debug, Default)]
pub(crate) struct SinkFile {
    /// The position of a checkpoint, until the file is opened.
    resumed: Option<SinkPosition>,
    /// The file of an earlier attempt of this run, which is removed when the file is opened.
    stale: Option<RelPath>,
    current: Option<(PathBuf, SinkPosition)>,
}

impl Serialize for SinkFile {
    /// Serializes the position for a checkpoint.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let current = self.current.as_ref().map(|(_, position)| position.clone());
        // Nothing was sent yet, so a run that resumes from here starts with an empty file.
        let empty = || self.stale.as_ref().map(|path| SinkPosition::new(path.clone(), 0));
        current.or_else(|| self.resumed.clone()).or_else(empty).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for SinkFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<SinkFile, D::Error> {
        Ok(SinkFile { resumed: Option::deserialize(deserializer)?, ..SinkFile::default() })
    }
}

/// The absolute path of a sink's file or directory; `None` if this call writes no files.
pub(crate) fn resolve(run_cx: &RunContext<'_>, configured: &Path) -> HookResult<Option<PathBuf>> {
    let path = output_path::resolve(run_cx.run, configured)?;
    // A resumed run may have another working directory.
    Ok(path.map(std::path::absolute).transpose()?)
}

/// The error message of a sink whose file cannot be written.
pub(crate) fn cannot_write<F: SinkFormat>(path: &Path, error: &io::Error) -> String {
    format!("cannot write {}: {error}; make room, or choose another `{}`", path.display(), F::OPTION)
}

impl SinkFile {
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

    /// The number of records that no other file of the run holds.
    pub(crate) fn own_records(&self) -> u64 {
        let current = || self.current.as_ref().map(|(_, position)| position);
        self.resumed.as_ref().or_else(current).map_or(0, |position| position.others)
    }

    /// Opens the file at its end; in a resumed training at the position of the checkpoint. `configured` is the path in the
    /// configuration; paths in checkpoints are relative to it.
    pub(crate) fn open<F: SinkFormat>(
        &mut self,
        run_cx: &RunContext<'_>,
        (configured, path): (&Path, PathBuf),
        format: &F,
    ) -> HookResult<F::Writer> {
        let path = output_path::refuse_links(run_cx.run, path)?;
        let name = OutputRoot::of(run_cx.run, configured)?.name(&path)?;
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
        let (position, writer) = opened().map_err(|error| cannot_write::<F>(&path, &error))?;
        (self.current, self.resumed, self.stale) = (Some((path, position)), None, None);
        Ok(writer)
    }

    /// Counts a record of this time, which is sent to the open file. `line` is the time of its line of `metrics.jsonl`.
    pub(crate) fn count_sent(&mut self, time: f64, line: Option<f64>) {
        let Some((_, position)) = &mut self.current else { return };
        match line {
            Some(line) => {
                position.first = if position.lines == 0 { line } else { position.first };
                position.lines += 1;
            }
            None => position.others += 1,
        }
        position.time = time;
    }
}

/// Opens a file at the end of its last complete record, or creates it.
fn open_at_end<F: SinkFormat>(path: &Path, own: bool) -> io::Result<ResumableFile<F::Framing>> {
    ResumableFile::of(path, open::<F>(path, own, OpenOptions::new().read(true).append(true).create(true))?)
}

fn open<F: SinkFormat>(path: &Path, own: bool, options: &mut OpenOptions) -> io::Result<File> {
    match own {
        true => open_no_follow(path, options),
        false if F::IS_DIRECT => options.open(path),
        false => open_regular_with(options, path),
    }
}

/// The keys and times of a file's complete records. A missing file has none.
fn existing_records<F: SinkFormat>(path: &Path, own: bool, format: &F) -> io::Result<Vec<(u64, f64)>> {
    // A stream is not read, and opened only once: closing it would end its reader.
    if F::IS_DIRECT && fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        return Ok(Vec::new());
    }
    match open::<F>(path, own, OpenOptions::new().read(true).write(true)) {
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
        if F::IS_DIRECT {
            return Ok(SentLines { keys: Ok(Vec::new()), skipped: 0, offset: 0.0 });
        }
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

/// Whether another record is where a file without a worker has its last record before the checkpoint. Another run has then
/// written to the file since, and all of it is kept.
fn is_of_another_run(found: &[(u64, f64)], position: &SinkPosition) -> bool {
    let records = position.before.saturating_add(position.others);
    let last = usize::try_from(records).ok().and_then(|records| found.get(records.checked_sub(1)?));
    position.others > 0 && last.is_some_and(|(_, time)| time.total_cmp(&position.time).is_ne())
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
    if F::IS_DIRECT && is_of_another_run(&found, &position) {
        return Ok(SinkPosition::new(position.path, found.len() as u64));
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
