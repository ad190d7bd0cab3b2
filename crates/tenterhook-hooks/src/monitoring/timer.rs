//! Measures the time of training and evaluation, and limits the training time.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook_core::{
    Controller, Decision, Event, HookResult, HookSpec, OptionError, Phase, RunContext, Stage, TestEnd,
    TestStart, Tier, TimeSpan, TrainBatchEnd, TrainEnd, TrainEpochEnd, TrainStart, ValidationEnd,
    ValidationStart, hook,
};

use crate::support::checks;
use crate::support::resumable::Resumable;
use crate::support::stopwatch::Stopwatch;
use crate::support::text;
use crate::support::{from_options, options};

options! {
    /// The options of [`Timer`].
    #[derive(Eq)]
    // The options only limit the length of training.
    #[schemars(extend("x-harmless-change" = true))]
    pub struct TimerOptions {
        /// Maximum training time, validations included, such as `2 h`, `90 min` or `00:12:00:00` (`DD:HH:MM:SS`). Unset:
        /// no limit.
        #[schemars(example = &"00:12:00:00")]
        #[schemars(extend("pattern" = TimeSpan::ABOVE_ZERO))]
        pub duration: Option<TimeSpan> = None,
        /// When to check the limit: after every batch (`step`) or at the end of every `epoch`.
        pub interval: TimerInterval = TimerInterval::Step,
        /// Report when the limit is reached.
        pub verbose: bool = true,
    }
}

/// When a [`Timer`] checks the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TimerInterval {
    /// After every batch.
    #[default]
    Step,
    /// At the end of every epoch.
    Epoch,
}

/// Measures the time of training, validations and tests separately, and stops training after `duration`.
///
/// - **Fires** at the starts and ends of training, validations and tests, at `on_train_epoch_end`, and with a
///   `duration` and `interval = "step"` at `on_train_batch_end`. A resumed run that has reached the limit stops at
///   `on_train_start`. Inactive in a sanity check; a dry run is measured but not stopped.
/// - **Writes** `timer/train_s` and `timer/validation_s` at the end of every epoch, `timer/test_s` at the end of a
///   test. Stopping is a request: `min_epochs` and `min_steps` take precedence.
/// - **Cost**: one clock read per event; without a `duration` nothing per batch.
/// - **When it fails**: it cannot fail.
///
/// ```toml
/// [[hooks]]
/// use = "timer"
/// interval = "step"
/// verbose = true
/// # duration: unset
/// ```
#[derive(Clone, Debug)]
pub struct Timer {
    options: TimerOptions,
    state: Resumable<SavedState>,
    /// Whether a stop was requested.
    stop_requested: bool,
    /// The run's time at the last clock read.
    now: Duration,
}

/// State saved in checkpoints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct SavedState {
    train: Stopwatch,
    validation: Stopwatch,
    test: Stopwatch,
}

from_options! {
    Timer from TimerOptions,
    purpose: "measures the time of training and evaluation, and stops training after a given time",
    example: r#"
duration = "12 h"
interval = "epoch"
"#
}

impl Timer {
    /// Creates the hook, or reports an invalid option.
    pub fn new(options: TimerOptions) -> Result<Timer, OptionError> {
        options.duration.map_or(Ok(()), |time| checks::above_zero("duration", time))?;
        Ok(Timer { options, state: Resumable::default(), stop_requested: false, now: Duration::ZERO })
    }

    /// The time of training without validations, of all validations, or of all tests, up to the last clock read. Other
    /// phases are not measured.
    #[must_use]
    pub fn elapsed(&self, phase: Phase) -> Duration {
        match phase {
            Phase::Train => self.state.train.read(self.now),
            Phase::Validate => self.state.validation.read(self.now),
            Phase::Test => self.state.test.read(self.now),
            Phase::SanityCheck | Phase::Predict => Duration::ZERO,
        }
    }

    /// The remaining time, if `duration` is set.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        Some(self.options.duration?.0.saturating_sub(self.spent()))
    }

    /// The time that counts towards `duration`.
    fn spent(&self) -> Duration {
        self.elapsed(Phase::Train) + self.elapsed(Phase::Validate)
    }

    /// Requests a stop once the limit is reached.
    fn check(&mut self, cx: &RunContext<'_>) -> Decision {
        self.now = cx.elapsed();
        let Some(TimeSpan(duration)) = self.options.duration.filter(|time| self.spent() >= time.0) else {
            return Decision::CONTINUE;
        };
        if cx.run.fast_dev_run || std::mem::replace(&mut self.stop_requested, true) {
            return Decision::CONTINUE;
        }
        let reason = format!("`duration` of {} is over", text::duration(duration.as_secs_f64()));
        if self.options.verbose {
            cx.say(format!("{reason} after {} of training", text::duration(self.spent().as_secs_f64())));
        }
        Decision::stop(reason)
    }
}

