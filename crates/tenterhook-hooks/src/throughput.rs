//! Measures how fast training goes.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook_core::{
    BeforeForward, Cadence, FromOptions, HookResult, HookSpec, Moment, Observer, OptionError, Phase,
    Progress, Stage, TrainBatchEnd, TrainEnd, TrainEpochEnd, TrainStart, ValidationEnd, ValidationStart,
    hook,
};

use crate::checks;
use crate::kept::Kept;
use crate::stopwatch::Stopwatch;

/// The options of [`Throughput`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ThroughputOptions {
    /// Measure and log every so many optimizer steps.
    #[schemars(range(min = 1))]
    pub every_n_steps: u64,
    /// How much of the average so far each measurement keeps, from 0 (nothing is smoothed) to below 1.
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub smoothing: f64,
}

impl Default for ThroughputOptions {
    fn default() -> ThroughputOptions {
        ThroughputOptions { every_n_steps: 10, smoothing: 0.9 }
    }
}

/// Logs samples, tokens and batches per second.
///
/// - **Fires** at `on_train_batch_end`, after every `every_n_steps` optimizer steps, and says at `on_train_end` what
///   the whole of training came to.
/// - **Writes** `throughput/samples_per_s`, `throughput/batches_per_s` and, where the data counts tokens,
///   `throughput/tokens_per_s`: exponential averages of the measurements, corrected for their beginning at
///   nothing. What counts is the time within epochs, from the start of the first batch on; validations and what
///   happens between epochs do not. A resumed run goes on exactly where it was, and its starting again does not
///   count.
/// - **Cost**: a look at the clock per measurement, two per validation and two per epoch; on other batches a
///   comparison.
/// - **When it fails**: it cannot.
///
/// ```toml
/// [[hooks]]
/// use = "throughput"
/// every_n_steps = 10
/// smoothing = 0.9
/// ```
#[derive(Clone, Debug)]
pub struct Throughput {
    options: ThroughputOptions,
    memory: Kept<Memory>,
}

/// What a checkpoint keeps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Memory {
    watch: Stopwatch,
    /// What was measured up to the last measurement: time, and what had been seen by then.
    measured: Duration,
    seen: Seen,
    /// What had been seen when measuring began.
    began: Seen,
    last_step: u64,
    /// Samples, tokens and batches per second, and the weight that all measurements together have.
    averages: [f64; 3],
    weight: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Seen {
    samples: u64,
    tokens: u64,
    batches: u64,
}

impl Seen {
    fn by(progress: &Progress) -> Seen {
        Seen { samples: progress.samples, tokens: progress.tokens, batches: progress.total_batches }
    }

    fn since(self, before: Seen) -> Seen {
        Seen {
            samples: self.samples.saturating_sub(before.samples),
            tokens: self.tokens.saturating_sub(before.tokens),
            batches: self.batches.saturating_sub(before.batches),
        }
    }

    fn per_second(self, time: Duration) -> [f64; 3] {
        [self.samples, self.tokens, self.batches].map(|number| number as f64 / time.as_secs_f64())
    }
}

const NAMES: [&str; 3] = ["throughput/samples_per_s", "throughput/tokens_per_s", "throughput/batches_per_s"];

impl FromOptions for Throughput {
    type Options = ThroughputOptions;
    const PURPOSE: &str = "measures samples, tokens and batches per second";
    const EXAMPLE: &str = r"
every_n_steps = 5
smoothing = 0.5
";

    fn from_options(options: ThroughputOptions) -> Result<Throughput, OptionError> {
        checks::one_or_more("every_n_steps", options.every_n_steps)?;
        let smoothing = options.smoothing;
        let fits = (0.0..1.0).contains(&smoothing);
        checks::fits("smoothing", smoothing, fits, "it must be at least 0 (none) and below 1, such as 0.9")?;
        Ok(Throughput { options, memory: Kept::default() })
    }
}

