//! Detects NaN and infinite values before they reach the weights.

mod dump;
mod findings;
mod options;
mod shape_log;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use tenterhook_core::{
    Activation, AfterBackward, BeforeBackward, Controller, Decision, Event, FINDS_NAN, Flow, HookResult,
    HookSpec, OptionError, Phase, Policy, Progress, RunContext, Tier, TrainBatchEnd, TrainBatchStart,
    TrainStart, epoch_label, hook,
};

use dump::Report;
use findings::{BatchRecord, Finding, describe, summary};
pub use options::{NanAction, NanGuardOptions};
use shape_log::ShapeLog;

use crate::support::from_options;
use crate::support::point_filter::PointFilter;

/// Detects NaN and infinite values in losses, gradients and activations, and keeps them out of the weights.
///
/// - **Fires** in training at `on_train_batch_start`, `on_after_backward` and `on_train_batch_end`, with
///   `check_activations` at `on_activation`, and with `check_loss` at `on_before_backward`. The default action, `raise`,
///   skips the update first and fails the run at the end of the batch, so that the batch is dumped and an emergency
///   checkpoint holds good weights.
/// - **Reads** losses, gradients and activations, and after a finding the parameters and the batch. Writes at most
///   `max_dumps` directories `nan_guard/step_<n>` into the run directory, or beside the checkpoints if there is none;
///   nothing in a dry run. `batch.safetensors` holds the batch's tensors in their own types. `report.json` lists the
///   findings, and for every parameter, gradient and activation the number of NaN and infinite values and the mean,
///   standard deviation, minimum and maximum of the others. The hook prints the Python code that loads both, and after
///   the first batch reports `points` that match nothing.
/// - **Cost**: every loss is read before its backward pass, and every gradient and every activation is scanned once.
///   `check_loss`, `check_gradients`, `check_activations` and `points` reduce it.
/// - **When it fails** the run is aborted, which is how `raise` ends it. A dump that cannot be written is only reported.
///
/// With gradient accumulation, a window with a non-finite value is skipped and counted once. Of consecutive non-finite
/// steps, the first ten and then every hundredth are reported.
///
/// ```toml
/// [[hooks]]
/// use = "nan_guard"
/// action = "raise"
/// check_loss = true
/// check_gradients = true
/// check_activations = true
/// points = ["**"]
/// max_consecutive = 0
/// log_shapes = false
/// dump = true
/// max_dumps = 3
/// ```
#[derive(Clone, Debug)]
pub struct NanGuard {
    options: NanGuardOptions,
    points: PointFilter,
    state: SavedState,
    batch: BatchRecord,
    /// The number of the batch's findings that are already handled.
    handled: usize,
    shapes: ShapeLog,
}

/// State saved in checkpoints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct SavedState {
    last_good_step: Option<u64>,
    /// Consecutive steps with a non-finite value.
    in_a_row: u64,
    dumps: u64,
    /// The last accumulation window with a finding: its epoch and its index there.
    #[serde(default)]
    non_finite_window: Option<(u64, u64)>,
}

from_options! {
    NanGuard from NanGuardOptions,
    purpose: "finds NaN and infinity in losses, gradients and activations",
    example: r#"
action = "skip"
max_consecutive = 10
points = ["blocks.**"]
log_shapes = true
"#
}

impl NanGuard {
    /// Creates the hook, or reports an invalid option.
    pub fn new(options: NanGuardOptions) -> Result<NanGuard, OptionError> {
        Ok(NanGuard {
            points: options.check()?,
            options,
            state: SavedState::default(),
            batch: BatchRecord::default(),
            handled: 0,
            shapes: ShapeLog::default(),
        })
    }

    /// The last step in which all values were finite.
    #[must_use]
    pub fn last_good_step(&self) -> Option<u64> {
        self.state.last_good_step
    }

