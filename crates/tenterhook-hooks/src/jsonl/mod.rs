//! Writes what happens into a file of JSON lines.

mod line;
#[cfg(test)]
mod tests;

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook_core::{
    Cadence, Exception, FromOptions, HookResult, HookSpec, Mark, Moment, Observer, OptionError, Phase,
    Scalar, Stage, State, StepEnd, TestEnd, TestStart, TrainBatchEnd, TrainEnd, TrainEpochEnd,
    TrainEpochStart, TrainStart, ValidationEnd, ValidationStart, hook,
};
use tenterhook_files::{FilePosition, RelPath, ResumableFile, TextLines};

use line::{Line, What};

use crate::own_file::{self, Base};
use crate::support::checks;

/// The options of [`Jsonl`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct JsonlOptions {
    /// Write a line after every so many batches, counted over all epochs.
    #[schemars(range(min = 1))]
    pub log_every_n_batches: u64,
    /// The file. A relative one is below the run directory; where there is none, beside the checkpoints.
    #[schemars(extend("minLength" = 1))]
    pub path: PathBuf,
}

impl Default for JsonlOptions {
    fn default() -> JsonlOptions {
        JsonlOptions { log_every_n_batches: 100, path: "json_log.jsonl".into() }
    }
}

impl From<u64> for JsonlOptions {
    /// A line after every so many batches.
    fn from(log_every_n_batches: u64) -> JsonlOptions {
        JsonlOptions { log_every_n_batches, ..JsonlOptions::default() }
    }
}

/// Writes a structured log: one JSON object per line, append-only.
///
/// - **Fires** at `on_train_start`, at `on_train_batch_end` after every `log_every_n_batches` batches,
///   at `on_train_epoch_end`, `on_validation_end`, `on_test_end`, `on_train_end` and `on_exception`. Not in a
///   sanity check, nor in a dry run.
/// - **Reads** the losses, on the batches it writes and no others. **Writes** its file. Every line has `event`
///   (`train_start`, `batch`, `epoch_end`, `validation_end`, `test_end`, `train_end` or `exception`), `time` in
///   seconds since the run began, `epoch` from 0, and `step`; then what belongs to the event: `batch` from 0,
///   `loader`, `loss`, `average_loss`, `lr` (that the last update used, of the first parameter group; of several
///   updates in one batch, the first; `null` before the first update), the `metrics` that were logged in this batch, epoch or evaluation, the `outcome`, the `error`. What
///   is no number in JSON is `"nan"`, `"inf"` or `"-inf"`. A resumed run cuts its file back to the length it had
///   at the checkpoint, where it is the same file, and goes on there as if nothing had happened; one that another
///   run has gone on with since stays as it is.
/// - **Cost**: a line that is flushed, and the reading of the losses since the last one; on other batches a
///   division.
/// - **When it fails**, because the file cannot be written, its policy decides: it is reported, and the hook
///   disabled after three failures.
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
    /// The file, with the name that a checkpoint gives it.
    file: Option<(RelPath, ResumableFile<TextLines>)>,
    /// The position of a checkpoint, until the file is opened.
    resumed: Option<FilePosition>,
    epoch: Mark,
    batch: Mark,
    evaluation: Mark,
    /// The learning rate that the first update of batch `lr_of` used, the last that made any.
    lr: Option<f64>,
    lr_of: u64,
}

/// What a checkpoint keeps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Memory {
    file: Option<FilePosition>,
    epoch: Mark,
    batch: Mark,
    #[serde(with = "tenterhook_core::number::option")]
    lr: Option<f64>,
    lr_of: u64,
}

const VERSION: u32 = 3;

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
        own_file::check("path", &options.path, "json_log.jsonl")?;
        let (epoch, batch, evaluation) = Default::default();
        Ok(Jsonl { options, file: None, resumed: None, epoch, batch, evaluation, lr: None, lr_of: 0 })
    }
}