impl Throughput {
    fn measure(&mut self, cx: &Moment<'_>) {
        let time = self.memory.watch.read(cx.elapsed());
        if time.is_zero() {
            // A clock that has not moved says nothing yet; the next measurement covers this one.
            return;
        }
        self.memory.watch.take(cx.elapsed());
        let now = Seen::by(cx);
        let (keep, measured) = (self.options.smoothing, now.since(self.memory.seen).per_second(time));
        self.memory.weight = keep * self.memory.weight + (1.0 - keep);
        let Memory { averages, weight, .. } = &mut *self.memory;
        for ((name, average), measured) in NAMES.iter().zip(averages).zip(measured) {
            *average = keep * *average + (1.0 - keep) * measured;
            if *average > 0.0 {
                cx.log(name, *average / *weight);
            }
        }
        self.memory.measured += time;
        self.memory.seen = now;
    }

    /// What the whole of training came to, where any time has passed.
    fn whole(&self, cx: &Moment<'_>) -> Option<String> {
        let time = self.memory.measured + self.memory.watch.read(cx.elapsed());
        if time.is_zero() {
            return None;
        }
        let [samples, tokens, batches] = Seen::by(cx).since(self.memory.began).per_second(time);
        let tokens = if tokens > 0.0 { format!("{tokens:.1} tokens/s, ") } else { String::new() };
        Some(format!("on average {samples:.1} samples/s, {tokens}{batches:.2} batches/s, without validation"))
    }
}

