//! Writes what is logged into a table.

mod table;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook_core::{
    FromOptions, HookResult, HookSpec, Log, Moment, Observer, OptionError, Phase, Sent, Setup, State,
    TrainStart, hook,
};

use table::{Row, Table};

use crate::bookmark::Bookmark;
use crate::own_file;
use crate::trail::{self, Opening, Trail};
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
    pub flush_timeout: String,
}

impl Default for CsvOptions {
    fn default() -> CsvOptions {
        CsvOptions {
            path: "metrics.csv".into(),
            queue_size: 1000,
            when_full: WhenFull::default(),
            flush_timeout: "10 s".into(),
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
///   the rows that were logged before its checkpoint, also where some were dropped, and goes on there; what waited to be written when
///   the run was killed is missing. A run that begins again in its own directory begins the table anew; a table that stands elsewhere is
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
    /// Without a row the file is only opened.
    trail: Trail<Option<Row>>,
}

/// What a checkpoint keeps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Memory {
    file: Option<Bookmark>,
}

const VERSION: u32 = 1;

impl FromOptions for Csv {
    type Options = CsvOptions;
    const PURPOSE: &str = "writes what is logged into a table (CSV)";
    const EXAMPLE: &str = r#"
path = "tables/metrics.csv"
when_full = "block"
"#;

    fn from_options(options: CsvOptions) -> Result<Csv, OptionError> {
        own_file::check("path", &options.path, "metrics.csv")?;
        let queue = outbox::queue(options.queue_size, options.when_full, &options.flush_timeout)?;
        let trail = Trail::new(&options.path);
        Ok(Csv { options, queue, trail })
    }
}

impl Csv {
    /// Where the file is, if there is to be one.
    fn place(&self, moment: &Moment<'_>) -> HookResult<Option<PathBuf>> {
        let place = own_file::place(moment.run, &self.options.path)?;
        // The working directory may be another one when the run is resumed.
        Ok(place.map(std::path::absolute).transpose()?)
    }

    /// Whether the file is written in this call; its worker runs from here on.
    fn is_open(&mut self, moment: &Moment<'_>) -> HookResult<bool> {
        if !self.trail.is_open() {
            let Some(path) = self.place(moment)? else { return Ok(false) };
            self.trail.open(moment, self.queue, path, |opening| Rows { opening, table: None })?;
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
        self.trail.begin_call();
        Ok(())
    }

    fn on_train_start(&mut self, cx: &TrainStart) -> HookResult {
        let own = self.place(cx)?.filter(|path| trail::is_own(cx, path));
        self.trail.begin(cx, own)?;
        if self.trail.takes_up() && self.is_open(cx)? {
            return self.trail.order(None);
        }
        Ok(())
    }

    fn on_log(&mut self, cx: &Log) -> HookResult {
        if cx.of == Phase::SanityCheck || cx.metrics.is_empty() || !self.is_open(cx)? {
            return Ok(());
        }
        let time = cx.elapsed().as_secs_f64();
        let row = Row { step: cx.step, epoch: cx.epoch, stage: cx.of, time, metrics: cx.metrics.clone() };
        self.trail.send(time, Some(row))
    }

    fn finish(&mut self) -> HookResult {
        self.trail.finish()
    }

    fn sent(&self) -> Option<Sent> {
        self.trail.sent()
    }

    fn state_dict(&self) -> HookResult<State> {
        Ok(State::of(VERSION, &Memory { file: self.trail.mark() })?)
    }

    fn check_state_dict(&self, state: &State) -> HookResult {
        Ok(state.read::<Memory>(VERSION).map(drop)?)
    }

    fn load_state_dict(&mut self, state: &State) -> HookResult {
        let memory: Memory = state.read(VERSION)?;
        self.trail.load(memory.file);
        Ok(())
    }
}

/// The table, on a thread of its own.
struct Rows {
    opening: Opening,
    table: Option<Table>,
}

impl Work for Rows {
    type Item = Option<Row>;

    fn take(&mut self, row: Option<Row>, _: &Desk) -> HookResult {
        let Opening { path, keep, found } = &self.opening;
        let table = match &mut self.table {
            Some(table) => Ok(table),
            none => Table::open(path, keep).map(|table| {
                let _ = found.set(table.found);
                none.insert(table)
            }),
        };
        let written = table.and_then(|table| row.map_or(Ok(()), |row| table.push(&row)));
        Ok(written.map_err(|error| {
            format!("cannot write {}: {error}; make room, or choose another `path`", path.display())
        })?)
    }
}
