//! The file of a sink: a worker writes it, and a resumed run continues it.
//!
//! A checkpoint holds what was handed to the worker, not what the worker has written. A resumed run therefore compares
//! the file with `metrics.jsonl`, which the trainer has cut to the checkpoint by then: records that came later are cut
//! off, and those that the worker had not written, dropped or lost are restored.

mod position;
mod source;

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use tenterhook_core::{HookResult, Moment, Sent, Stage};
use tenterhook_files::{
    RecordFormat, RelPath, ResumableFile, open_no_follow, open_regular_with, remove_unfinished,
};

use crate::own_file::{self, Base};
use crate::worker::{Outbox, Queue, Work};
pub(crate) use position::SinkPosition;
use position::{Piece, Plan};
pub(crate) use source::Logged;
use source::Source;

#[cfg(test)]
mod tests;

/// The records of a file, one after the other.
pub(crate) type Records<'a, R> = Box<dyn Iterator<Item = io::Result<R>> + 'a>;

/// The format of a sink's file.
pub(crate) trait SinkFormat {
    /// What is handed to the worker.
    type Entry: Send + 'static;
    /// A record, as it is copied.
    type Record;
    /// How the file is divided into records.
    type Framing: RecordFormat;
    /// Writes the file on a thread of its own.
    type Writer: Work<Item = Self::Entry>;

    /// The option that names the place of the file.
    const OPTION: &'static str;
    /// What its records are called.
    const RECORDS: &'static str;
    /// How many records the hook writes itself at the beginning of a file.
    const HEAD: u64;
    /// Why some of its records cannot be restored.
    const UNRESTORABLE: &'static str;

    /// Removes what an earlier attempt of the same run left.
    fn clear(&self, path: &Path) -> io::Result<()>;

    /// The records of a file that exists. [`ErrorKind::InvalidData`] means that the file is of another format.
    fn records(&self, path: &Path) -> io::Result<Records<'static, Self::Record>>;

    /// A key that a record shares with no other but the same line of `metrics.jsonl`.
    fn key(record: &Self::Record) -> u64;

    /// When the record was handed over.
    fn time(record: &Self::Record) -> f64;

    /// The record of a line; `None` if the sink does not write it. `offset` is what the clock of the file is ahead of
    /// the run's time.
    fn of_line(line: &Logged, offset: f64) -> Option<Self::Record>;

    /// Replaces the file by one of these records; they can be read several times.
    fn rewrite<'r>(
        &self,
        path: &Path,
        records: &dyn Fn() -> io::Result<Records<'r, Self::Record>>,
    ) -> io::Result<()>;

    /// The writer of a file that stands at its end. An empty file gets its head.
    fn writer(&self, file: ResumableFile<Self::Framing>) -> io::Result<Self::Writer>;
}

/// The file as the training thread knows it, and its worker.
#[derive(Debug)]
pub(crate) struct SinkFile<T> {
    outbox: Outbox<T>,
    /// The path of the configuration, by which a checkpoint names the file.
    configured: PathBuf,
    /// The position of a checkpoint, until the file is opened.
    resumed: Option<SinkPosition>,
    /// What is there is of a first attempt of this run, until the file is opened.
    anew: Option<RelPath>,
    current: Option<(PathBuf, SinkPosition)>,
}

