//! Measures training throughput.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenterhook_core::{
    BeforeForward, Cadence, HookResult, HookSpec, Observer, OptionError, Phase, Progress, RunContext, Stage,
    TrainBatchEnd, TrainEnd, TrainEpochEnd, TrainStart, ValidationEnd, ValidationStart, hook,
};

use crate::support::checks;
use crate::support::resumable::Resumable;
use crate::support::stopwatch::Stopwatch;
use crate::support::{from_options, options};

options! {
    /// The options of [`Throughput`].
    pub struct ThroughputOptions {
        /// Number of optimizer steps between measurements.
        #[schemars(range(min = 1))]
        pub every_n_steps: u64 = 10,
        /// Smoothing factor of the exponential moving average, from 0 (no smoothing) to below 1.
        #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
        pub smoothing: f64 = 0.9,
    }
}

/// Logs samples, tokens and batches per second.
///
/// - **Fires** at `on_train_batch_end` after every `every_n_steps` optimizer steps, and reports the overall average at
///   `on_train_end`.
/// - **Writes** `throughput/samples_per_s`, `throughput/batches_per_s` and, if the data counts tokens,
///   `throughput/tokens_per_s`: exponential moving averages with bias correction. They cover the time within epochs from
///   the start of the first batch, without validations. A resumed run continues the measurement without its start-up
///   time.
/// - **Cost**: one clock read per measurement, two per validation and two per epoch; a comparison in other batches.
/// - **When it fails**: it cannot fail.
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
    state: Resumable<SavedState>,
}

/// State saved in checkpoints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct SavedState {
    watch: Stopwatch,
    /// The measured time and the counts at the last measurement.
    measured: Duration,
    seen: Counts,
    /// The counts at the start of training.
    began: Counts,
    last_step: u64,
    /// Samples, tokens and batches per second, and the total weight of the measurements.
    averages: [f64; 3],
    weight: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Counts {
    samples: u64,
    tokens: u64,
    batches: u64,
}

impl Counts {
    fn of(progress: &Progress) -> Counts {
        Counts { samples: progress.samples, tokens: progress.tokens, batches: progress.total_batches }
    }

