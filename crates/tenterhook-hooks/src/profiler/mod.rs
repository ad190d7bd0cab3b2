//! Finds out where the time of training goes.

mod report;
#[cfg(test)]
mod tests;
mod times;

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook_core::{
    AfterBackward, AfterForward, AfterOptimizerStep, Cadence, FromOptions, HookResult, HookSpec, Moment,
    Observer, OptionError, Phase, TrainBatchEnd, TrainBatchStart, TrainEnd, TrainEpochEnd, TrainEpochStart,
    TrainStart, ValidationEnd, hook,
};

use report::Report;
use times::Times;

use crate::kept::Kept;
use crate::support::output_path;

/// The options of [`Profiler`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ProfilerOptions {
    /// The first so many batches warm up, also after a resume, and are not counted.
    pub skip_first_batches: u64,
    /// Print a table at the end of training.
    pub print: bool,
    /// A file to write the profile to at the end of training, as JSON. It is below the run directory; where there
    /// is none, beside the checkpoints.
    #[schemars(example = &"profile.json")]
    #[schemars(extend("minLength" = 1))]
    pub filename: Option<PathBuf>,
}

impl Default for ProfilerOptions {
    fn default() -> ProfilerOptions {
        ProfilerOptions { skip_first_batches: 3, print: true, filename: None }
    }
}

/// Measures what each part of a training batch takes: waiting for data, forward, backward, the optimizer (with
/// clipping), hooks, and the rest.
///
/// - **Fires** at `on_train_batch_start`, `on_after_forward`, `on_after_backward`, `on_after_optimizer_step` and
///   `on_train_batch_end`; sums up at `on_train_epoch_end` and `on_train_end`. Validations do not count. What the
///   module propagates and steps itself within its forward counts as backward and optimizer, and not twice; what
///   hooks do with activations counts as hooks and not as forward. Update hooks are hooks. `other` is what is left
///   of the time from batch to batch: schedulers, metrics, checkpoints.
/// - **Writes** `profile/data_wait_s`, `profile/forward_s`, `profile/backward_s`, `profile/optimizer_s`,
///   `profile/hooks_s` and `profile/other_s` at the end of every epoch: the seconds of this epoch. At the end of
///   training, the table: number, total, mean, p50, p99 and share. Times are counted in buckets that grow by 2.2 %,
///   so that p50 and p99 are within 1.1 % of the true ones, from 1 ns to almost 5 hours.
/// - **Cost**: about ten looks at the clock per batch, two more for each event that any hook receives, gradients
///   that live until the update is over, and 70 KB of memory, however long the run is.
/// - **When it fails**, because its file cannot be written, its policy decides: it is reported.
///
/// ```toml
/// [[hooks]]
/// use = "profiler"
/// skip_first_batches = 3
/// print = true
/// # filename: unset
/// ```
#[derive(Clone, Debug)]
pub struct Profiler {
    options: ProfilerOptions,
    memory: Kept<Memory>,
    /// The batches that this process has yet to warm up with.
    to_skip: u64,
    /// When the last batch, validation or start ended, and the time in hooks by then.
    since: (Duration, Duration),
    /// The time that hooks had spent on activations by then.
    at_points: Duration,
    /// What is known of the current batch.
    batch: [Option<Duration>; PARTS.len()],
}

/// What a checkpoint keeps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Memory {
    batches: u64,
    skipped: u64,
    times: [Times; PARTS.len()],
    /// Of this epoch alone.
    epoch: [Duration; PARTS.len()],
}

const PARTS: [&str; 6] = ["data_wait", "forward", "backward", "optimizer", "hooks", "other"];
const METRICS: [&str; 6] = [
    "profile/data_wait_s",
    "profile/forward_s",
    "profile/backward_s",
    "profile/optimizer_s",
    "profile/hooks_s",
    "profile/other_s",
];
const WAIT: usize = 0;
const FORWARD: usize = 1;
const BACKWARD: usize = 2;
const OPTIMIZER: usize = 3;
const HOOKS: usize = 4;
const OTHER: usize = 5;

impl FromOptions for Profiler {
    type Options = ProfilerOptions;
    const PURPOSE: &str =
        "measures where the time of training goes: data, forward, backward, optimizer, hooks";
    const EXAMPLE: &str = r#"
skip_first_batches = 10
filename = "profile.json"
"#;

    fn from_options(options: ProfilerOptions) -> Result<Profiler, OptionError> {
        if let Some(file) = &options.filename {
            output_path::check("filename", file, "profile.json")?;
        }
        let to_skip = options.skip_first_batches;
        let (memory, since, at_points, batch) = Default::default();
        Ok(Profiler { options, memory, to_skip, since, at_points, batch })
    }
}

