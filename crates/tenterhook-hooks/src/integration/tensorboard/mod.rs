//! Writes metrics, histograms and images to an event file for TensorBoard.

mod entry;
mod event;
mod file;
mod image;
mod options;
mod record;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use tenterhook_core::tensor::Tensors;
use tenterhook_core::{
    BeforeOptimizerStep, Cadence, DeliveryStats, Event, FromOptions, HookResult, HookSpec, Log, Observer,
    OptionError, Phase, RunContext, Setup, StepEnd, TrainBatchStart, TrainStart, hook,
};

use entry::{Content, Entry, QueuedMemory};
use file::EventFormat;
#[cfg(test)]
pub(crate) use file::timeless;
use image::ImageLayout;
use options::Checked;
pub use options::{HistogramOf, TensorBoardOptions};

use crate::support::output_path;
use crate::support::sink::{self, SinkFile};
use crate::support::text::list;
use crate::worker::LazyWorker;

/// Writes an event file that TensorBoard shows: `tensorboard --logdir runs`.
///
/// - **Fires** at `on_log` and `on_train_start`; with `histograms` at `on_before_optimizer_step` and `on_step_end` of every
///   `histogram_every_n_steps`-th step; with `images` at `on_train_batch_start` of the first batch of every
///   `images_every_n_epochs`-th epoch. Not in a sanity check or a dry run.
/// - **Reads** each line of `metrics.jsonl` and `histograms.jsonl`, and gradients, parameters and tensors of the batch as the
///   options say. **Writes** `events.out.tfevents.<seconds>.<host>.<process>.0` in its directory: scalars under the names
///   of the metrics (TensorBoard stores 32-bit floats), logged histograms, its own histograms as `gradients/<name>` and
///   `weights/<name>`, images under the names of their tensors, each scaled from its minimum to its maximum, and at the
///   start of a run the resolved configuration as the text `config`. It reports `params` and `images` that match nothing. A
///   resumed run removes events after its checkpoint, restores missing events from `metrics.jsonl` and `histograms.jsonl`,
///   reports their number and continues. Own histograms and images that a killed run did not write are counted as missing.
///   A TensorBoard that is already running may have to be restarted. A run that restarts in its own directory removes the
///   event files of the first attempt.
/// - **Cost**: copies of metrics, gradients, parameters and images. A worker thread bins, compresses and writes; while more
///   than 256 MiB of values wait, the training thread bins them itself.
/// - **When it fails**: if the file cannot be written, the failure is reported, and the hook is disabled after three
///   failures (its policy). If the queue is full, the oldest entry is dropped and counted, or with `when_full = "block"`
///   training waits.
///
/// ```toml
/// [[hooks]]
/// use = "tensorboard"
/// dir = "tensorboard"
/// histograms = []
/// histogram_every_n_steps = 100
/// histogram_bins = 64
/// params = ["**"]
/// images_every_n_epochs = 1
/// max_images = 8
/// queue_size = 1000
/// when_full = "drop_oldest"
/// flush_timeout = "10 s"
/// ```
pub struct TensorBoard {
    options: TensorBoardOptions,
    checked: Checked,
    memory: SavedState,
    worker: LazyWorker<Entry>,
    queued: QueuedMemory,
    /// Seconds since 1970.
    now: fn() -> f64,
}

/// State saved in checkpoints.
#[derive(Default, Serialize, Deserialize)]
struct SavedState {
    file: SinkFile,
    /// Whether the notice about missing images was given.
    said: bool,
}

impl FromOptions for TensorBoard {
    type Options = TensorBoardOptions;
    const PURPOSE: &str = "writes metrics, histograms and images for TensorBoard";
    const EXAMPLE: &str = r#"
histograms = ["gradients", "weights"]
histogram_every_n_steps = 10
params = ["**.weight"]
images = "images"
"#;

    fn from_options(options: TensorBoardOptions) -> Result<TensorBoard, OptionError> {
        let (checked, (memory, worker, queued)) = (options.check()?, Default::default());
        Ok(TensorBoard { options, checked, memory, worker, queued, now: seconds_since_1970 })
    }
}