#[hook(tier = "built_in", state = "memory")]
impl Observer for Throughput {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        let spec = NAMES.into_iter().fold(spec, HookSpec::writes);
        spec.needs("every_n_steps", Cadence::Steps(self.options.every_n_steps))
    }

    fn on_train_start(&mut self, cx: &TrainStart) -> HookResult {
        if self.memory.goes_on(cx) {
            self.memory.watch.stop(cx.resumed_at());
        } else {
            let seen = Seen::by(cx);
            *self.memory = Memory { seen, began: seen, last_step: cx.step, ..Memory::default() };
        }
        Ok(())
    }

    fn on_before_forward(&mut self, cx: &BeforeForward) -> HookResult {
        if !self.memory.watch.is_running() {
            self.memory.watch.start(cx.elapsed());
        }
        Ok(())
    }

    fn on_train_batch_end(&mut self, cx: &TrainBatchEnd) -> HookResult {
        if cx.step_counted && cx.step.saturating_sub(self.memory.last_step) >= self.options.every_n_steps {
            self.memory.last_step = cx.step;
            self.measure(cx);
        }
        Ok(())
    }

    fn on_validation_start(&mut self, cx: &ValidationStart) -> HookResult {
        if cx.phase == Phase::Validate && cx.stage == Stage::Fit {
            self.memory.watch.stop(cx.elapsed());
        }
        Ok(())
    }

    fn on_validation_end(&mut self, cx: &ValidationEnd) -> HookResult {
        if cx.phase == Phase::Validate && cx.stage == Stage::Fit {
            self.memory.watch.start(cx.elapsed());
        }
        Ok(())
    }

    fn on_train_epoch_end(&mut self, cx: &TrainEpochEnd) -> HookResult {
        self.memory.watch.stop(cx.elapsed());
        Ok(())
    }

    fn on_train_end(&mut self, cx: &TrainEnd) -> HookResult {
        if let Some(whole) = self.whole(cx) {
            cx.say(whole);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tenterhook_core::Event;
    use tenterhook_core::Hook as _;
    use tenterhook_testkit::{FitScript, Rig, ScriptEntry};

    use super::*;

    fn throughput(every_n_steps: u64, smoothing: f64) -> Throughput {
        Throughput::from_options(ThroughputOptions { every_n_steps, smoothing }).expect("the options fit")
    }

    fn per_second(rig: &Rig<Throughput>, what: &str) -> Option<f64> {
        rig.metrics().get(&format!("throughput/{what}_per_s"))
    }

    fn is(value: Option<f64>, expected: f64) -> bool {
        value.is_some_and(|value| (value - expected).abs() < 1e-9)
    }

    #[test]
    fn a_measurement_comes_every_so_many_steps_and_validation_does_not_count() {
        // A second per batch, of which there are four in an epoch, and six seconds of validation.
        let script = FitScript::new(2, 4).validate(6).script();
        let mut rig = Rig::new(throughput(2, 0.0));
        for entry in &script {
            rig.play_entry(entry);
            let logged = per_second(&rig, "samples").is_some();
            assert_eq!(logged, entry.progress.step >= 2 && rig.hook().memory.last_step >= 2);
            assert!(!logged || is(per_second(&rig, "samples"), 1.0), "{entry:?}");
        }
        assert!(is(per_second(&rig, "batches"), 1.0));
        assert_eq!(per_second(&rig, "tokens"), None, "nobody counts them");
        let whole = "on average 1.0 samples/s, 1.00 batches/s, without validation";
        assert_eq!(rig.said(), [("throughput".to_owned(), whole.to_owned())]);
        let mut rig = Rig::new(throughput(9, 0.0));
        rig.play(&script);
        assert_eq!(per_second(&rig, "samples"), None, "there are only eight steps");
    }

    /// One batch of so many seconds, with ten samples and a hundred tokens.
    fn batch(rig: &mut Rig<Throughput>, number: u64, at: u64, seconds: u64) {
        let progress = Progress {
            step: number,
            total_batches: number,
            samples: 10 * number,
            tokens: 100 * number,
            step_counted: true,
            ..Progress::default()
        };
        rig.progress(progress).elapsed(Duration::from_secs(at)).on_before_forward();
        rig.elapsed(Duration::from_secs(at + seconds)).on_train_batch_end();
    }

    #[test]
    fn measurements_are_smoothed_without_a_bias_towards_nothing() {
        let mut rig = Rig::new(throughput(1, 0.9));
        rig.on_train_start();
        // What is waited for the first batch does not count.
        batch(&mut rig, 1, 100, 1);
        assert!(is(per_second(&rig, "samples"), 10.0) && is(per_second(&rig, "tokens"), 100.0));
        batch(&mut rig, 2, 101, 2);
        let expected = (0.9 * 0.1 * 10.0 + 0.1 * 5.0) / (0.9 * 0.1 + 0.1);
        assert!(is(per_second(&rig, "samples"), expected), "{:?}", per_second(&rig, "samples"));
        rig.on_train_end();
        assert!(rig.said()[0].1.starts_with("on average 6.7 samples/s, 66.7 tokens/s, 0.67 batches/s"));
    }

    #[test]
    fn a_resumed_run_measures_the_same_and_its_starting_again_does_not_count() {
        let script = FitScript::new(3, 5).validate(2).accumulate(2).script();
        let late =
            |entry: &ScriptEntry| ScriptEntry { elapsed: entry.elapsed + Duration::from_mins(5), ..*entry };
        // Where checkpoints are made.
        let ends = [Event::TrainBatchEnd, Event::ValidationEnd, Event::TrainEpochEnd];
        let cuts = (1..script.len()).filter(|cut| ends.contains(&script[cut - 1].event));
        for cut in cuts {
            let (before, after) = script.split_at(cut);
            let mut whole = Rig::new(throughput(2, 0.5));
            whole.play(before);
            let mut resumed = whole.resumed(throughput(2, 0.5));
            let last = late(&before[before.len() - 1]);
            resumed.elapsed(last.elapsed).on_train_start();
            for entry in after {
                resumed.play_entry(&late(entry));
            }
            whole.play(after);
            assert_eq!(whole.metrics().to_map(), resumed.metrics().to_map(), "cut at {cut}");
            assert_eq!(whole.said(), resumed.said(), "cut at {cut}");
        }
    }

    #[test]
    fn another_fit_begins_anew() {
        let mut rig = Rig::new(throughput(1, 0.9));
        rig.play(&FitScript::new(1, 2).script());
        rig.play(&FitScript::new(1, 2).batch_time(Duration::from_millis(500)).script());
        assert!(is(per_second(&rig, "samples"), 2.0), "{:?}", per_second(&rig, "samples"));
    }

    #[test]
    fn what_cannot_work_is_refused_by_the_name_of_the_option() {
        let refused = |every_n_steps, smoothing| {
            let refused = Throughput::from_options(ThroughputOptions { every_n_steps, smoothing });
            refused.expect_err("refused").to_string()
        };
        assert!(refused(0, 0.9).starts_with("`every_n_steps` must be"));
        for smoothing in [1.0, -0.1, f64::NAN] {
            assert!(refused(1, smoothing).contains("`smoothing` is "));
        }
    }

    #[test]
    fn the_plan_knows_how_long_a_run_must_be() {
        assert_eq!(
            throughput(10, 0.9).spec().needs,
            [("every_n_steps", Cadence::Steps(10))],
            "the default, too"
        );
        assert_eq!(throughput(50, 0.9).spec().needs, [("every_n_steps", Cadence::Steps(50))]);
    }
}