impl<T: Send + 'static> SinkFile<T> {
    /// A file of what is configured under this path.
    pub(crate) fn new(configured: &Path) -> SinkFile<T> {
        let configured = configured.to_owned();
        SinkFile { outbox: Outbox::default(), configured, resumed: None, anew: None, current: None }
    }

    /// At `setup`: the report of the last call has been made.
    pub(crate) fn begin_call(&mut self) {
        self.outbox.begin();
    }

    /// At `on_train_start`, with the place of the file if only this run writes there. A run that begins in its own
    /// directory finds nothing there but what it wrote itself, before it was killed without a checkpoint.
    pub(crate) fn begin(&mut self, moment: &Moment<'_>, own: Option<PathBuf>) -> HookResult {
        let base = Base::of(moment.run, &self.configured)?;
        let own = own.filter(|_| moment.total_batches == 0 && !self.continues());
        self.anew = own.map(|own| base.name(&own)).transpose()?;
        Ok(())
    }

    /// Whether this run has written to a file already.
    pub(crate) fn continues(&self) -> bool {
        self.resumed.is_some() || self.current.is_some()
    }

    /// Whether the file of a checkpoint has to be opened again.
    pub(crate) fn is_resumed(&self) -> bool {
        self.resumed.is_some()
    }

    /// The file in this directory that the run continues.
    pub(crate) fn path_in(&self, moment: &Moment<'_>, directory: &Path) -> HookResult<Option<PathBuf>> {
        let base = Base::of(moment.run, &self.configured)?;
        let current = || self.current.as_ref().map(|(path, _)| path.clone());
        let resumed = self.resumed.as_ref().map(|position| base.place(&position.path));
        Ok(resumed.or_else(current).filter(|path| path.parent() == Some(directory)))
    }

    pub(crate) fn is_open(&self) -> bool {
        self.outbox.is_open()
    }

    /// Whether the file holds an entry that the hook made itself.
    pub(crate) fn has_head(&self) -> bool {
        self.current.as_ref().is_some_and(|(_, position)| position.others > 0)
    }

    /// Opens the file and starts its worker.
    pub(crate) fn open<F: SinkFormat<Entry = T>>(
        &mut self,
        moment: &Moment<'_>,
        queue: Queue,
        path: PathBuf,
        format: &F,
    ) -> HookResult {
        let path = own_file::without_links(moment.run, path)?;
        let name = Base::of(moment.run, &self.configured)?.name(&path)?;
        let shown = path.display().to_string();
        let cannot =
            |error| format!("cannot write {shown}: {error}; make room, or choose another `{}`", F::OPTION);
        let resumed = self.resumed.clone().filter(|position| position.path == name);
        let same = self.current.clone().filter(|(current, _)| *current == path && resumed.is_none());
        let opened = || -> io::Result<_> {
            if let Some(directory) = path.parent() {
                fs::create_dir_all(directory)?;
            }
            let own = own_file::is_own(moment.run, &path);
            // A link outside of the run's directory stays, and what it leads to is written.
            let real = if own { None } else { fs::canonicalize(&path).ok() };
            let place = real.unwrap_or_else(|| path.clone());
            remove_unfinished(&place);
            let position = match (resumed, same) {
                // An evaluation of an older checkpoint must not cut off what came after it.
                (Some(position), _) if moment.stage == Stage::Fit => {
                    continued(moment, (&place, own), format, position)?
                }
                (_, Some((_, position))) => position,
                (None, None) if self.anew.is_some() => {
                    format.clear(&place)?;
                    SinkPosition::new(name, 0)
                }
                _ => SinkPosition::new(name, found(&place, own, format)?.len() as u64),
            };
            Ok((position, format.writer(file::<F>(&place, own)?)?))
        };
        let (position, writer) = opened().map_err(cannot)?;
        self.outbox.open(&moment.hook_name(), queue, writer)?;
        (self.current, self.resumed, self.anew) = (Some((path, position)), None, None);
        Ok(())
    }

    /// Hands over an entry that becomes a record of this time, if the file is open. `line` is the time of the line of
    /// `metrics.jsonl` that it is made of.
    pub(crate) fn send(&mut self, entry: T, time: f64, line: Option<f64>) -> HookResult {
        let Some((_, position)) = self.current.as_mut().filter(|_| self.outbox.is_open()) else {
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
        self.outbox.pass(entry)
    }

    pub(crate) fn finish(&mut self) -> HookResult {
        self.outbox.finish()
    }

    pub(crate) fn sent(&self) -> Option<Sent> {
        self.outbox.sent()
    }

    /// For a checkpoint.
    pub(crate) fn position(&self) -> Option<SinkPosition> {
        let current = self.current.as_ref().map(|(_, position)| position.clone());
        // Nothing was handed over yet, and a run that is resumed from here keeps nothing.
        let none = || self.anew.as_ref().map(|path| SinkPosition::new(path.clone(), 0));
        current.or_else(|| self.resumed.clone()).or_else(none)
    }

    /// From a checkpoint.
    pub(crate) fn load(&mut self, position: Option<SinkPosition>) {
        *self = SinkFile { resumed: position, ..SinkFile::new(&self.configured) };
    }
}

/// Opens a file at the end of its last whole record, or creates it.
fn file<F: SinkFormat>(path: &Path, own: bool) -> io::Result<ResumableFile<F::Framing>> {
    ResumableFile::of(path, opened(path, own, OpenOptions::new().read(true).append(true).create(true))?)
}

fn opened(path: &Path, own: bool, options: &mut OpenOptions) -> io::Result<File> {
    if own { open_no_follow(path, options) } else { open_regular_with(options, path) }
}

