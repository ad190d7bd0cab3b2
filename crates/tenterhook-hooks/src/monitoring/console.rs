//! Prints training progress.

use std::fmt::Write as _;

use tenterhook_core::{
    Cadence, FromOptions, HookResult, HookSpec, LogPosition, Observer, OptionError, RunContext, Stage,
    StepEnd, TestEnd, TestStart, TrainBatchEnd, TrainEpochEnd, TrainEpochStart, TrainStart, ValidationEnd,
    ValidationStart, hook,
};

use crate::support::checks;
use crate::support::options;
use crate::support::text;

options! {
    /// The options of [`Console`].
    pub struct ConsoleOptions {
        /// Number of batches between two lines, counted over all epochs.
        #[schemars(range(min = 1))]
        pub log_every_n_batches: u64 = 10,
    }
}

impl From<u64> for ConsoleOptions {
    /// Prints a line every n batches.
    fn from(log_every_n_batches: u64) -> ConsoleOptions {
        ConsoleOptions { log_every_n_batches }
    }
}

/// Prints progress on the console: a line every n batches and a line at the end of each epoch.
///
/// - **Fires** every `log_every_n_batches` batches at `on_train_batch_end`: epoch, batch, step, latest and average loss,
///   learning rate (recorded at `on_step_end`), and the metrics that the module logged for this batch; at `on_train_epoch_end`: the
///   metrics of the epoch and its validations. An evaluation without training prints one line at its end. Silent in a sanity
///   check.
/// - **Reads** the losses of the batches that it prints. The learning rate is that of the first parameter group at the last
///   update; with several updates in one batch, all are shown. Metrics that the module logs in its own
///   `on_train_epoch_end` come too late for the line. **Writes** nothing.
/// - **Cost**: printing a line and reading the losses since the last line; a division in other batches.
/// - **When it fails**: it cannot fail.
///
/// ```toml
/// [[hooks]]
/// use = "console"
/// log_every_n_batches = 10
/// ```
#[derive(Clone, Debug)]
pub struct Console {
    options: ConsoleOptions,
    /// The learning rates of the updates in batch `lrs_of`, the latest batch with an update.
    lrs: Vec<f64>,
    lrs_of: u64,
    /// Metrics logged after these positions belong to the current epoch, batch or evaluation.
    epoch: LogPosition,
    batch: LogPosition,
    evaluation: LogPosition,
}

impl FromOptions for Console {
    type Options = ConsoleOptions;
    const PURPOSE: &str = "prints progress on the console: loss, learning rate and metrics";
    const EXAMPLE: &str = "log_every_n_batches = 5";

    fn from_options(options: ConsoleOptions) -> Result<Console, OptionError> {
        let none = |error: OptionError| error.fix("to print nothing, write `enabled = false`");
        checks::one_or_more("log_every_n_batches", options.log_every_n_batches).map_err(none)?;
        let mark = LogPosition::default();
        Ok(Console { options, lrs: Vec::new(), lrs_of: 0, epoch: mark, batch: mark, evaluation: mark })
    }
}

impl Console {
    fn batch_line(&self, cx: &TrainBatchEnd<'_>) -> String {
        let mut line = cx.epoch_label();
        let _ = write!(line, "  batch {}", cx.batches);
        if let Some(batches) = cx.run.epoch_batches {
            let _ = write!(line, "/{batches}");
        }
        let _ = write!(line, "  step {}", cx.step);
        match &cx.loss {
            Some(loss) => {
                let _ = write!(line, "  loss {}", text::number(loss.value()));
            }
            None => line.push_str("  no loss"),
        }
        if let Some(average) = cx.average_loss() {
            let _ = write!(line, "  average {}", text::number(average));
        }
        let mut lrs: Vec<_> = self.lrs.iter().map(|lr| text::short(*lr)).collect();
        lrs.dedup();
        if !lrs.is_empty() {
            let _ = write!(line, "  lr {}", lrs.join(" "));
        }
        text::add_metrics(&mut line, &text::without_loss(cx.metrics().since_without_hooks(self.batch)));
        line
    }

