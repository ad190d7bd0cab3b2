//! Writes logged metrics to a CSV table.

mod table;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tenterhook_core::{
    DeliveryStats, FromOptions, HookResult, HookSpec, Log, Observer, OptionError, Phase, RunContext, Setup,
    TimeSpan, TrainStart, hook,
};
use tenterhook_files::{ResumableFile, TextLines};

use table::{Cells, Table};

use crate::support::options;
use crate::support::output_path;
use crate::support::sink::{self, LoggedLine, Records, SinkFile, SinkFormat};
use crate::worker::{LazyWorker, QueueOptions, WhenFull, Work, WorkerContext};

options! {
    /// The options of [`Csv`].
    pub struct CsvOptions {
        /// Path of the file. A relative path is inside the run directory; without a run directory, it
        /// is beside the checkpoints.
        #[schemars(extend("minLength" = 1))]
        pub path: PathBuf = "metrics.csv".into(),
        /// Maximum number of rows that wait to be written.
        #[schemars(range(min = 1))]
        pub queue_size: usize = 1000,
        /// What happens when the queue is full: `drop_oldest` drops the oldest row, `block` makes training wait.
        pub when_full: WhenFull = WhenFull::default(),
        /// How long the end of the run waits for unwritten rows.
        #[schemars(extend("pattern" = TimeSpan::ABOVE_ZERO))]
        pub flush_timeout: TimeSpan = TimeSpan::from_secs(10),
    }
}

/// Writes a CSV table of all logged metrics: one row per line of `metrics.jsonl`.
///
/// - **Fires** at `on_log` and `on_train_start`; not in a sanity check or a dry run.
/// - **Reads** the metrics of the line. **Writes** its file: `step`, `epoch`, `stage` (`train`, `validate`, `test` or
///   `predict`), `time` in seconds since the start of the run, and a column per metric. A metric with one of those four names
///   gets the prefix `metric/`. Metrics that were not logged are empty cells; non-finite numbers are `nan`, `inf` or `-inf`.
///   A new metric adds a column: the table is rewritten atomically. A resumed run removes rows that were logged after its
///   checkpoint, restores missing rows from `metrics.jsonl`, reports their number and continues. With a condition such as
///   `every`, missing rows are counted and not restored. A run that restarts in its own directory starts a new table; it
///   appends to a table elsewhere.
/// - **Cost**: a copy of the metrics. A worker thread writes, and reads the whole table when there is a new metric.
/// - **When it fails**: if the file cannot be written, the failure is reported, and the hook is disabled after three
///   failures (its policy). If the queue is full, the oldest row is dropped and counted, or with `when_full = "block"`
///   training waits.
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
    queue: QueueOptions,
    memory: SavedState,
    worker: LazyWorker<Cells>,
}

/// State saved in checkpoints.
#[derive(Debug, Default, Serialize, Deserialize)]
struct SavedState {
    file: SinkFile,
}

impl FromOptions for Csv {
    type Options = CsvOptions;
    const PURPOSE: &str = "writes logged metrics to a table (CSV)";
    const EXAMPLE: &str = r#"
path = "tables/metrics.csv"
when_full = "block"
"#;

    fn from_options(options: CsvOptions) -> Result<Csv, OptionError> {
        output_path::check("path", &options.path, "metrics.csv")?;
        let queue = QueueOptions::checked(options.queue_size, options.when_full, options.flush_timeout)?;
        let (memory, worker) = Default::default();
        Ok(Csv { options, queue, memory, worker })
    }
}

impl Csv {
    /// Opens the file if it is not open. Returns whether this call writes it.
    fn ensure_open(&mut self, run_cx: &RunContext<'_>) -> HookResult<bool> {
        if !self.worker.is_running() {
            let Some(path) = sink::resolve(run_cx, &self.options.path)? else { return Ok(false) };
            let table = self.memory.file.open(run_cx, (&self.options.path, path), &Rows)?;
            self.worker.get_or_start(&run_cx.hook_name(), self.queue, || table)?;
        }
        Ok(true)
    }
}

#[hook(name = "csv", tier = "built_in", state = "memory", version = 2)]
impl Observer for Csv {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        output_path::declare(spec, "path", &self.options.path)
    }

    fn setup(&mut self, _: &Setup) -> HookResult {
        self.worker.begin_call();
        Ok(())
    }

    fn on_train_start(&mut self, cx: &TrainStart) -> HookResult {
        let own = sink::resolve(cx, &self.options.path)?.filter(|path| output_path::is_in_run(cx.run, path));
        self.memory.file.begin_training(cx, &self.options.path, own)?;
        if self.memory.file.is_resumed() {
            self.ensure_open(cx)?;
        }
        Ok(())
    }

    fn on_log(&mut self, cx: &Log) -> HookResult {
        if cx.logged_in == Phase::SanityCheck || cx.metrics.is_empty() || !self.ensure_open(cx)? {
            return Ok(());
        }
        let row = Cells::new([cx.step, cx.epoch], cx.logged_in, cx.time, cx.metrics);
        self.memory.file.count_sent(cx.time, Some(cx.time));
        self.worker.send(row)
    }

    fn finish(&mut self) -> HookResult {
        self.worker.finish()
    }

    fn delivery_stats(&self) -> Option<DeliveryStats> {
        self.worker.delivery_stats()
    }
}

/// The format of the table.
struct Rows;

impl SinkFormat for Rows {
    type Record = Cells;
    type Framing = TextLines;
    type Writer = Table;

    const OPTION: &'static str = "path";
    const RECORDS: &'static str = "rows";
    const UNRESTORABLE: &'static str = "an earlier run wrote them";

    fn records(&self, path: &Path) -> io::Result<Records<'static, Cells>> {
        table::read(path)
    }

    fn key(row: &Cells) -> u64 {
        row.key()
    }

    fn time(row: &Cells) -> f64 {
        row.time()
    }

    fn from_line(line: &LoggedLine, _: f64) -> Option<Cells> {
        let is_row = line.stage != Phase::SanityCheck && !line.metrics.is_empty();
        is_row.then(|| Cells::new([line.step, line.epoch], line.stage, line.time, &line.metrics))
    }

    fn rewrite<'r>(&self, path: &Path, rows: &dyn Fn() -> io::Result<Records<'r, Cells>>) -> io::Result<()> {
        let columns = table::columns(rows()?)?;
        table::write(path, &columns, rows)
    }

    fn writer(&self, file: ResumableFile<TextLines>) -> io::Result<Table> {
        Table::open(file)
    }
}

impl Work for Table {
    type Item = Cells;

    fn process(&mut self, row: Cells, _: &WorkerContext) -> HookResult {
        Ok(self.push(&row).map_err(|error| sink::cannot_write::<Rows>(self.path(), &error))?)
    }
}