impl Jsonl {
    fn is_due(&self, cx: &Moment<'_>) -> bool {
        cx.total_batches.is_multiple_of(self.options.log_every_n_batches)
    }

    /// Where the file is, if there is to be one.
    fn place(&self, cx: &Moment<'_>) -> HookResult<Option<PathBuf>> {
        let path = own_file::place(cx.run, &self.options.path);
        let path = path.map_err(|error| cannot(&self.options.path, &error))?;
        let Some(path) = path else { return Ok(None) };
        // The working directory may be another one when the run is resumed.
        Ok(Some(std::path::absolute(&path).map_err(|error| cannot(&path, &error))?))
    }

    /// Opens the file. A resumed run continues it where its checkpoint was.
    fn open(&mut self, cx: &Moment<'_>) -> HookResult<Option<&mut ResumableFile<TextLines>>> {
        let Some(path) = self.place(cx)? else { return Ok(None) };
        if self.file.as_ref().is_none_or(|(_, file)| file.path() != path) {
            let name = self.name(cx, &path)?;
            // An evaluation of an older checkpoint must not cut off what came after it.
            let resumed = self.resumed.as_ref().filter(|at| at.file == name && cx.stage == Stage::Fit);
            let file = opened(cx, &path, resumed).map_err(|error| cannot(&path, &error))?;
            (self.file, self.resumed) = (Some((name, file)), None);
        }
        Ok(self.file.as_mut().map(|(_, file)| file))
    }

    /// A run that begins in its own directory finds nothing there but what it wrote itself, before it was killed
    /// without a checkpoint to go on from.
    fn begin_anew(&mut self, cx: &Moment<'_>) -> HookResult {
        if cx.total_batches > 0 || self.resumed.is_some() || self.file.is_some() {
            return Ok(());
        }
        let Some(directory) = &cx.run.directory else { return Ok(()) };
        let directory = std::path::absolute(directory).map_err(|error| cannot(directory, &error))?;
        let own = self.place(cx)?.filter(|path| path.starts_with(directory));
        let name = own.map(|path| self.name(cx, &path)).transpose()?;
        self.resumed = name.map(|file| FilePosition { file, length: 0 });
        Ok(())
    }

    /// Whether the run goes on in the file that its checkpoint knew, where it was.
    fn goes_on(&mut self, cx: &Moment<'_>) -> HookResult<bool> {
        let Some(resumed) = self.resumed.clone().filter(|at| at.length > 0) else { return Ok(false) };
        self.open(cx)?;
        Ok(self.position() == Some(resumed))
    }

    /// How far the file is written.
    fn position(&self) -> Option<FilePosition> {
        let (name, file) = self.file.as_ref()?;
        Some(FilePosition { file: name.clone(), length: file.length() })
    }

    /// The file as a checkpoint names it.
    fn name(&self, cx: &Moment<'_>, path: &Path) -> HookResult<RelPath> {
        Ok(Base::of(cx.run, &self.options.path)?.name(path)?)
    }

    /// Adds a line.
    fn write(&mut self, cx: &Moment<'_>, what: What<'_>) -> HookResult {
        let Some(file) = self.open(cx)? else { return Ok(()) };
        let mut text = serde_json::to_vec(&Line::of(cx, what))?;
        text.push(b'\n');
        Ok(file.push(&text).map_err(|error| cannot(file.path(), &error))?)
    }
}

/// Opens the file at its end, or at the position of a checkpoint. Where no line ends there, another run has written to
/// the file since, and all of it stays.
fn opened(
    cx: &Moment<'_>,
    path: &Path,
    resumed: Option<&FilePosition>,
) -> io::Result<ResumableFile<TextLines>> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    let file = own_file::open(cx.run, path, OpenOptions::new().read(true).append(true).create(true))?;
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

