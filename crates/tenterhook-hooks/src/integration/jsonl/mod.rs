//! Writes events to a JSON Lines file.

mod line;
#[cfg(test)]
mod tests;

use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tenterhook_core::{
    Cadence, Exception, FromOptions, HookResult, HookSpec, LogPosition, Observer, OptionError, Phase,
    RunContext, Scalar, StepEnd, TestEnd, TestStart, TrainBatchEnd, TrainEnd, TrainEpochEnd, TrainEpochStart,
    TrainStart, ValidationEnd, ValidationStart, hook,
};
use tenterhook_files::{ResumableFile, TextLines, next_line, open_regular, write_durably};

use line::{Line, LineFields};

use crate::support::checks;
use crate::support::options;
use crate::support::output_path;
use crate::support::sink::{self, Records, SinkFile, SinkFormat};

options! {
    /// The options of [`Jsonl`].
    pub struct JsonlOptions {
        /// Number of batches between two lines, counted over all epochs.
        #[schemars(range(min = 1))]
        pub log_every_n_batches: u64 = 100,
        /// Path of the file. A relative path is inside the run directory; without a run directory, it
        /// is beside the checkpoints.
        #[schemars(extend("minLength" = 1))]
        pub path: PathBuf = "json_log.jsonl".into(),
    }
}

impl From<u64> for JsonlOptions {
    /// Writes a line every n batches.
    fn from(log_every_n_batches: u64) -> JsonlOptions {
        JsonlOptions { log_every_n_batches, ..JsonlOptions::default() }
    }
}

/// Writes a structured log: one JSON object per line.
///
/// - **Fires** at `on_train_start`, every `log_every_n_batches` batches at `on_train_batch_end`, and at
///   `on_train_epoch_end`, `on_validation_end`, `on_test_end`, `on_train_end` and `on_exception`; not in a sanity check or
///   a dry run.
/// - **Reads** the losses of the batches that it writes. **Writes** its file. Every line has `event` (`train_start`,
///   `batch`, `epoch_end`, `validation_end`, `test_end`, `train_end` or `exception`), `time` in seconds since the start of
///   the run, `epoch` from 0, `step`, and the fields of the event: `batch` from 0, `loader`, `loss`, `average_loss`, `lr`
///   (of the first parameter group at the last update; of several updates in one batch, the first; `null` before the first
///   update), `metrics` (logged in this batch, epoch or evaluation), `outcome`, `error`. Non-finite numbers are `"nan"`,
///   `"inf"` or `"-inf"`. A resumed run removes lines after its checkpoint and continues; a file that another run has
///   extended since is appended to. Missing lines cannot be restored, since no other file of the run holds losses, learning
///   rates and outcomes; their number is reported. A run that restarts in its own directory overwrites its file.
/// - **Cost**: writing and flushing a line, and reading the losses since the last line; a division in other batches.
/// - **When it fails**: if the file cannot be written, the failure is reported, and the hook is disabled after three
///   failures (its policy).
///
/// ```toml
/// [[hooks]]
/// use = "jsonl"
/// log_every_n_batches = 100
/// path = "json_log.jsonl"
/// ```
#[derive(Debug)]
pub struct Jsonl {
    options: JsonlOptions,
    memory: SavedState,
    /// The open file. It has no worker: a line that is lost in a kill could not be restored.
    lines: Option<ResumableFile<TextLines>>,
    evaluation: LogPosition,
}

/// State saved in checkpoints.
#[derive(Debug, Default, Serialize, Deserialize)]
struct SavedState {
    file: SinkFile,
    epoch: LogPosition,
    batch: LogPosition,
    /// The learning rate of the first update in batch `lr_of`, the latest batch with an update.
    #[serde(with = "tenterhook_core::number::option")]
    lr: Option<f64>,
    lr_of: u64,
}

impl FromOptions for Jsonl {
    type Options = JsonlOptions;
    const PURPOSE: &str = "writes a structured log, one JSON object per line";
    const EXAMPLE: &str = r#"
log_every_n_batches = 10
path = "training.jsonl"
"#;

    fn from_options(options: JsonlOptions) -> Result<Jsonl, OptionError> {
        let none = |error: OptionError| error.fix("to write nothing, write `enabled = false`");
        checks::one_or_more("log_every_n_batches", options.log_every_n_batches).map_err(none)?;
        output_path::check("path", &options.path, "json_log.jsonl")?;
        let (memory, lines, evaluation) = Default::default();
        Ok(Jsonl { options, memory, lines, evaluation })
    }
}

impl Jsonl {
    fn is_due(&self, cx: &RunContext<'_>) -> bool {
        cx.total_batches.is_multiple_of(self.options.log_every_n_batches)
    }

    /// The open file; `None` if this call writes no files.
    fn open(&mut self, cx: &RunContext<'_>) -> HookResult<Option<&mut ResumableFile<TextLines>>> {
        if self.lines.is_none() {
            let Some(path) = sink::resolve(cx, &self.options.path)? else { return Ok(None) };
            self.lines = Some(self.memory.file.open(cx, (&self.options.path, path), &Lines)?);
        }
        Ok(self.lines.as_mut())
    }

    /// Appends a line.
    fn write(&mut self, cx: &RunContext<'_>, fields: LineFields<'_>) -> HookResult {
        let Some(file) = self.open(cx)? else { return Ok(()) };
        let line = Line::of(cx, fields);
        let mut text = serde_json::to_vec(&line)?;
        text.push(b'\n');
        file.push(&text).map_err(|error| sink::cannot_write::<Lines>(file.path(), &error))?;
        self.memory.file.count_sent(line.time, None);
        Ok(())
    }
}