    /// The accumulation window of the current batch.
    fn window(run_cx: &RunContext<'_>) -> (u64, u64) {
        let batch = run_cx.batches.saturating_sub(1);
        (run_cx.epoch, batch / run_cx.run.accumulate_grad_batches.max(1))
    }

    /// Whether the run fails at the end of this batch.
    fn raises(&self) -> bool {
        let limit = self.options.max_consecutive;
        self.options.action == NanAction::Raise || limit > 0 && self.state.in_a_row >= limit
    }

    /// Handles new findings: counts them and decides about the update.
    fn handle(&mut self, run_cx: &RunContext<'_>) -> Decision {
        let window = NanGuard::window(run_cx);
        let same_window = self.state.non_finite_window == Some(window);
        let mut new_findings = self.batch.found[self.handled..].iter();
        if same_window && new_findings.all(|found| matches!(found, Finding::Gradient(_))) {
            // Gradients accumulate over the window, so an earlier finding is still in them.
            self.batch.found.truncate(self.handled);
            return if self.options.action == NanAction::Warn {
                Decision::CONTINUE
            } else {
                Decision::skip_update()
            };
        }
        self.handled = self.batch.found.len();
        self.state.non_finite_window = Some(window);
        if !same_window {
            self.state.in_a_row = self.state.in_a_row.saturating_add(1);
        }
        self.batch.parameters = describe(&run_cx.params());
        match self.options.action {
            NanAction::Warn if !self.raises() => Decision::CONTINUE,
            NanAction::Stop => Decision::stop(summary(&self.batch.found)).and(Flow::SkipUpdate),
            _ => Decision::skip_update(),
        }
    }

    /// Reports and dumps the findings; returns an error if they fail the run.
    fn report(&mut self, cx: &TrainBatchEnd) -> HookResult {
        let raises = self.raises();
        let in_a_row = self.state.in_a_row;
        let text = self.text(cx, raises);
        let is_reported = in_a_row <= 10 || in_a_row.is_multiple_of(100);
        if is_reported && !raises {
            cx.say(text.clone());
        }
        if self.options.dump && self.state.dumps < self.options.max_dumps {
            self.dump(cx);
        }
        if raises { Err(text.into()) } else { Ok(()) }
    }

    /// The message. The report of an error adds step and epoch itself.
    fn text(&self, cx: &TrainBatchEnd, raised: bool) -> String {
        let good = match self.state.last_good_step {
            Some(good) => format!("the last good step was {good}"),
            None => "there was no good step yet".to_owned(),
        };
        let row = match self.state.in_a_row {
            0 | 1 => String::new(),
            in_a_row => format!("; {in_a_row} consecutive non-finite steps"),
        };
        let skipped = if cx.progress.step_counted { "" } else { "; the update was skipped" };
        let batch = format!("batch {} of `{}`", cx.batch.index, cx.batch.loader);
        let (step, epoch, found) =
            (cx.progress.current_step(), epoch_label(cx.epoch, None), summary(&self.batch.found));
        let place = if raised { batch } else { format!("step {step} ({epoch}, {batch})") };
        format!("{place}: {found}; {good}{row}{skipped}")
    }