    fn since(self, before: Counts) -> Counts {
        Counts {
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

from_options! {
    Throughput from ThroughputOptions,
    purpose: "measures samples, tokens and batches per second",
    example: r"
every_n_steps = 5
smoothing = 0.5
"
}

impl Throughput {
    /// Creates the hook, or reports an invalid option.
    pub fn new(options: ThroughputOptions) -> Result<Throughput, OptionError> {
        checks::one_or_more("every_n_steps", options.every_n_steps)?;
        let smoothing = options.smoothing;
        let fits = (0.0..1.0).contains(&smoothing);
        checks::fits("smoothing", smoothing, fits, "it must be at least 0 (none) and below 1, such as 0.9")?;
        Ok(Throughput { options, state: Resumable::default() })
    }

    fn measure(&mut self, cx: &RunContext<'_>) {
        let time = self.state.watch.read(cx.elapsed());
        if time.is_zero() {
            // The clock has not advanced; the next measurement covers this one.
            return;
        }
        self.state.watch.take(cx.elapsed());
        let now = Counts::of(cx);
        let (keep, measured) = (self.options.smoothing, now.since(self.state.seen).per_second(time));
        self.state.weight = keep * self.state.weight + (1.0 - keep);
        let SavedState { averages, weight, .. } = &mut *self.state;
        for ((name, average), measured) in NAMES.iter().zip(averages).zip(measured) {
            *average = keep * *average + (1.0 - keep) * measured;
            if *average > 0.0 {
                cx.log(name, *average / *weight);
            }
        }
        self.state.measured += time;
        self.state.seen = now;
    }

    /// The overall average, once any time was measured.
    fn overall(&self, cx: &RunContext<'_>) -> Option<String> {
        let time = self.state.measured + self.state.watch.read(cx.elapsed());
        if time.is_zero() {
            return None;
        }
        let [samples, tokens, batches] = Counts::of(cx).since(self.state.began).per_second(time);
        let tokens = if tokens > 0.0 { format!("{tokens:.1} tokens/s, ") } else { String::new() };
        Some(format!("on average {samples:.1} samples/s, {tokens}{batches:.2} batches/s, without validation"))
    }
}

#[hook(tier = "built_in", state = "state")]
impl Observer for Throughput {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        let spec = NAMES.into_iter().fold(spec, HookSpec::writes);
        spec.min_run_length("every_n_steps", Cadence::Steps(self.options.every_n_steps))
    }

    fn on_train_start(&mut self, cx: &TrainStart) -> HookResult {
        if self.state.is_resumed(cx) {
            self.state.watch.stop(cx.resumed_at());
        } else {
            let seen = Counts::of(cx);
            *self.state = SavedState { seen, began: seen, last_step: cx.step, ..SavedState::default() };
        }
        Ok(())
    }

    fn on_before_forward(&mut self, cx: &BeforeForward) -> HookResult {
        if !self.state.watch.is_running() {
            self.state.watch.start(cx.elapsed());
        }
        Ok(())
    }

    fn on_train_batch_end(&mut self, cx: &TrainBatchEnd) -> HookResult {
        if cx.step_counted && cx.step.saturating_sub(self.state.last_step) >= self.options.every_n_steps {
            self.state.last_step = cx.step;
            self.measure(cx);
        }
        Ok(())
    }

    fn on_validation_start(&mut self, cx: &ValidationStart) -> HookResult {
        if cx.phase == Phase::Validate && cx.stage == Stage::Fit {
            self.state.watch.stop(cx.elapsed());
        }
        Ok(())
    }

    fn on_validation_end(&mut self, cx: &ValidationEnd) -> HookResult {
        if cx.phase == Phase::Validate && cx.stage == Stage::Fit {
            self.state.watch.start(cx.elapsed());
        }
        Ok(())
    }

    fn on_train_epoch_end(&mut self, cx: &TrainEpochEnd) -> HookResult {
        self.state.watch.stop(cx.elapsed());
        Ok(())
    }

    fn on_train_end(&mut self, cx: &TrainEnd) -> HookResult {
        if let Some(average) = self.overall(cx) {
            cx.say(average);
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
        Throughput::new(ThroughputOptions { every_n_steps, smoothing }).expect("the options fit")
    }

    fn per_second(rig: &Rig<Throughput>, what: &str) -> Option<f64> {
        rig.metrics().get(&format!("throughput/{what}_per_s"))
    }

    fn is(value: Option<f64>, expected: f64) -> bool {
        value.is_some_and(|value| (value - expected).abs() < 1e-9)
    }

    #[test]
    fn throughput_is_measured_every_n_steps_without_validation() {
        // An epoch has four batches of one second each, and six seconds of validation.
        let script = FitScript::new(2, 4).validate(6).script();
        let mut rig = Rig::new(throughput(2, 0.0));
        for entry in &script {
            rig.play_entry(entry);
            let logged = per_second(&rig, "samples").is_some();
            assert_eq!(logged, entry.progress.step >= 2 && rig.hook().state.last_step >= 2);
            assert!(!logged || is(per_second(&rig, "samples"), 1.0), "{entry:?}");
        }
        assert!(is(per_second(&rig, "batches"), 1.0));
        assert_eq!(per_second(&rig, "tokens"), None, "the data counts no tokens");
        let whole = "on average 1.0 samples/s, 1.00 batches/s, without validation";
        assert_eq!(rig.said(), [("throughput".to_owned(), whole.to_owned())]);
        let mut rig = Rig::new(throughput(9, 0.0));
        rig.play(&script);
        assert_eq!(per_second(&rig, "samples"), None, "there are only eight steps");
    }

    /// One batch of this duration, with ten samples and a hundred tokens.
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
    fn measurements_are_smoothed_with_bias_correction() {
        let mut rig = Rig::new(throughput(1, 0.9));
        rig.on_train_start();
        // The time before the first batch does not count.
        batch(&mut rig, 1, 100, 1);
        assert!(is(per_second(&rig, "samples"), 10.0) && is(per_second(&rig, "tokens"), 100.0));
        batch(&mut rig, 2, 101, 2);
        let expected = (0.9 * 0.1 * 10.0 + 0.1 * 5.0) / (0.9 * 0.1 + 0.1);
        assert!(is(per_second(&rig, "samples"), expected), "{:?}", per_second(&rig, "samples"));
        rig.on_train_end();
        assert!(rig.said()[0].1.starts_with("on average 6.7 samples/s, 66.7 tokens/s, 0.67 batches/s"));
    }

    #[test]
    fn a_resumed_run_measures_the_same_without_its_start_up() {
        let script = FitScript::new(3, 5).validate(2).accumulate(2).script();
        let late =
            |entry: &ScriptEntry| ScriptEntry { elapsed: entry.elapsed + Duration::from_mins(5), ..*entry };
        // The events at which checkpoints are taken.
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
    fn invalid_values_are_refused_by_key() {
        let refused = |every_n_steps, smoothing| {
            let refused = Throughput::new(ThroughputOptions { every_n_steps, smoothing });
            refused.expect_err("refused").to_string()
        };
        assert!(refused(0, 0.9).starts_with("`every_n_steps` must be"));
        for smoothing in [1.0, -0.1, f64::NAN] {
            assert!(refused(1, smoothing).contains("`smoothing` is "));
        }
    }

    #[test]
    fn the_needed_run_length_is_declared() {
        assert_eq!(
            throughput(10, 0.9).spec().min_run_length,
            [("every_n_steps", Cadence::Steps(10))],
            "the default, too"
        );
        assert_eq!(throughput(50, 0.9).spec().min_run_length, [("every_n_steps", Cadence::Steps(50))]);
    }
}