    /// At the end of an evaluation. Within `fit`, its metrics are in the line of the epoch.
    fn end_evaluation(&mut self, cx: &RunContext<'_>, what: &str) {
        if cx.stage != Stage::Fit {
            let mut line = what.to_owned();
            text::add_metrics(&mut line, &cx.metrics().since(self.evaluation));
            cx.print(line);
        }
        self.batch = cx.metrics().log_position();
    }
}

#[hook(name = "console_log", tier = "built_in")]
impl Observer for Console {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        let every = self.options.log_every_n_batches;
        let spec = spec.ignores_grad_norm().prints_epochs();
        spec.min_run_length("log_every_n_batches", Cadence::Batches(every))
    }

    fn on_train_start(&mut self, cx: &TrainStart) -> HookResult {
        self.lrs.clear();
        // A resumed epoch has no `on_train_epoch_start`, and checkpoints hold no state of this hook.
        (self.epoch, self.batch) = (cx.metrics().log_position(), cx.metrics().log_position());
        Ok(())
    }

    fn on_train_epoch_start(&mut self, cx: &TrainEpochStart) -> HookResult {
        (self.epoch, self.batch) = (cx.metrics().log_position(), cx.metrics().log_position());
        Ok(())
    }

    fn on_train_batch_end(&mut self, cx: &TrainBatchEnd) -> HookResult {
        if cx.count_call_if(cx.total_batches.is_multiple_of(self.options.log_every_n_batches)) {
            cx.print(self.batch_line(cx));
        }
        self.batch = cx.metrics().log_position();
        Ok(())
    }

    fn on_step_end(&mut self, cx: &StepEnd) -> HookResult {
        if self.lrs_of != cx.total_batches {
            self.lrs.clear();
            self.lrs_of = cx.total_batches;
        }
        self.lrs.push(cx.lr);
        Ok(())
    }

    fn on_train_epoch_end(&mut self, cx: &TrainEpochEnd) -> HookResult {
        let mut line = cx.epoch_label();
        let _ = write!(line, " done  step {}", cx.step);
        text::add_metrics(&mut line, &cx.metrics().since_without_hooks(self.epoch));
        cx.print(line);
        Ok(())
    }

    fn on_validation_start(&mut self, cx: &ValidationStart) -> HookResult {
        self.evaluation = cx.metrics().log_position();
        Ok(())
    }

    fn on_validation_end(&mut self, cx: &ValidationEnd) -> HookResult {
        self.end_evaluation(cx, "validation");
        Ok(())
    }

    fn on_test_start(&mut self, cx: &TestStart) -> HookResult {
        self.evaluation = cx.metrics().log_position();
        Ok(())
    }

    fn on_test_end(&mut self, cx: &TestEnd) -> HookResult {
        self.end_evaluation(cx, "test");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tenterhook_core::Hook as _;
    use tenterhook_core::{Event, Progress, RunInfo};
    use tenterhook_testkit::{FitScript, Rig};

    use super::*;

    fn console(every: u64) -> Console {
        Console::from_options(every.into()).expect("the options fit")
    }

    fn known() -> RunInfo {
        RunInfo { total_epochs: Some(2), epoch_batches: Some(5), ..RunInfo::default() }
    }

    #[test]
    fn a_line_comes_every_n_batches_and_at_the_end_of_each_epoch() {
        let mut rig = Rig::new(console(2));
        rig.run(known()).play(&FitScript::new(2, 5).losses(|batch| Some(batch as f64)).script());
        let begin = |line: String| line.split("  ").take(2).collect::<Vec<_>>().join(" ");
        let lines: Vec<_> = rig.printed().into_iter().map(begin).collect();
        assert_eq!(
            lines,
            [
                "epoch 1/2 batch 2/5",
                "epoch 1/2 batch 4/5",
                "epoch 1/2 done step 5",
                "epoch 2/2 batch 1/5",
                "epoch 2/2 batch 3/5",
                "epoch 2/2 batch 5/5",
                "epoch 2/2 done step 10",
            ]
        );
        let mut rig = Rig::new(console(5));
        rig.play(&FitScript::new(2, 5).script());
        assert_eq!(rig.printed().len(), 4, "every option counts");
    }

    #[test]
    fn a_line_has_losses_learning_rate_and_the_metrics_of_this_batch() {
        let mut rig = Rig::new(console(1));
        rig.lr(0.001).metric("old", 7.0).on_train_epoch_start();
        rig.loss(0.25).average_loss(0.5).metric("accuracy", 0.75).metric("train/loss", 0.25);
        rig.next_lr(0.0005).on_step_end();
        rig.on_train_batch_end();
        rig.no_loss().on_train_batch_end();
        let expected = [
            "epoch 1  batch 0  step 0  loss 0.2500  average 0.5000  lr 0.001  accuracy 0.7500",
            "epoch 1  batch 0  step 0  no loss  average 0.5000  lr 0.001",
        ];
        assert_eq!(rig.printed(), expected);
        rig.progress(Progress { total_batches: 1, ..Progress::default() });
        rig.lr(0.1).on_step_end();
        rig.lr(0.01).on_step_end();
        rig.on_train_batch_end();
        assert!(rig.printed()[2].contains("lr 0.1 0.01"), "two updates in a batch: {:?}", rig.printed());
    }

    #[test]
    fn within_an_accumulation_window_a_line_shows_the_rate_of_the_last_update() {
        let mut rig = Rig::new(console(5));
        for batch in 1..=20 {
            rig.progress(Progress { total_batches: batch, ..Progress::default() });
            if batch % 4 == 0 {
                rig.lr(batch as f64).on_step_end();
            }
            rig.on_train_batch_end();
        }
        let rates = rig.printed().into_iter().map(|line| line.split("  lr ").nth(1).map(str::to_owned));
        let rates: Option<Vec<_>> = rates.collect();
        assert_eq!(rates.expect("each has one"), ["4.0", "8.0", "12.0", "20.0"]);
    }

    #[test]
    fn the_end_of_an_epoch_has_its_metrics_and_those_of_its_validation() {
        let mut rig = Rig::new(console(9));
        rig.metric("old", 7.0).on_train_epoch_start();
        rig.metric("train/loss", 2.0).on_validation_start();
        rig.metric("val/loss", 3.0).on_validation_end();
        rig.step(4).on_train_epoch_end();
        assert_eq!(rig.printed(), ["epoch 1 done  step 4  train/loss 2.0000  val/loss 3.0000"]);
    }

    #[test]
    fn nothing_is_printed_in_a_sanity_check_and_a_line_after_an_evaluation_alone() {
        let mut rig = Rig::new(console(1));
        for event in [Event::SanityCheckStart, Event::ValidationStart, Event::ValidationEnd] {
            rig.deliver(event);
        }
        assert!(rig.printed().is_empty());
        let mut rig = Rig::new(console(1));
        rig.on_test_start();
        rig.metric("test/loss", 1.5).on_test_end();
        rig.stage(Stage::Validate).on_validation_start();
        rig.metric("val/loss", 2.5).on_validation_end();
        assert_eq!(rig.printed(), ["test  test/loss 1.5000", "validation  val/loss 2.5000"]);
    }

    #[test]
    fn zero_batches_are_refused_by_the_name_of_the_option() {
        let error = Console::from_options(0.into()).expect_err("refused").to_string();
        assert!(error.starts_with("`log_every_n_batches` must be 1 or more"), "{error}");
    }

    #[test]
    fn the_needed_run_length_is_declared() {
        let needs = |every: u64| Console::from_options(every.into()).expect("it fits").spec().min_run_length;
        assert_eq!(needs(10), [("log_every_n_batches", Cadence::Batches(10))], "the default, too");
        assert_eq!(needs(50), [("log_every_n_batches", Cadence::Batches(50))]);
    }
}