    fn dump(&mut self, cx: &TrainBatchEnd) {
        let BatchRecord { found, loss, parameters, gradients, .. } = &self.batch;
        let report = Report {
            step: cx.progress.current_step(),
            epoch: cx.epoch,
            batch: cx.batch.index,
            batch_size: cx.batch.size,
            loader: cx.batch.loader,
            loader_index: cx.batch.loader_index,
            action: self.options.action.name(),
            in_a_row: self.state.in_a_row,
            last_good_step: self.state.last_good_step,
            loss: loss.or_else(|| Some(cx.loss.as_ref()?.value())),
            found,
            note: "mean, std, min and max are over the finite values",
            batch_tensors: describe(&cx.batch.tensors),
            parameters,
            gradients,
            activations: self.batch.activations(),
        };
        let root = match dump::root(cx.run) {
            Ok(Some(root)) => root,
            // Only a dry run has no directory.
            Ok(None) => return,
            Err(error) => return cx.say(format!("cannot dump the batch: {error}")),
        };
        match dump::write(&root, &report, &cx.batch.tensors) {
            Ok(place) => {
                self.state.dumps = self.state.dumps.saturating_add(1);
                let (lines, place) = (dump::python(&place), place.display());
                let what = if cx.batch.tensors.is_empty() {
                    "the batch exposes no tensors; only the statistics"
                } else {
                    "batch and statistics"
                };
                cx.say(format!("{what} are in {place}; in Python:\n{lines}"));
            }
            Err(error) => cx.say(format!("cannot dump the batch below {}: {error}", root.display())),
        }
    }

    /// After a batch in which all values were finite.
    fn finish_finite_batch(&mut self, cx: &TrainBatchEnd) {
        let is_non_finite = self.state.non_finite_window == Some(NanGuard::window(cx));
        if !cx.progress.step_counted || is_non_finite {
            return;
        }
        self.state.last_good_step = Some(cx.step);
        let in_a_row = std::mem::take(&mut self.state.in_a_row);
        if in_a_row > 0 {
            cx.say(format!("step {} is finite again, after {in_a_row} non-finite", cx.step));
        }
    }
}

#[hook(state = "state", version = 2)]
impl Controller for NanGuard {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        spec.tier(Tier::BuiltIn)
            .policy(Policy::ABORT)
            .wants_if(Event::Activation, self.options.check_activations)
            .wants_if(Event::BeforeBackward, self.options.check_loss)
            .provides(FINDS_NAN)
    }

    fn wants_point(&self, point: &str) -> bool {
        self.points.matches(point)
    }

    fn wants_activations(&self, phase: Phase, _progress: &Progress) -> bool {
        phase == Phase::Train
    }

    fn on_train_start(&mut self, cx: &TrainStart) -> HookResult<Decision> {
        if let Some(directory) = &cx.run.directory
            && let Some(root) = dump::root(cx.run)?.filter(|root| root.starts_with(directory))
        {
            dump::remove_from(&root, cx.epoch, cx.batches)?;
        }
        Ok(Decision::CONTINUE)
    }

    fn on_train_batch_start(&mut self, cx: &TrainBatchStart) -> HookResult<Decision> {
        self.batch.clear();
        self.handled = 0;
        if self.options.log_shapes {
            self.shapes.report(cx, &cx.batch.tensors);
        }
        Ok(Decision::CONTINUE)
    }

    fn on_activation(&mut self, cx: &Activation) -> HookResult {
        for tensor in cx.values.iter() {
            self.batch.activation(cx.point, &tensor);
        }
        Ok(())
    }

    fn on_before_backward(&mut self, cx: &BeforeBackward) -> HookResult<Decision> {
        self.batch.loss(cx.loss.value());
        Ok(Decision::CONTINUE)
    }

    fn on_after_backward(&mut self, cx: &AfterBackward) -> HookResult<Decision> {
        if self.options.check_gradients {
            self.batch.gradients(&cx.gradients);
        }
        if self.batch.found.len() == self.handled {
            return Ok(Decision::CONTINUE);
        }
        self.batch.gradients = describe(&cx.gradients);
        Ok(self.handle(cx))
    }

    fn on_train_batch_end(&mut self, cx: &TrainBatchEnd) -> HookResult<Decision> {
        self.points.report_unmatched(cx);
        let mut decision = Decision::CONTINUE;
        if self.batch.found.len() > self.handled {
            // Without a loss there is no backward pass, which would have handled the activations.
            decision = self.handle(cx);
        }
        if self.batch.found.is_empty() {
            self.finish_finite_batch(cx);
        } else {
            self.report(cx)?;
        }
        Ok(decision)
    }
}