/// The keys and times of a file's whole records. A file that does not exist has none.
fn found<F: SinkFormat>(path: &Path, own: bool, format: &F) -> io::Result<Vec<(u64, f64)>> {
    match opened(path, own, OpenOptions::new().read(true).write(true)) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        // Half a record at the end goes.
        opened => drop(ResumableFile::<F::Framing>::of(path, opened?)?),
    }
    format.records(path)?.map(|record| record.map(|record| (F::key(&record), F::time(&record)))).collect()
}

/// The lines of the run that were handed over before a position.
struct Handed {
    /// Their keys; `Err` says why they are not known.
    keys: Result<Vec<u64>, &'static str>,
    /// How many lines of the run come before them.
    skipped: usize,
    /// What the clock of the file is ahead of the run's time.
    offset: f64,
}

impl Handed {
    /// They are the last lines of the run's files, which end at the checkpoint.
    fn read<F: SinkFormat>(run: Option<&Path>, position: &SinkPosition) -> io::Result<Handed> {
        let unknown = |why, skipped| Handed { keys: Err(why), skipped, offset: 0.0 };
        let Some(source) = run.map(Source::open).transpose()?.flatten() else {
            return Ok(unknown("there is no metrics.jsonl to restore them from", 0));
        };
        let mut lines = Vec::new();
        for line in source {
            let line = line?;
            lines.extend(F::of_line(&line, 0.0).map(|record| (F::key(&record), line.time)));
        }
        let all = lines.len();
        let skipped = usize::try_from(position.lines).ok().and_then(|handed| all.checked_sub(handed));
        let handed = skipped
            .map(|skipped| lines.split_off(skipped))
            .filter(|handed| handed.first().is_none_or(|(_, time)| time.total_cmp(&position.first).is_eq()));
        Ok(match handed {
            Some(handed) => Handed {
                skipped: all - handed.len(),
                offset: handed.last().map_or(0.0, |(_, last)| position.time - last),
                keys: Ok(handed.into_iter().map(|(key, _)| key).collect()),
            },
            None => unknown("the hook did not receive every line of metrics.jsonl", all),
        })
    }
}

/// Continues the file of a checkpoint, and says what was restored and what is missing.
fn continued<F: SinkFormat>(
    moment: &Moment<'_>,
    (path, own): (&Path, bool),
    format: &F,
    mut position: SinkPosition,
) -> io::Result<SinkPosition> {
    let run = moment.run.directory.as_deref();
    let handed = Handed::read::<F>(run, &position)?;
    let (found, is_damaged) = match found(path, own, format) {
        // Only this run writes there, so the file is not somebody else's.
        Err(error) if error.kind() == ErrorKind::InvalidData && handed.keys.is_ok() && own => {
            (Vec::new(), true)
        }
        found => (found?, false),
    };
    if found.is_empty() && handed.keys.is_err() && handed.skipped == 0 {
        // A run that starts from a checkpoint of another one has neither lines nor a file.
        return Ok(SinkPosition::new(position.path, 0));
    }
    let known = handed.keys.as_deref().unwrap_or_default();
    let expected = match &handed.keys {
        Ok(_) => position.clone(),
        Err(_) => SinkPosition { lines: 0, others: position.lines + position.others, ..position.clone() },
    };
    let plan = Plan::new(&found, known, &expected);
    if is_damaged || !plan.changes_nothing(found.len()) {
        let merged = || -> io::Result<Records<'_, F::Record>> {
            let mut records =
                if found.is_empty() { Box::new(std::iter::empty()) } else { format.records(path)? };
            let source = run.map(Source::open).transpose()?.flatten();
            let lines = source.into_iter().flatten().filter_map(|line| match line {
                Ok(line) => F::of_line(&line, handed.offset).map(Ok),
                Err(error) => Some(Err(error)),
            });
            let (mut lines, mut record, mut line) = (lines.skip(handed.skipped), 0, 0);
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
        moment.say(format!("restored {restored} {records} of {file} from metrics.jsonl"));
    }
    // The hook writes the head of an empty file again.
    let head = if plan.others == 0 { F::HEAD.min(expected.others) } else { 0 };
    let lost = plan.lost - head;
    if lost > 0 {
        let why = handed.keys.as_ref().err().unwrap_or(&F::UNRESTORABLE);
        moment.say(format!("{lost} {records} of {file} are missing and cannot be restored: {why}"));
    }
    if handed.keys.is_ok() {
        position.others = plan.others;
    } else if plan.others == 0 {
        position = SinkPosition::new(position.path, position.before);
    }
    Ok(position)
}