impl TensorBoard {
    #[cfg(test)]
    pub(crate) fn with_clock(self, now: fn() -> f64) -> TensorBoard {
        TensorBoard { now, ..self }
    }

    /// The directory of the file and whether only this run writes there; `None` if this call writes no files.
    fn directory(&self, run_cx: &RunContext<'_>) -> HookResult<Option<(PathBuf, bool)>> {
        let dir = &self.options.dir;
        let Some(directory) = sink::resolve(run_cx, dir)? else { return Ok(None) };
        let has_own_subdirectory = dir.is_absolute();
        let directory = if has_own_subdirectory { directory.join(&run_cx.run.id) } else { directory };
        let is_own = has_own_subdirectory || output_path::is_in_run(run_cx.run, &directory);
        Ok(Some((directory, is_own)))
    }

    /// Sends an entry if this call writes the file. `line` is the time of the line of `metrics.jsonl`, if it is one.
    fn send(
        &mut self,
        run_cx: &RunContext<'_>,
        (step, line): (u64, Option<f64>),
        content: impl FnOnce() -> Content,
    ) -> HookResult {
        let wall_time = (self.now)();
        if !self.ensure_open(run_cx, wall_time)? {
            return Ok(());
        }
        self.memory.file.count_sent(wall_time, line);
        self.worker.send(Entry { wall_time, step, content: content() })
    }

    /// Opens the file if it is not open. Returns whether this call writes it.
    fn ensure_open(&mut self, run_cx: &RunContext<'_>, wall_time: f64) -> HookResult<bool> {
        if !self.worker.is_running() {
            let Some((directory, _)) = self.directory(run_cx)? else { return Ok(false) };
            let host = || gethostname::gethostname().to_string_lossy().into_owned();
            let known = self.memory.file.path_in(run_cx, &self.options.dir, &directory)?;
            let path = known.unwrap_or_else(|| directory.join(file::name(wall_time, &host())));
            let (paths, format) = ((&*self.options.dir, path), EventFormat { wall_time });
            let file = self.memory.file.open(run_cx, paths, &format)?;
            self.worker.get_or_start(&run_cx.hook_name(), self.checked.queue, || file)?;
        }
        Ok(true)
    }

    fn is_due(&self, run_cx: &RunContext<'_>, what: HistogramOf) -> bool {
        self.options.wants(what)
            && run_cx.progress.current_step().is_multiple_of(self.options.histogram_every_n_steps)
    }

    /// Sends the values of the selected tensors.
    fn send_values(&mut self, run_cx: &RunContext<'_>, of: &str, tensors: &Tensors<'_>) -> HookResult {
        let (params, queued) = (self.checked.params.clone(), self.queued.clone());
        let bins = self.options.histogram_bins;
        if !tensors.iter().any(|tensor| params.matches(tensor.name())) {
            return Ok(());
        }
        self.send(run_cx, (run_cx.progress.current_step(), None), || {
            let selected = tensors.iter().filter(|tensor| params.matches(tensor.name()));
            let values =
                selected.map(|tensor| (format!("{of}/{}", tensor.name()), queued.values(&tensor, bins)));
            Content::Values { by_tag: values.collect(), bins }
        })
    }

    /// Reports once why there are no images.
    fn say_once(&mut self, run_cx: &RunContext<'_>, text: impl FnOnce() -> String) {
        if !std::mem::replace(&mut self.memory.said, true) {
            run_cx.say(text());
        }
    }