/// Whether a validation is measured: within training or alone, not in a sanity check.
fn is_measured(cx: &RunContext<'_>) -> bool {
    cx.phase == Phase::Validate
}

#[hook(state = "state")]
impl Controller for Timer {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        let looks = self.options.duration.is_some() && self.options.interval == TimerInterval::Step;
        let spec = spec.tier(Tier::BuiltIn).wants_if(Event::TrainBatchEnd, looks);
        ["timer/train_s", "timer/validation_s", "timer/test_s"].into_iter().fold(spec, HookSpec::writes)
    }

    fn on_train_start(&mut self, cx: &TrainStart) -> HookResult<Decision> {
        self.stop_requested = false;
        if self.state.is_resumed(cx) {
            let SavedState { train, validation, test } = &mut *self.state;
            for watch in [train, validation, test] {
                watch.stop(cx.resumed_at());
            }
        } else {
            *self.state = SavedState { test: self.state.test, ..SavedState::default() };
        }
        self.state.train.start(cx.elapsed());
        Ok(self.check(cx))
    }

    fn on_train_batch_end(&mut self, cx: &TrainBatchEnd) -> HookResult<Decision> {
        Ok(self.check(cx))
    }

    fn on_train_epoch_end(&mut self, cx: &TrainEpochEnd) -> HookResult<Decision> {
        let decision = self.check(cx);
        cx.log("timer/train_s", self.elapsed(Phase::Train).as_secs_f64());
        cx.log("timer/validation_s", self.elapsed(Phase::Validate).as_secs_f64());
        Ok(decision)
    }

    fn on_validation_start(&mut self, cx: &ValidationStart) -> HookResult<Decision> {
        if is_measured(cx) {
            self.now = cx.elapsed();
            self.state.train.stop(self.now);
            self.state.validation.start(self.now);
        }
        Ok(Decision::CONTINUE)
    }

    fn on_validation_end(&mut self, cx: &ValidationEnd) -> HookResult<Decision> {
        if is_measured(cx) {
            self.now = cx.elapsed();
            self.state.validation.stop(self.now);
            if cx.stage == Stage::Fit {
                self.state.train.start(self.now);
            }
        }
        Ok(Decision::CONTINUE)
    }

    fn on_test_start(&mut self, cx: &TestStart) -> HookResult {
        self.state.test.start(cx.elapsed());
        Ok(())
    }

    fn on_test_end(&mut self, cx: &TestEnd) -> HookResult {
        self.now = cx.elapsed();
        self.state.test.stop(self.now);
        cx.log("timer/test_s", self.elapsed(Phase::Test).as_secs_f64());
        Ok(())
    }

    fn on_train_end(&mut self, cx: &TrainEnd) -> HookResult<Decision> {
        self.now = cx.elapsed();
        self.state.train.stop(self.now);
        let [train, validation] =
            [Phase::Train, Phase::Validate].map(|phase| text::duration(self.elapsed(phase).as_secs_f64()));
        cx.say(format!("training took {train}, its validations {validation}"));
        Ok(Decision::CONTINUE)
    }
}

#[cfg(test)]
mod tests {
    use tenterhook_testkit::{FitScript, Rig, ScriptEntry};

    use super::*;

    fn timer(options: TimerOptions) -> Timer {
        Timer::new(options).expect("the options fit")
    }

