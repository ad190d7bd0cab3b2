//! Writes what is logged into an event file for TensorBoard.

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
    BeforeOptimizerStep, Cadence, Event, FromOptions, HookResult, HookSpec, Log, Moment, Observer,
    OptionError, Phase, Sent, Setup, State, StepEnd, TrainBatchStart, TrainStart, hook,
};

use entry::{Entry, Held, What};
use file::EventFormat;
#[cfg(test)]
pub(crate) use file::timeless;
use image::Layout;
use options::Choice;
pub use options::{HistogramOf, TensorBoardOptions};

use crate::own_file;
use crate::sink::{SinkFile, SinkPosition};
use crate::text::listed;

/// Writes an event file that TensorBoard shows: `tensorboard --logdir runs`.
///
/// - **Fires** at `on_log`, and at `on_train_start`; with `histograms` at `on_before_optimizer_step` and `on_step_end` of
///   the steps that are multiples of `histogram_every_n_steps`, with `images` at `on_train_batch_start` of the first batch of
///   every `images_every_n_epochs` epochs. Not in a sanity check, nor in a dry run.
/// - **Reads** the numbers and histograms of each line of `metrics.jsonl` and `histograms.jsonl`, gradients, parameters and
///   tensors of the batch as its options say. **Writes** `events.out.tfevents.<seconds>.<host>.<process>.0` in its
///   directory: scalars under the names of the metrics (TensorBoard keeps 32 bits of a number), the histograms that were
///   logged, its own as `gradients/<name>` and `weights/<name>`, pictures under the name of their tensor, each from its smallest value
///   to its largest, and at the start of a run its resolved configuration as the text `config`. It says which of the `params`
///   and `images` there are not. A resumed run cuts the file back to what was logged before its checkpoint, restores from
///   `metrics.jsonl` and `histograms.jsonl` what is missing there, says how much, and continues. Its own histograms and
///   images that were not written when the run was killed are counted as missing. A TensorBoard that was open
///   meanwhile may have to be started again. A run that begins again in its own directory removes the event files of its
///   first attempt.
/// - **Cost**: a copy of the numbers, gradients, parameters and pictures. Its own thread counts, compresses and writes;
///   while more than 256 MiB of values wait for it, they are counted at once.
/// - **When it fails**, because the file cannot be written, its policy decides: it is reported, and the hook
///   disabled after three failures. Where more waits than `queue_size`, the oldest is dropped and counted, or with
///   `when_full = "block"` training waits.
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
    choice: Choice,
    file: SinkFile<Entry>,
    held: Held,
    /// It was said that there are no pictures.
    said: bool,
    /// Seconds since 1970.
    now: fn() -> f64,
}

/// What a checkpoint keeps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Memory {
    file: Option<SinkPosition>,
    said: bool,
}

const VERSION: u32 = 2;

impl FromOptions for TensorBoard {
    type Options = TensorBoardOptions;
    const PURPOSE: &str = "writes what is logged, histograms and pictures for TensorBoard";
    const EXAMPLE: &str = r#"
histograms = ["gradients", "weights"]
histogram_every_n_steps = 10
params = ["**.weight"]
images = "images"
"#;

    fn from_options(options: TensorBoardOptions) -> Result<TensorBoard, OptionError> {
        TensorBoard::new(options)
    }
}

impl TensorBoard {
    /// With these options, which are checked.
    pub fn new(options: TensorBoardOptions) -> Result<TensorBoard, OptionError> {
        let choice = options.check()?;
        let (file, held) = (SinkFile::new(&options.dir), Held::default());
        Ok(TensorBoard { options, choice, file, held, said: false, now: seconds_since_1970 })
    }

    #[cfg(test)]
    pub(crate) fn with_clock(self, now: fn() -> f64) -> TensorBoard {
        TensorBoard { now, ..self }
    }

    /// Where the file is to be, if there is to be one, and whether nobody else writes there.
    fn directory(&self, moment: &Moment<'_>) -> HookResult<Option<(PathBuf, bool)>> {
        let dir = &self.options.dir;
        let Some(place) = own_file::place(moment.run, dir)? else { return Ok(None) };
        let is_shared = dir.is_absolute();
        let place = if is_shared { place.join(&moment.run.id) } else { place };
        // The working directory may be another one when the run is resumed.
        let place = std::path::absolute(place)?;
        let is_own = is_shared || own_file::is_own(moment.run, &place);
        Ok(Some((place, is_own)))
    }

    /// Hands over what `what` makes, if the file is written in this call. `line` is the time of the line of
    /// `metrics.jsonl`, if it is one.
    fn send(
        &mut self,
        moment: &Moment<'_>,
        (step, line): (u64, Option<f64>),
        what: impl FnOnce() -> What,
    ) -> HookResult {
        let wall_time = (self.now)();
        if !self.is_open(moment, wall_time)? {
            return Ok(());
        }
        self.file.send(Entry { wall_time, step, what: what() }, wall_time, line)
    }

    /// Whether the file is written in this call; its worker runs from here on.
    fn is_open(&mut self, moment: &Moment<'_>, wall_time: f64) -> HookResult<bool> {
        if !self.file.is_open() {
            let Some((directory, _)) = self.directory(moment)? else { return Ok(false) };
            let host = || gethostname::gethostname().to_string_lossy().into_owned();
            let known = self.file.path_in(moment, &directory)?;
            let path = known.unwrap_or_else(|| directory.join(file::name(wall_time, &host())));
            self.file.open(moment, self.choice.queue, path, &EventFormat { wall_time })?;
        }
        Ok(true)
    }

    fn is_due(&self, moment: &Moment<'_>, what: HistogramOf) -> bool {
        self.options.wants(what)
            && moment.progress.current_step().is_multiple_of(self.options.histogram_every_n_steps)
    }

