//! Writes what is logged into a table.

mod table;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook_core::{
    DeliveryStats, FromOptions, HookResult, HookSpec, Log, Observer, OptionError, Phase, RunContext, Setup,
    State, TimeSpan, TrainStart, hook,
};
use tenterhook_files::{ResumableFile, TextLines};

use table::{Cells, Table};

use crate::own_file;
use crate::sink::{Logged, Records, SinkFile, SinkFormat, SinkPosition};
use crate::worker::{Desk, Queue, WhenFull, Work, outbox};

/// The options of [`Csv`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CsvOptions {
    /// The file. A relative one is below the run directory; where there is none, beside the checkpoints.
    #[schemars(extend("minLength" = 1))]
    pub path: PathBuf,
    /// How many rows may wait to be written.
    #[schemars(range(min = 1))]
    pub queue_size: usize,
    /// What happens when more do.
    pub when_full: WhenFull,
    /// How long the end of a run waits for what is not written yet, as a time such as "10 s".
    #[schemars(extend("pattern" = TimeSpan::ABOVE_ZERO))]
    pub flush_timeout: TimeSpan,
}

impl Default for CsvOptions {
    fn default() -> CsvOptions {
        CsvOptions {
            path: "metrics.csv".into(),
            queue_size: 1000,
            when_full: WhenFull::default(),
            flush_timeout: TimeSpan::from_secs(10),
        }
    }
}

/// Writes a table of everything that is logged: one row per line of `metrics.jsonl`.
///
/// - **Fires** at `on_log`, and at `on_train_start`. Not in a sanity check, nor in a dry run.
/// - **Reads** the numbers of the line. **Writes** its file: `step`, `epoch`, `stage` (`train`, `validate`, `test` or
///   `predict`) and `time` in seconds since the run began, then a column for each metric; a metric that has one of
///   those four names is `metric/step`, say. Cells of what was not logged are empty, and what is no number is `nan`, `inf` or
///   `-inf`. For a metric that comes later the table is written anew, with a wider header, under another name, which
///   then takes its place: a run that is killed meanwhile leaves the old one. A resumed run cuts the table back to
///   the rows that were logged before its checkpoint, restores from `metrics.jsonl` those that are missing there, says how many,
///   and continues. Where a condition such as `every` keeps lines from the hook, missing rows are counted and not
///   restored. A run that begins again in its own directory begins the table anew; a table that stands elsewhere is
///   added to.
/// - **Cost**: a copy of the numbers. Its own thread writes, and reads the whole table when there is a new metric.
/// - **When it fails**, because the file cannot be written, its policy decides: it is reported, and the hook
///   disabled after three failures. Where more rows wait than `queue_size`, the oldest is dropped and counted, or with
///   `when_full = "block"` training waits.
///
/// ```toml
/// [[hooks]]
/// use = "csv"
/// path = "metrics.csv"
/// queue_size = 1000
/// when_full = "drop_oldest"
/// flush_timeout = "10 s"
/// ```
#[derive(Debug)]
pub struct Csv {
    options: CsvOptions,
    queue: Queue,
    file: SinkFile<Cells>,
}

/// What a checkpoint keeps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Memory {
    file: Option<SinkPosition>,
}

const VERSION: u32 = 2;

impl FromOptions for Csv {
    type Options = CsvOptions;
    const PURPOSE: &str = "writes what is logged into a table (CSV)";
    const EXAMPLE: &str = r#"
path = "tables/metrics.csv"
when_full = "block"
"#;

    fn from_options(options: CsvOptions) -> Result<Csv, OptionError> {
        own_file::check("path", &options.path, "metrics.csv")?;
        let queue = outbox::queue(options.queue_size, options.when_full, options.flush_timeout)?;
        let file = SinkFile::new(&options.path);
        Ok(Csv { options, queue, file })
    }
}