    fn send_images(&mut self, cx: &TrainBatchStart<'_>) -> HookResult {
        let Some(pattern) = self.checked.images.clone() else { return Ok(()) };
        let tensors = &cx.batch.tensors;
        let mut is_there = false;
        for tensor in tensors.iter().filter(|tensor| pattern.matches(tensor.name())) {
            is_there = true;
            let (name, shape) = (tensor.name(), tensor.shape());
            let Some(layout) = ImageLayout::of(shape) else {
                self.say_once(cx, || {
                    format!(
                        "`images`: `{name}` has the shape {shape:?}, which is not one of images: [N, H, W], [N, C, H, W] \
                         with 1 or 3 channels, or [H, W]"
                    )
                });
                continue;
            };
            let values = tensor.slice(&layout.first(self.options.max_images))?;
            self.send(cx, (cx.step, None), || Content::Images { tag: name.to_owned(), layout, values })?;
        }
        if !is_there {
            self.say_once(cx, || {
                let names: Vec<_> = tensors.iter().map(|tensor| tensor.name().to_owned()).collect();
                let available = if names.is_empty() {
                    "it has no tensors".into()
                } else {
                    format!("there are: {}", list(&names))
                };
                format!("`images`: no tensor of the batch matches `{pattern}`; {available}")
            });
        }
        Ok(())
    }
}

fn seconds_since_1970() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

#[hook(name = "tensorboard", tier = "built_in", state = "memory", version = 2)]
impl Observer for TensorBoard {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        let spec = spec
            .wants_if(Event::BeforeOptimizerStep, self.options.wants(HistogramOf::Gradients))
            .wants_if(Event::StepEnd, self.options.wants(HistogramOf::Weights))
            .wants_if(Event::TrainBatchStart, self.options.images.is_some());
        let TensorBoardOptions { dir, histograms, histogram_every_n_steps: every, .. } = &self.options;
        let spec = output_path::declare(spec, "dir", dir);
        if histograms.is_empty() {
            return spec;
        }
        let cadence = Cadence::Steps(*every);
        spec.throttle(cadence).ignores_grad_norm().min_run_length("histogram_every_n_steps", cadence)
    }

    fn setup(&mut self, _: &Setup) -> HookResult {
        self.worker.begin_call();
        Ok(())
    }

    fn on_train_start(&mut self, cx: &TrainStart) -> HookResult {
        let continues = cx.total_batches > 0 && self.memory.file.was_written();
        let own = self.directory(cx)?.filter(|(_, is_own)| *is_own);
        let own = own.map(|(directory, _)| directory);
        self.memory.file.begin_training(cx, &self.options.dir, own)?;
        if !self.options.histograms.is_empty() {
            self.checked.params.report_unmatched(cx);
        }
        if self.memory.file.is_resumed() {
            self.ensure_open(cx, (self.now)())?;
        }
        if continues && self.memory.file.own_records() > 0 {
            return Ok(());
        }
        self.send(cx, (cx.step, None), || Content::Config(cx.config.clone()))
    }

    fn on_log(&mut self, cx: &Log) -> HookResult {
        if cx.logged_in == Phase::SanityCheck || cx.metrics.is_empty() && cx.histograms.is_empty() {
            return Ok(());
        }
        let line = || Content::Line { metrics: cx.metrics.clone(), histograms: cx.histograms.clone() };
        self.send(cx, (cx.step, Some(cx.time)), line)
    }

    fn on_train_batch_start(&mut self, cx: &TrainBatchStart) -> HookResult {
        let is_due = cx.batch.index == 0 && cx.epoch.is_multiple_of(self.options.images_every_n_epochs);
        if cx.count_call_if(is_due) { self.send_images(cx) } else { Ok(()) }
    }

    fn on_before_optimizer_step(&mut self, cx: &BeforeOptimizerStep) -> HookResult {
        if cx.count_call_if(self.is_due(cx, HistogramOf::Gradients)) {
            return self.send_values(cx, "gradients", &cx.gradients);
        }
        Ok(())
    }

    fn on_step_end(&mut self, cx: &StepEnd) -> HookResult {
        if cx.count_call_if(self.is_due(cx, HistogramOf::Weights)) {
            return self.send_values(cx, "weights", &cx.params());
        }
        Ok(())
    }

    fn finish(&mut self) -> HookResult {
        self.worker.finish()
    }

    fn delivery_stats(&self) -> Option<DeliveryStats> {
        self.worker.delivery_stats()
    }
}
