//! Writes events to a JSON Lines file.

mod line;
#[cfg(test)]
mod tests;

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tenterhook_core::{
    Cadence, Exception, FromOptions, HookResult, HookSpec, LogPosition, Observer, OptionError, Phase,
    RunContext, Scalar, Stage, StepEnd, TestEnd, TestStart, TrainBatchEnd, TrainEnd, TrainEpochEnd,
    TrainEpochStart, TrainStart, ValidationEnd, ValidationStart, hook,
};
use tenterhook_files::{FilePosition, RelPath, ResumableFile, TextLines};

use line::{Line, LineFields};

use crate::support::checks;
use crate::support::options;
use crate::support::output_path::{self, OutputRoot};

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
///   `"inf"` or `"-inf"`. A resumed run truncates its file to the length at the checkpoint and continues; a file that
///   another run has extended since is appended to.
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
    evaluation: LogPosition,
}

/// State saved in checkpoints.
#[derive(Debug, Default, Serialize, Deserialize)]
struct SavedState {
    /// The position at the end of the open file, or the checkpoint's position until the file is opened.
    position: Option<FilePosition>,
    #[serde(skip)]
    open: Option<ResumableFile<TextLines>>,
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
        let (memory, evaluation) = Default::default();
        Ok(Jsonl { options, memory, evaluation })
    }
}

impl Jsonl {
    fn is_due(&self, cx: &RunContext<'_>) -> bool {
        cx.total_batches.is_multiple_of(self.options.log_every_n_batches)
    }

    /// The path of the file; `None` if this call writes no files.
    fn path(&self, cx: &RunContext<'_>) -> HookResult<Option<PathBuf>> {
        let path = output_path::resolve(cx.run, &self.options.path);
        let path = path.map_err(|error| cannot(&self.options.path, &error))?;
        let Some(path) = path else { return Ok(None) };
        // A resumed run may have another working directory.
        Ok(Some(std::path::absolute(&path).map_err(|error| cannot(&path, &error))?))
    }

    /// The open file. A resumed run continues it at the position of its checkpoint.
    fn open(&mut self, cx: &RunContext<'_>) -> HookResult<Option<&mut ResumableFile<TextLines>>> {
        let Some(path) = self.path(cx)? else { return Ok(None) };
        if self.memory.open.as_ref().is_none_or(|file| file.path() != path) {
            let name = self.name(cx, &path)?;
            let resumed = self.memory.position.as_ref().filter(|_| self.memory.open.is_none());
            // An evaluation of an older checkpoint must not truncate later lines.
            let resumed = resumed.filter(|at| at.file == name && cx.stage == Stage::Fit);
            let file = open(cx, &path, resumed).map_err(|error| cannot(&path, &error))?;
            self.memory.position = Some(FilePosition { file: name, length: file.length() });
            self.memory.open = Some(file);
        }
        Ok(self.memory.open.as_mut())
    }

    /// A run that starts in its own directory overwrites the file of an earlier attempt that was killed before its first
    /// checkpoint.
    fn overwrite_earlier_attempt(&mut self, cx: &RunContext<'_>) -> HookResult {
        if cx.total_batches > 0 || self.memory.position.is_some() {
            return Ok(());
        }
        let Some(directory) = &cx.run.directory else { return Ok(()) };
        let directory = std::path::absolute(directory).map_err(|error| cannot(directory, &error))?;
        let own = self.path(cx)?.filter(|path| path.starts_with(directory));
        let name = own.map(|path| self.name(cx, &path)).transpose()?;
        self.memory.position = name.map(|file| FilePosition { file, length: 0 });
        Ok(())
    }

    /// Whether the run continues its file exactly where its checkpoint was taken.
    fn continues_file(&mut self, cx: &RunContext<'_>) -> HookResult<bool> {
        let position = self.memory.position.clone().filter(|at| at.length > 0 && self.memory.open.is_none());
        let Some(resumed) = position else { return Ok(false) };
        self.open(cx)?;
        Ok(self.memory.open.is_some() && self.memory.position == Some(resumed))
    }

    /// The name of the file in checkpoints.
    fn name(&self, cx: &RunContext<'_>, path: &Path) -> HookResult<RelPath> {
        Ok(OutputRoot::of(cx.run, &self.options.path)?.name(path)?)
    }

    /// Appends a line.
    fn write(&mut self, cx: &RunContext<'_>, fields: LineFields<'_>) -> HookResult {
        let Some(file) = self.open(cx)? else { return Ok(()) };
        let mut text = serde_json::to_vec(&Line::of(cx, fields))?;
        text.push(b'\n');
        file.push(&text).map_err(|error| cannot(file.path(), &error))?;
        let length = file.length();
        if let Some(position) = &mut self.memory.position {
            position.length = length;
        }
        Ok(())
    }
}

/// Opens the file at its end, or at the position of a checkpoint. If no line ends there, another run has written to the file
/// since, and all of it is kept.
fn open(
    cx: &RunContext<'_>,
    path: &Path,
    resumed: Option<&FilePosition>,
) -> io::Result<ResumableFile<TextLines>> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    let file = output_path::open(cx.run, path, OpenOptions::new().read(true).append(true).create(true))?;
    let mut file = ResumableFile::of(path, file)?;
    if let Some(position) = resumed {
        if let Some(missing) = position.missing(path, file.length()) {
            cx.say(missing);
        } else if file.end_within(position.length)? == position.length {
            file.truncate(position.length)?;
        }
    }
    Ok(file)
}

fn cannot(path: &Path, error: &dyn std::error::Error) -> String {
    format!("cannot write {}: {error}; make room, or choose another `path`", path.display())
}

#[hook(name = "json_log", tier = "built_in", state = "memory", version = 3)]
impl Observer for Jsonl {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        let spec = output_path::declare(spec.ignores_grad_norm(), "path", &self.options.path);
        let every = self.options.log_every_n_batches;
        spec.min_run_length("log_every_n_batches", Cadence::Batches(every))
    }

    fn on_train_start(&mut self, cx: &TrainStart) -> HookResult {
        self.overwrite_earlier_attempt(cx)?;
        if cx.total_batches == 0 {
            (self.memory.lr, self.memory.lr_of) = (None, 0);
        }
        if self.continues_file(cx)? {
            // The file already has the line `train_start`.
            return Ok(());
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
}