#[hook(name = "json_log", tier = "built_in")]
impl Observer for Jsonl {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        let spec = own_file::declared(spec.leaves_grad_norm(), "path", &self.options.path);
        let every = self.options.log_every_n_batches;
        spec.needs("log_every_n_batches", Cadence::Batches(every))
    }

    fn on_train_start(&mut self, cx: &TrainStart) -> HookResult {
        self.begin_anew(cx)?;
        if cx.total_batches == 0 {
            (self.lr, self.lr_of) = (None, 0);
        }
        if self.goes_on(cx)? {
            // Its start stands in the file already.
            return Ok(());
        }
        let run = cx.run;
        let what = What::TrainStart {
            run: &run.id,
            resumed: cx.total_batches > 0,
            parameters: run.parameters,
            total_epochs: run.total_epochs,
            total_batches: run.total_batches,
        };
        self.write(cx, what)
    }

    fn on_train_epoch_start(&mut self, cx: &TrainEpochStart) -> HookResult {
        (self.epoch, self.batch) = (cx.metrics().mark(), cx.metrics().mark());
        Ok(())
    }

    fn on_train_batch_end(&mut self, cx: &TrainBatchEnd) -> HookResult {
        let mut written = Ok(());
        if cx.paced(self.is_due(cx)) {
            let what = What::Batch {
                batch: cx.batch.index,
                loader: cx.batch.loader,
                loss: cx.loss.as_ref().map(Scalar::value),
                average_loss: cx.average_loss(),
                lr: self.lr,
                metrics: cx.metrics().since(self.batch),
            };
            written = self.write(cx, what);
        }
        self.batch = cx.metrics().mark();
        written
    }

    fn on_step_end(&mut self, cx: &StepEnd) -> HookResult {
        if self.lr_of != cx.total_batches {
            (self.lr, self.lr_of) = (Some(cx.lr), cx.total_batches);
        }
        Ok(())
    }

    fn on_train_epoch_end(&mut self, cx: &TrainEpochEnd) -> HookResult {
        let metrics = cx.metrics().since(self.epoch);
        self.write(cx, What::EpochEnd { average_loss: cx.average_loss(), metrics })
    }

    fn on_validation_start(&mut self, cx: &ValidationStart) -> HookResult {
        self.evaluation = cx.metrics().mark();
        Ok(())
    }

    fn on_validation_end(&mut self, cx: &ValidationEnd) -> HookResult {
        if cx.phase == Phase::SanityCheck {
            return Ok(());
        }
        self.batch = cx.metrics().mark();
        let metrics = cx.metrics().since(self.evaluation);
        self.write(cx, What::ValidationEnd { stage: cx.stage, metrics })
    }

    fn on_test_start(&mut self, cx: &TestStart) -> HookResult {
        self.evaluation = cx.metrics().mark();
        Ok(())
    }

    fn on_test_end(&mut self, cx: &TestEnd) -> HookResult {
        let metrics = cx.metrics().since(self.evaluation);
        self.write(cx, What::TestEnd { metrics })
    }

    fn on_train_end(&mut self, cx: &TrainEnd) -> HookResult {
        self.write(cx, What::TrainEnd { outcome: cx.outcome, metrics: cx.metrics().to_map() })
    }

    fn on_exception(&mut self, cx: &Exception) -> HookResult {
        let failure = cx.failure;
        let (origin, error) = (failure.origin.to_string(), failure.error.to_string());
        self.write(cx, What::Exception { origin, place: failure.place, error })
    }

    fn state_dict(&self) -> HookResult<State> {
        let file = self.position().or(self.resumed.clone());
        let Jsonl { epoch, batch, lr, lr_of, .. } = *self;
        Ok(State::of(VERSION, &Memory { file, epoch, batch, lr, lr_of })?)
    }

    fn check_state_dict(&self, state: &State) -> HookResult {
        Ok(state.read::<Memory>(VERSION).map(drop)?)
    }

    fn load_state_dict(&mut self, state: &State) -> HookResult {
        let memory: Memory = state.read(VERSION)?;
        (self.resumed, self.epoch, self.batch) = (memory.file, memory.epoch, memory.batch);
        (self.lr, self.lr_of) = (memory.lr, memory.lr_of);
        self.file = None;
        Ok(())
    }
}
