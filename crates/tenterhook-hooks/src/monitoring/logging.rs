//! Reports the start, epochs and end of training.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenterhook_core::{
    Cadence, CheckpointLoaded, CheckpointSaved, Exception, FromOptions, HookResult, HookSpec, LogPosition,
    Observer, OptionError, Phase, RunContext, Stage, TestEnd, TestStart, TrainEnd, TrainEpochEnd,
    TrainEpochStart, TrainStart, ValidationEnd, ValidationStart, epoch_label, hook,
};

use crate::support::checks;
use crate::support::options;
use crate::support::resumable::Resumable;
use crate::support::stopwatch::Stopwatch;
use crate::support::text;

options! {
    /// The options of [`Logging`].
    pub struct LoggingOptions {
        /// Number of epochs between reports of epochs and validations. Start, end and checkpoints are always reported.
        #[schemars(range(min = 1))]
        pub log_every_n_epochs: u64 = 1,
    }
}

/// Reports the start, epochs, validations, checkpoints and end of training.
///
/// - **Fires** at `on_train_start` (run, parameters, length), `on_train_epoch_end` (time and metrics),
///   `on_validation_end`, `on_test_end`, `on_checkpoint_saved`, `on_checkpoint_loaded`, `on_train_end` (outcome,
///   time, best `val/loss`) and `on_exception`. Silent in a sanity check.
/// - **Reads** the metrics; writes none. Start, end and failure are notices, which the run's journal records; the rest is
///   only printed.
/// - **Cost**: two clock reads and a line per epoch; nothing per batch.
/// - **When it fails**: it cannot fail.
///
/// ```toml
/// [[hooks]]
/// use = "logging"
/// log_every_n_epochs = 1
/// ```
#[derive(Clone, Debug)]
pub struct Logging {
    options: LoggingOptions,
    memory: Resumable<SavedState>,
    evaluation_start: LogPosition,
}

/// State saved in checkpoints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct SavedState {
    training: Stopwatch,
    epoch: Stopwatch,
    epoch_start: LogPosition,
    best: Option<Best>,
    /// The metrics of this epoch's last validation, which are already reported.
    #[serde(default, with = "tenterhook_core::number::map")]
    reported: BTreeMap<String, f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Best {
    value: f64,
    epoch: u64,
}

/// The metric whose best value is reported.
const BEST_OF: &str = "val/loss";

impl FromOptions for Logging {
    type Options = LoggingOptions;
    const PURPOSE: &str = "reports the progress of training: start, epochs, validations, checkpoints, end";
    const EXAMPLE: &str = "log_every_n_epochs = 2";

    fn from_options(options: LoggingOptions) -> Result<Logging, OptionError> {
        let none = |error: OptionError| error.fix("to report nothing, write `enabled = false`");
        checks::one_or_more("log_every_n_epochs", options.log_every_n_epochs).map_err(none)?;
        let (memory, evaluation_start) = Default::default();
        Ok(Logging { options, memory, evaluation_start })
    }
}

impl Logging {
    fn is_due(&self, cx: &RunContext<'_>) -> bool {
        (cx.epoch + 1).is_multiple_of(self.options.log_every_n_epochs)
    }

    fn update_best(&mut self, cx: &RunContext<'_>) {
        let Some(value) = cx.metrics().get(BEST_OF).filter(|value| value.is_finite()) else { return };
        if self.memory.best.is_none_or(|best| value < best.value) {
            self.memory.best = Some(Best { value, epoch: cx.epoch });
        }
    }

    fn time(&self, cx: &RunContext<'_>) -> Duration {
        self.memory.training.read(cx.elapsed())
    }
}

/// The notice at the start.
fn start(cx: &TrainStart<'_>) -> String {
    let run = cx.run;
    let mut text = format!("run {}: {}", run.id, text::plural(run.parameters, "parameter"));
    if !run.device.is_empty() {
        let _ = write!(text, " on {}", run.device);
    }
    if let Some(epochs) = run.total_epochs {
        let _ = write!(text, ", {}", text::plural(epochs, "epoch"));
    }
    if let Some(batches) = run.epoch_batches {
        let _ = write!(text, " of {}", text::plural(batches, "batch"));
    }
    if cx.total_batches > 0 {
        let _ = write!(text, "; resumes in {} after step {}", epoch_label(cx.epoch, None), cx.step);
    }
    text
}