    fn of(duration: &str) -> TimerOptions {
        TimerOptions { duration: Some(duration.parse().expect(duration)), ..TimerOptions::default() }
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn training_validations_and_tests_are_measured_separately() {
        let mut rig = Rig::new(timer(TimerOptions::default()));
        rig.play(&FitScript::new(2, 4).validate(3).script());
        assert_eq!(rig.metrics().get("timer/train_s"), Some(8.0));
        assert_eq!(rig.metrics().get("timer/validation_s"), Some(6.0));
        assert_eq!(rig.said()[0].1, "training took 8.0 s, its validations 6.0 s");
        assert!(rig.decisions().is_empty() && rig.hook().remaining().is_none());
        rig.elapsed(seconds(100)).on_test_start();
        rig.on_test_epoch_end();
        rig.elapsed(seconds(102)).on_test_end();
        assert_eq!(rig.metrics().get("timer/test_s"), Some(2.0));
        rig.stage(Stage::Validate).on_validation_start();
        rig.elapsed(seconds(103)).on_validation_end();
        let hook = rig.hook();
        assert_eq!(
            [Phase::Train, Phase::Validate, Phase::Test].map(|phase| hook.elapsed(phase)),
            [8, 7, 2].map(seconds)
        );
    }

    #[test]
    fn training_stops_after_the_duration_validations_included() {
        let script = FitScript::new(3, 4).validate(3).script();
        for (interval, event, step) in
            [(TimerInterval::Step, Event::TrainBatchEnd, 6), (TimerInterval::Epoch, Event::TrainEpochEnd, 8)]
        {
            let mut rig = Rig::new(timer(TimerOptions { interval, ..of("9 s") }));
            let stopped = script.iter().find(|entry| !rig.play_entry(entry).decision.is_continue());
            let stopped = stopped.expect("it stops");
            assert_eq!((stopped.event, stopped.progress.step), (event, step));
            assert_eq!(rig.stop_reason(), Some("`duration` of 9.0 s is over"));
            assert_eq!(rig.hook().remaining(), Some(Duration::ZERO));
            rig.play(&script[script.len() - 20..]);
            assert_eq!(rig.decisions().len(), 1, "it asks once");
        }
    }

    #[test]
    fn the_limit_is_reported_only_when_verbose() {
        for verbose in [true, false] {
            let mut rig = Rig::new(timer(TimerOptions { verbose, ..of("2 s") }));
            rig.play(&FitScript::new(1, 3).script());
            let said = rig.said().iter().any(|(_, text)| text.contains("is over after 2.0 s of training"));
            assert_eq!(said, verbose);
            assert_eq!(rig.decisions().len(), 1);
        }
    }

    #[test]
    fn a_dry_run_is_not_stopped_and_a_sanity_check_not_measured() {
        let mut rig = Rig::new(timer(of("2 s")));
        rig.fast_dev_run(true).play(&FitScript::new(1, 3).script());
        assert!(rig.decisions().is_empty());
        let mut rig = Rig::new(timer(of("2 s")));
        rig.on_sanity_check_start();
        rig.on_validation_start();
        rig.elapsed(seconds(50)).on_validation_end();
        assert_eq!(rig.hook().elapsed(Phase::Validate), Duration::ZERO);
    }

    #[test]
    fn a_resumed_run_continues_the_time_without_its_start_up() {
        let script = FitScript::new(2, 4).validate(3).script();
        let ends = [Event::TrainBatchEnd, Event::ValidationEnd, Event::TrainEpochEnd];
        let late = |entry: &ScriptEntry| ScriptEntry { elapsed: entry.elapsed + seconds(300), ..*entry };
        for cut in (1..script.len()).filter(|cut| ends.contains(&script[cut - 1].event)) {
            let (before, after) = script.split_at(cut);
            let mut whole = Rig::new(timer(of("1 h")));
            whole.play(before);
            let mut resumed = whole.resumed(timer(of("1 h")));
            resumed.elapsed(late(&before[cut - 1]).elapsed).on_train_start();
            for entry in after {
                resumed.play_entry(&late(entry));
            }
            whole.play(after);
            assert_eq!(whole.metrics().to_map(), resumed.metrics().to_map(), "cut at {cut}");
            assert_eq!(whole.said(), resumed.said(), "cut at {cut}");
            assert_eq!(whole.hook().remaining(), resumed.hook().remaining());
        }
        let mut over = Rig::new(timer(of("5 s")));
        over.play(&script[..script.len() - 3]);
        let mut resumed = over.resumed(timer(of("5 s")));
        assert!(!resumed.on_train_start().decision.is_continue(), "it is over already");
    }

    #[test]
    fn a_duration_of_zero_is_refused_by_its_key() {
        assert_eq!(timer(of("00:12:00:00")).remaining(), Some(seconds(43_200)));
        let error = Timer::new(of("0 s")).expect_err("it is none").to_string();
        assert!(error.starts_with("`duration` is 0 s") && error.contains("\"90 s\""), "{error}");
    }

    #[test]
    fn batch_events_are_wanted_only_for_a_duration_checked_by_step() {
        let wants = |options| {
            tenterhook_core::AnyHook::new(timer(options)).spec().events.contains(Event::TrainBatchEnd)
        };
        assert!(wants(of("9 s")));
        assert!(!wants(TimerOptions::default()));
        assert!(!wants(TimerOptions { interval: TimerInterval::Epoch, ..of("9 s") }));
    }
}