impl Csv {
    /// Where the file is, if there is to be one.
    fn place(&self, run_cx: &RunContext<'_>) -> HookResult<Option<PathBuf>> {
        let place = own_file::place(run_cx.run, &self.options.path)?;
        // The working directory may be another one when the run is resumed.
        Ok(place.map(std::path::absolute).transpose()?)
    }

    /// Whether the file is written in this call; its worker runs from here on.
    fn is_open(&mut self, run_cx: &RunContext<'_>) -> HookResult<bool> {
        if !self.file.is_open() {
            let Some(path) = self.place(run_cx)? else { return Ok(false) };
            self.file.open(run_cx, self.queue, path, &Rows)?;
        }
        Ok(true)
    }
}

#[hook(name = "csv", tier = "built_in")]
impl Observer for Csv {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        own_file::declared(spec, "path", &self.options.path)
    }

    fn setup(&mut self, _: &Setup) -> HookResult {
        self.file.begin_call();
        Ok(())
    }

    fn on_train_start(&mut self, cx: &TrainStart) -> HookResult {
        let own = self.place(cx)?.filter(|path| own_file::is_own(cx.run, path));
        self.file.begin(cx, own)?;
        if self.file.is_resumed() {
            self.is_open(cx)?;
        }
        Ok(())
    }

    fn on_log(&mut self, cx: &Log) -> HookResult {
        if cx.of == Phase::SanityCheck || cx.metrics.is_empty() || !self.is_open(cx)? {
            return Ok(());
        }
        let row = Cells::new([cx.step, cx.epoch], cx.of, cx.time, cx.metrics);
        self.file.send(row, cx.time, Some(cx.time))
    }

    fn finish(&mut self) -> HookResult {
        self.file.finish()
    }

    fn delivery_stats(&self) -> Option<DeliveryStats> {
        self.file.delivery_stats()
    }

    fn state_dict(&self) -> HookResult<State> {
        Ok(State::of(VERSION, &Memory { file: self.file.position() })?)
    }

    fn check_state_dict(&self, state: &State) -> HookResult {
        Ok(state.read::<Memory>(VERSION).map(drop)?)
    }

    fn load_state_dict(&mut self, state: &State) -> HookResult {
        let memory: Memory = state.read(VERSION)?;
        self.file.load(memory.file);
        Ok(())
    }
}

/// The format of the table.
struct Rows;

impl SinkFormat for Rows {
    type Entry = Cells;
    type Record = Cells;
    type Framing = TextLines;
    type Writer = Table;

    const OPTION: &'static str = "path";
    const RECORDS: &'static str = "rows";
    const HEAD: u64 = 0;
    const UNRESTORABLE: &'static str = "they are of an earlier run";

    fn clear(&self, path: &Path) -> io::Result<()> {
        table::write(path, &[], &|| Ok(Box::new(std::iter::empty())))
    }

    fn records(&self, path: &Path) -> io::Result<Records<'static, Cells>> {
        table::read(path)
    }

    fn key(row: &Cells) -> u64 {
        row.key()
    }

    fn time(row: &Cells) -> f64 {
        row.time()
    }

    fn of_line(line: &Logged, _: f64) -> Option<Cells> {
        let is_row = line.stage != Phase::SanityCheck && !line.metrics.is_empty();
        is_row.then(|| Cells::new([line.step, line.epoch], line.stage, line.time, &line.metrics))
    }

    fn rewrite<'r>(&self, path: &Path, rows: &dyn Fn() -> io::Result<Records<'r, Cells>>) -> io::Result<()> {
        let columns = table::columns(rows()?)?;
        table::write(path, &columns, rows)
    }

    fn writer(&self, file: ResumableFile<TextLines>) -> io::Result<Table> {
        Table::of(file)
    }
}

/// On a thread of its own.
impl Work for Table {
    type Item = Cells;

    fn take(&mut self, row: Cells, _: &Desk) -> HookResult {
        Ok(self.push(&row).map_err(|error| {
            format!("cannot write {}: {error}; make room, or choose another `path`", self.path().display())
        })?)
    }
}