#[hook(tier = "built_in", state = "memory")]
impl Observer for Logging {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        let every = self.options.log_every_n_epochs;
        let spec = spec.min_run_length("log_every_n_epochs", Cadence::Epochs(every));
        if every == 1 { spec.prints_epochs() } else { spec }
    }

    fn on_train_start(&mut self, cx: &TrainStart) -> HookResult {
        if !self.memory.is_resumed(cx) {
            *self.memory = SavedState::default();
        }
        let SavedState { training, epoch, .. } = &mut *self.memory;
        for watch in [training, epoch] {
            watch.stop(cx.resumed_at());
            watch.start(cx.elapsed());
        }
        cx.say(start(cx));
        Ok(())
    }

    fn on_train_epoch_start(&mut self, cx: &TrainEpochStart) -> HookResult {
        self.memory.epoch = Stopwatch::default();
        self.memory.epoch.start(cx.elapsed());
        self.memory.epoch_start = cx.metrics().log_position();
        self.memory.reported.clear();
        Ok(())
    }

    fn on_train_epoch_end(&mut self, cx: &TrainEpochEnd) -> HookResult {
        if self.is_due(cx) {
            let time = self.memory.epoch.read(cx.elapsed());
            let mut line = format!("{} done in {}", cx.epoch_label(), text::duration(time.as_secs_f64()));
            let mut metrics = cx.metrics().since_without_hooks(self.memory.epoch_start);
            metrics.retain(|name, _| !self.memory.reported.contains_key(name));
            text::add_metrics(&mut line, &metrics);
            cx.print(line);
        }
        self.memory.epoch.stop(cx.elapsed());
        Ok(())
    }

    fn on_validation_start(&mut self, cx: &ValidationStart) -> HookResult {
        self.evaluation_start = cx.metrics().log_position();
        Ok(())
    }

    fn on_validation_end(&mut self, cx: &ValidationEnd) -> HookResult {
        if cx.phase == Phase::SanityCheck {
            return Ok(());
        }
        if cx.stage != Stage::Fit || self.is_due(cx) {
            self.memory.reported = cx.metrics().since(self.evaluation_start);
            let mut line = match cx.stage {
                Stage::Fit => format!("validation after step {}", cx.step),
                _ => "validation".into(),
            };
            text::add_metrics(&mut line, &self.memory.reported);
            cx.print(line);
        }
        if cx.stage == Stage::Fit {
            self.update_best(cx);
        }
        Ok(())
    }

    fn on_test_start(&mut self, cx: &TestStart) -> HookResult {
        self.evaluation_start = cx.metrics().log_position();
        Ok(())
    }

    fn on_test_end(&mut self, cx: &TestEnd) -> HookResult {
        let mut line = String::from("test");
        text::add_metrics(&mut line, &cx.metrics().since(self.evaluation_start));
        cx.print(line);
        Ok(())
    }

    fn on_checkpoint_saved(&mut self, cx: &CheckpointSaved) -> HookResult {
        let redelivered = if cx.redelivered { " (may have been reported before)" } else { "" };
        cx.print(format!("checkpoint of step {} saved as {}{redelivered}", cx.saved_step, cx.path.display()));
        Ok(())
    }

    fn on_checkpoint_loaded(&mut self, cx: &CheckpointLoaded) -> HookResult {
        cx.print(format!("checkpoint {} loaded", cx.path.display()));
        Ok(())
    }

    fn on_train_end(&mut self, cx: &TrainEnd) -> HookResult {
        let mut text = format!(
            "{} after {} and {} in {}",
            text::outcome(cx.outcome),
            text::plural(cx.epochs_done, "epoch"),
            text::plural(cx.step, "step"),
            text::duration(self.time(cx).as_secs_f64())
        );
        if let Some(Best { value, epoch }) = self.memory.best {
            let _ = write!(text, "; best {BEST_OF} {} in {}", text::number(value), epoch_label(epoch, None));
        }
        cx.say(text);
        self.memory.training.stop(cx.elapsed());
        Ok(())
    }

    fn on_exception(&mut self, cx: &Exception) -> HookResult {
        let time = text::duration(self.time(cx).as_secs_f64());
        cx.say(format!("failed after {} and {time}: {}", text::plural(cx.step, "step"), cx.failure));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tenterhook_core::Hook as _;
    use tenterhook_core::{Event, Outcome, RunInfo};
    use tenterhook_testkit::{FitScript, Rig};

    use super::*;

    fn logging(every: u64) -> Logging {
        Logging::from_options(LoggingOptions { log_every_n_epochs: every }).expect("the options fit")
    }

    fn rig(every: u64) -> Rig<Logging> {
        let mut rig = Rig::new(logging(every));
        rig.run(RunInfo {
            id: "r1".into(),
            device: "cpu".into(),
            parameters: 1234,
            total_epochs: Some(3),
            epoch_batches: Some(2),
            ..RunInfo::default()
        });
        rig
    }

    fn said(rig: &Rig<Logging>) -> Vec<String> {
        rig.said().into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn a_run_is_reported_from_its_start_to_its_end() {
        let mut rig = rig(1);
        for entry in FitScript::new(3, 2).validate(1).script() {
            if entry.event == Event::ValidationEpochEnd {
                // Epoch 2 is the best.
                rig.metric(
                    "val/loss",
                    [3.0, 1.0, 2.0][usize::try_from(entry.progress.epoch).expect("small")],
                );
            }
            rig.play_entry(&entry);
        }
        assert_eq!(
            said(&rig),
            [
                "run r1: 1,234 parameters on cpu, 3 epochs of 2 batches",
                "completed after 3 epochs and 6 steps in 9.0 s; best val/loss 1.0000 in epoch 2",
            ]
        );
        assert_eq!(
            rig.printed(),
            [
                "validation after step 2  val/loss 3.0000",
                "epoch 1/3 done in 3.0 s",
                "validation after step 4  val/loss 1.0000",
                "epoch 2/3 done in 3.0 s",
                "validation after step 6  val/loss 2.0000",
                "epoch 3/3 done in 3.0 s",
            ]
        );
    }

    #[test]
    fn epochs_in_between_are_left_out() {
        let mut rig = rig(2);
        rig.play(&FitScript::new(3, 2).validate(1).script());
        assert_eq!(rig.printed(), ["validation after step 4", "epoch 2/3 done in 3.0 s"]);
    }

    #[test]
    fn an_epoch_has_its_metrics_and_no_others() {
        let mut rig = rig(1);
        rig.metric("old", 1.0).on_train_epoch_start();
        rig.metric("train/loss", 0.5).on_train_epoch_end();
        assert_eq!(rig.printed(), ["epoch 1/3 done in 0 s  train/loss 0.5000"]);
    }

    #[test]
    fn checkpoints_tests_and_failures_are_reported() {
        let mut rig = rig(1);
        rig.checkpoint(4, "c/last", "c").on_checkpoint_loaded();
        rig.on_checkpoint_saved();
        rig.on_test_start();
        rig.metric("test/loss", 0.5).on_test_end();
        rig.step(4).on_exception();
        let stop = Outcome::Stopped { by: "me".into(), reason: "enough".into() };
        rig.outcome(stop).on_train_end();
        assert_eq!(
            rig.printed(),
            ["checkpoint c/last loaded", "checkpoint of step 4 saved as c/last", "test  test/loss 0.5000"]
        );
        let failed = "failed after 4 steps and 0 s: module failed in training_step (epoch 1, step 0): a made-up failure";
        assert_eq!(said(&rig), [failed, "stopped by `me` (enough) after 0 epochs and 4 steps in 0 s"]);
    }

    #[test]
    fn a_resumed_run_reports_its_total_time_and_its_best() {
        let script = FitScript::new(2, 2).validate(1).script();
        let (before, after) = script.split_at(script.len() - 8);
        let mut whole = rig(1);
        whole.metric("val/loss", 0.5).play(before);
        let mut resumed = whole.resumed(logging(1));
        // The restart takes a minute that is not training time.
        let late = |time: Duration| time + Duration::from_mins(1);
        resumed.elapsed(late(before[before.len() - 1].elapsed)).on_train_start();
        for entry in after {
            resumed.play_entry(&tenterhook_testkit::ScriptEntry { elapsed: late(entry.elapsed), ..*entry });
        }
        whole.play(after);
        assert_eq!(said(&resumed).last(), said(&whole).last());
        assert!(said(&whole)[1].contains("in 6.0 s; best val/loss 0.5000 in epoch 1"), "{:?}", said(&whole));
        assert!(said(&resumed)[0].contains("resumes in epoch 2"), "{:?}", said(&resumed));
    }

    #[test]
    fn a_sanity_check_is_silent_and_zero_epochs_are_refused() {
        let mut rig = rig(1);
        for event in [Event::SanityCheckStart, Event::ValidationStart, Event::ValidationEnd] {
            rig.deliver(event);
        }
        assert!(rig.printed().is_empty());
        let error = Logging::from_options(LoggingOptions { log_every_n_epochs: 0 }).expect_err("refused");
        assert!(error.to_string().starts_with("`log_every_n_epochs` must be 1 or more"), "{error}");
    }

    #[test]
    fn the_needed_run_length_is_declared() {
        assert_eq!(
            logging(1).spec().min_run_length,
            [("log_every_n_epochs", Cadence::Epochs(1))],
            "the default, too"
        );
        assert_eq!(logging(5).spec().min_run_length, [("log_every_n_epochs", Cadence::Epochs(5))]);
    }

    #[test]
    fn only_a_hook_that_prints_every_epoch_declares_it() {
        assert!(logging(1).spec().prints_epochs);
        assert!(!logging(2).spec().prints_epochs);
    }
}