impl Profiler {
    /// From here on, time belongs to the next batch.
    fn begin(&mut self, cx: &Moment<'_>) {
        self.since = (cx.elapsed(), cx.time_in_hooks());
        self.at_points = cx.time_at_points();
        self.batch = Default::default();
    }

    fn add(&mut self, part: usize, time: Duration) {
        *self.batch[part].get_or_insert_default() += time;
    }

    /// Sums up the batch that ends now.
    fn count(&mut self, cx: &Moment<'_>) {
        let (began, in_hooks) = self.since;
        self.add(HOOKS, cx.time_in_hooks().saturating_sub(in_hooks));
        let known: Duration = self.batch.iter().flatten().sum();
        self.add(OTHER, cx.elapsed().saturating_sub(began).saturating_sub(known));
        self.memory.batches = self.memory.batches.saturating_add(1);
        for (part, time) in self.batch.iter().enumerate() {
            let Some(time) = time else { continue };
            let Memory { times, epoch, .. } = &mut *self.memory;
            times[part].add(*time);
            epoch[part] = epoch[part].saturating_add(*time);
        }
    }

    fn write(&self, cx: &Moment<'_>, report: &Report) -> HookResult {
        let Some(filename) = &self.options.filename else { return Ok(()) };
        let Some(path) = cx.run.file(filename) else { return Ok(()) };
        let path = std::path::absolute(output_path::refuse_links(cx.run, path)?)?;
        let text = serde_json::to_string_pretty(report)? + "\n";
        let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        let options = &mut OpenOptions::new();
        let options = options.write(true).create(true).truncate(true);
        let opened = made.and_then(|()| output_path::open(cx.run, &path, options));
        opened.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|error| {
            format!("cannot write {}: {error}; choose another `filename`", path.display()).into()
        })
    }
}

#[hook(tier = "built_in", state = "memory")]
impl Observer for Profiler {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        let spec = METRICS.into_iter().fold(spec.measures_hooks(), HookSpec::writes);
        let file = self.options.filename.iter();
        let spec = file.fold(spec, |spec, file| output_path::declare(spec, "filename", file));
        let skips = self.options.skip_first_batches;
        spec.needs("skip_first_batches", Cadence::Batches(skips.saturating_add(1)))
    }

    fn on_train_start(&mut self, cx: &TrainStart) -> HookResult {
        if !self.memory.goes_on(cx) {
            *self.memory = Memory::default();
        }
        self.to_skip = self.options.skip_first_batches;
        self.begin(cx);
        Ok(())
    }

    fn on_train_epoch_start(&mut self, cx: &TrainEpochStart) -> HookResult {
        self.memory.epoch = Default::default();
        self.begin(cx);
        Ok(())
    }

    fn on_train_batch_start(&mut self, cx: &TrainBatchStart) -> HookResult {
        self.add(WAIT, cx.wait);
        Ok(())
    }

    fn on_after_forward(&mut self, cx: &AfterForward) -> HookResult {
        let by_the_module: Duration = [BACKWARD, OPTIMIZER].iter().filter_map(|part| self.batch[*part]).sum();
        let by_hooks = cx.time_at_points().saturating_sub(self.at_points);
        self.add(FORWARD, cx.duration.saturating_sub(by_the_module + by_hooks));
        Ok(())
    }

    fn on_after_backward(&mut self, cx: &AfterBackward) -> HookResult {
        self.add(BACKWARD, cx.duration);
        Ok(())
    }

    fn on_after_optimizer_step(&mut self, cx: &AfterOptimizerStep) -> HookResult {
        self.add(OPTIMIZER, cx.duration);
        Ok(())
    }

    fn on_train_batch_end(&mut self, cx: &TrainBatchEnd) -> HookResult {
        if self.to_skip > 0 {
            self.to_skip -= 1;
            self.memory.skipped += 1;
        } else {
            self.count(cx);
        }
        self.begin(cx);
        Ok(())
    }

    fn on_validation_end(&mut self, cx: &ValidationEnd) -> HookResult {
        if cx.phase == Phase::Validate {
            self.begin(cx);
        }
        Ok(())
    }

    fn on_train_epoch_end(&mut self, cx: &TrainEpochEnd) -> HookResult {
        for (name, time) in METRICS.into_iter().zip(self.memory.epoch) {
            cx.log(name, time.as_secs_f64());
        }
        Ok(())
    }

    fn on_train_end(&mut self, cx: &TrainEnd) -> HookResult {
        let report = Report::of(&self.memory.times, self.memory.batches, self.memory.skipped);
        if self.options.print {
            for line in report.lines() {
                cx.print(line);
            }
        }
        self.write(cx, &report)
    }
}