#[hook(name = "json_log", tier = "built_in", state = "memory", version = 3)]
impl Observer for Jsonl {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        let spec = output_path::declare(spec.ignores_grad_norm(), "path", &self.options.path);
        let every = self.options.log_every_n_batches;
        spec.min_run_length("log_every_n_batches", Cadence::Batches(every))
    }

    fn on_train_start(&mut self, cx: &TrainStart) -> HookResult {
        let own = sink::resolve(cx, &self.options.path)?.filter(|path| output_path::is_in_run(cx.run, path));
        self.memory.file.begin_training(cx, &self.options.path, own)?;
        if cx.total_batches == 0 {
            (self.memory.lr, self.memory.lr_of) = (None, 0);
        }
        if self.memory.file.is_resumed() {
            let sent = self.memory.file.own_records();
            self.open(cx)?;
            if sent > 0 && self.memory.file.own_records() == sent {
                // The file already has the line `train_start`.
                return Ok(());
            }
        }
        let run = cx.run;
        let what = LineFields::TrainStart {
            run: &run.id,
            resumed: cx.total_batches > 0,
            parameters: run.parameters,
            total_epochs: run.total_epochs,
            total_batches: run.total_batches,
        };
        self.write(cx, what)
    }

    fn on_train_epoch_start(&mut self, cx: &TrainEpochStart) -> HookResult {
        (self.memory.epoch, self.memory.batch) = (cx.metrics().log_position(), cx.metrics().log_position());
        Ok(())
    }

    fn on_train_batch_end(&mut self, cx: &TrainBatchEnd) -> HookResult {
        let mut written = Ok(());
        if cx.count_call_if(self.is_due(cx)) {
            let what = LineFields::Batch {
                batch: cx.batch.index,
                loader: cx.batch.loader,
                loss: cx.loss.as_ref().map(Scalar::value),
                average_loss: cx.average_loss(),
                lr: self.memory.lr,
                metrics: cx.metrics().since(self.memory.batch),
            };
            written = self.write(cx, what);
        }
        self.memory.batch = cx.metrics().log_position();
        written
    }

    fn on_step_end(&mut self, cx: &StepEnd) -> HookResult {
        if self.memory.lr_of != cx.total_batches {
            (self.memory.lr, self.memory.lr_of) = (Some(cx.lr), cx.total_batches);
        }
        Ok(())
    }

    fn on_train_epoch_end(&mut self, cx: &TrainEpochEnd) -> HookResult {
        let metrics = cx.metrics().since(self.memory.epoch);
        self.write(cx, LineFields::EpochEnd { average_loss: cx.average_loss(), metrics })
    }

    fn on_validation_start(&mut self, cx: &ValidationStart) -> HookResult {
        self.evaluation = cx.metrics().log_position();
        Ok(())
    }

    fn on_validation_end(&mut self, cx: &ValidationEnd) -> HookResult {
        if cx.phase == Phase::SanityCheck {
            return Ok(());
        }
        self.memory.batch = cx.metrics().log_position();
        let metrics = cx.metrics().since(self.evaluation);
        self.write(cx, LineFields::ValidationEnd { stage: cx.stage, metrics })
    }

    fn on_test_start(&mut self, cx: &TestStart) -> HookResult {
        self.evaluation = cx.metrics().log_position();
        Ok(())
    }

    fn on_test_end(&mut self, cx: &TestEnd) -> HookResult {
        let metrics = cx.metrics().since(self.evaluation);
        self.write(cx, LineFields::TestEnd { metrics })
    }

    fn on_train_end(&mut self, cx: &TrainEnd) -> HookResult {
        self.write(cx, LineFields::TrainEnd { outcome: cx.outcome, metrics: cx.metrics().to_map() })
    }

    fn on_exception(&mut self, cx: &Exception) -> HookResult {
        let failure = cx.failure;
        let (origin, error) = (failure.origin.to_string(), failure.error.to_string());
        self.write(cx, LineFields::Exception { origin, place: failure.place, error })
    }

    fn finish(&mut self) -> HookResult {
        self.lines = None;
        Ok(())
    }
}

/// The format of the file.
struct Lines;

impl SinkFormat for Lines {
    type Record = Vec<u8>;
    type Framing = TextLines;
    type Writer = ResumableFile<TextLines>;

    const OPTION: &'static str = "path";
    const RECORDS: &'static str = "lines";
    const UNRESTORABLE: &'static str = "no other file of the run holds them";
    const IS_DIRECT: bool = true;

    fn records(&self, path: &Path) -> io::Result<Records<'static, Vec<u8>>> {
        let mut reader = BufReader::new(open_regular(path)?);
        Ok(Box::new(std::iter::from_fn(move || {
            let mut line = Vec::new();
            let read = next_line(&mut reader, &mut line);
            read.map(|length| (length > 0).then_some(line)).transpose()
        })))
    }

    fn time(line: &Vec<u8>) -> f64 {
        let line: Option<Value> = serde_json::from_slice(line).ok();
        line.and_then(|line| line["time"].as_f64()).unwrap_or(f64::NEG_INFINITY)
    }

    fn rewrite<'r>(
        &self,
        path: &Path,
        lines: &dyn Fn() -> io::Result<Records<'r, Vec<u8>>>,
    ) -> io::Result<()> {
        write_durably(path, |file| lines()?.try_for_each(|line| file.write_all(&line?)))
    }

    fn writer(&self, file: ResumableFile<TextLines>) -> io::Result<ResumableFile<TextLines>> {
        Ok(file)
    }
}