    /// The values of the chosen ones of these tensors.
    fn send_values(&mut self, moment: &Moment<'_>, of: &str, tensors: &Tensors<'_>) -> HookResult {
        let (params, held) = (self.choice.params.clone(), self.held.clone());
        let bins = self.options.histogram_bins;
        if !tensors.iter().any(|tensor| params.matches(tensor.name())) {
            return Ok(());
        }
        self.send(moment, (moment.progress.current_step(), None), || {
            let chosen = tensors.iter().filter(|tensor| params.matches(tensor.name()));
            let spread = chosen.map(|tensor| (format!("{of}/{}", tensor.name()), held.spread(&tensor, bins)));
            What::Values { of: spread.collect(), bins }
        })
    }

    /// Says once why there are no pictures.
    fn say_once(&mut self, moment: &Moment<'_>, text: impl FnOnce() -> String) {
        if !std::mem::replace(&mut self.said, true) {
            moment.say(text());
        }
    }

    fn send_images(&mut self, cx: &TrainBatchStart<'_>) -> HookResult {
        let Some(pattern) = self.choice.images.clone() else { return Ok(()) };
        let tensors = &cx.batch.tensors;
        let mut is_there = false;
        for tensor in tensors.iter().filter(|tensor| pattern.matches(tensor.name())) {
            is_there = true;
            let (name, shape) = (tensor.name(), tensor.shape());
            let Some(layout) = Layout::of(shape) else {
                self.say_once(cx, || {
                    format!(
                        "`images`: `{name}` has the shape {shape:?}, which is no pictures; they are [N, H, W], [N, C, H, W] \
                         with 1 or 3 channels, or [H, W]"
                    )
                });
                continue;
            };
            let values = tensor.slice(&layout.first(self.options.max_images))?;
            self.send(cx, (cx.step, None), || What::Images { tag: name.to_owned(), layout, values })?;
        }
        if !is_there {
            self.say_once(cx, || {
                let names: Vec<_> = tensors.iter().map(|tensor| tensor.name().to_owned()).collect();
                let there = if names.is_empty() {
                    "it has none".into()
                } else {
                    format!("there are: {}", listed(&names))
                };
                format!("`images`: no tensor of the batch matches `{pattern}`; {there}")
            });
        }
        Ok(())
    }
}

fn seconds_since_1970() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

#[hook(name = "tensorboard", tier = "built_in")]
impl Observer for TensorBoard {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        let spec = spec
            .wants_if(Event::BeforeOptimizerStep, self.options.wants(HistogramOf::Gradients))
            .wants_if(Event::StepEnd, self.options.wants(HistogramOf::Weights))
            .wants_if(Event::TrainBatchStart, self.options.images.is_some());
        let TensorBoardOptions { dir, histograms, histogram_every_n_steps: every, .. } = &self.options;
        let spec = own_file::declared(spec, "dir", dir);
        if histograms.is_empty() {
            return spec;
        }
        let cadence = Cadence::Steps(*every);
        spec.paced(cadence).leaves_grad_norm().needs("histogram_every_n_steps", cadence)
    }

    fn setup(&mut self, _: &Setup) -> HookResult {
        self.file.begin_call();
        Ok(())
    }

    fn on_train_start(&mut self, cx: &TrainStart) -> HookResult {
        let continues = cx.total_batches > 0 && self.file.continues();
        let own = self.directory(cx)?.filter(|(_, is_own)| *is_own);
        self.file.begin(cx, own.map(|(directory, _)| directory))?;
        if !self.options.histograms.is_empty() {
            self.choice.params.report_unmatched(cx);
        }
        if self.file.is_resumed() {
            self.is_open(cx, (self.now)())?;
        }
        if continues && self.file.has_head() {
            return Ok(());
        }
        self.send(cx, (cx.step, None), || What::Config(cx.config.clone()))
    }

    fn on_log(&mut self, cx: &Log) -> HookResult {
        if cx.of == Phase::SanityCheck || cx.metrics.is_empty() && cx.histograms.is_empty() {
            return Ok(());
        }
        let line = || What::Line { metrics: cx.metrics.clone(), histograms: cx.histograms.clone() };
        self.send(cx, (cx.step, Some(cx.time)), line)
    }

    fn on_train_batch_start(&mut self, cx: &TrainBatchStart) -> HookResult {
        let is_due = cx.batch.index == 0 && cx.epoch.is_multiple_of(self.options.images_every_n_epochs);
        if cx.paced(is_due) { self.send_images(cx) } else { Ok(()) }
    }

    fn on_before_optimizer_step(&mut self, cx: &BeforeOptimizerStep) -> HookResult {
        if cx.paced(self.is_due(cx, HistogramOf::Gradients)) {
            return self.send_values(cx, "gradients", &cx.gradients);
        }
        Ok(())
    }

    fn on_step_end(&mut self, cx: &StepEnd) -> HookResult {
        if cx.paced(self.is_due(cx, HistogramOf::Weights)) {
            return self.send_values(cx, "weights", &cx.params());
        }
        Ok(())
    }

    fn finish(&mut self) -> HookResult {
        self.file.finish()
    }

    fn sent(&self) -> Option<Sent> {
        self.file.sent()
    }

    fn state_dict(&self) -> HookResult<State> {
        Ok(State::of(VERSION, &Memory { file: self.file.position(), said: self.said })?)
    }

    fn check_state_dict(&self, state: &State) -> HookResult {
        Ok(state.read::<Memory>(VERSION).map(drop)?)
    }

    fn load_state_dict(&mut self, state: &State) -> HookResult {
        let memory: Memory = state.read(VERSION)?;
        self.file.load(memory.file);
        self.said = memory.said;
        Ok(())
    }
}
