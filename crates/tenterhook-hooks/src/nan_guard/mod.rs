//! Finds NaN and infinity before they get into the weights.

mod dump;
mod options;
mod seen;
mod shapes;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use tenterhook_core::{
    Activation, AfterBackward, BeforeBackward, Controller, Decision, Event, FINDS_NAN, Flow, FromOptions,
    HookResult, HookSpec, OptionError, Phase, Policy, Progress, RunContext, Tier, TrainBatchEnd,
    TrainBatchStart, TrainStart, epoch_label, hook,
};

use dump::Report;
pub use options::{NanAction, NanGuardOptions};
use seen::{Finding, Seen, describe, in_words};
use shapes::Shapes;

use crate::points::Points;

/// Looks for NaN and infinity in the loss, in the gradients and in the activations of training, and keeps
/// them out of the weights.
///
/// - **Fires** at `on_train_batch_start`, `on_after_backward` and `on_train_batch_end`, with
///   `check_activations` at `on_activation` and with `check_loss` at `on_before_backward`, in training only. The default is to `raise`: a debugging hook that finds
///   something should be noticed. The update is skipped first, and the run fails when the batch is done,
///   so that the batch is dumped and an emergency checkpoint holds good weights.
/// - **Reads** losses, gradients, activations, and on a hit parameters and batch; writes at most `max_dumps`
///   directories `nan_guard/step_<n>` into the run directory, else beside the checkpoints; none in a
///   dry run. In each `batch.safetensors` has the batch's tensors in their own types, and `report.json` what
///   was found where and the statistics of every parameter, gradient and activation: how many values are NaN
///   and how many infinite, and the others by mean, deviation, smallest and largest. It says the lines that
///   load them in Python, and after the first batch which of the `points` that were chosen there are not.
/// - **Cost**: every loss is read before its backward pass, and every gradient and every activation shown
///   is gone through once. `check_loss`, `check_gradients`, `check_activations` and `points` make it less.
/// - **When it fails** the run is aborted; that is also how it raises. A dump that cannot be written is
///   said, and changes nothing.
///
/// With accumulation, a window with something in it that is not finite is skipped and counted once. Of many
/// poisoned steps in a row the first ten are said, then every hundredth.
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
    points: Points,
    memory: Memory,
    seen: Seen,
    /// How many of the batch's findings have been acted upon.
    heeded: usize,
    shapes: Shapes,
}

/// What a checkpoint keeps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Memory {
    last_good_step: Option<u64>,
    /// Poisoned steps in a row.
    in_a_row: u64,
    dumps: u64,
    /// The last accumulation window in which something was found: its epoch and its number there.
    #[serde(default)]
    poisoned: Option<(u64, u64)>,
}

impl FromOptions for NanGuard {
    type Options = NanGuardOptions;
    const PURPOSE: &str = "finds NaN and infinity in losses, gradients and activations";
    const EXAMPLE: &str = r#"
action = "skip"
max_consecutive = 10
points = ["blocks.**"]
log_shapes = true
"#;

    fn from_options(options: NanGuardOptions) -> Result<NanGuard, OptionError> {
        NanGuard::new(options)
    }
}

impl NanGuard {
    /// With these options, which are checked.
    pub fn new(options: NanGuardOptions) -> Result<NanGuard, OptionError> {
        Ok(NanGuard {
            points: options.check()?,
            options,
            memory: Memory::default(),
            seen: Seen::default(),
            heeded: 0,
            shapes: Shapes::default(),
        })
    }

    /// The last step in which everything was finite.
    #[must_use]
    pub fn last_good_step(&self) -> Option<u64> {
        self.memory.last_good_step
    }

    /// The accumulation window that the batch at hand belongs to.
    fn window(run_cx: &RunContext<'_>) -> (u64, u64) {
        let batch = run_cx.batches.saturating_sub(1);
        (run_cx.epoch, batch / run_cx.run.accumulate_grad_batches.max(1))
    }

    /// Whether the run fails when this batch is done.
    fn raises(&self) -> bool {
        let limit = self.options.max_consecutive;
        self.options.action == NanAction::Raise || limit > 0 && self.memory.in_a_row >= limit
    }

    /// Something is not finite that was not heeded yet.
    fn heed(&mut self, run_cx: &RunContext<'_>) -> Decision {
        let window = NanGuard::window(run_cx);
        let again = self.memory.poisoned == Some(window);
        let mut news = self.seen.found[self.heeded..].iter();
        if again && news.all(|found| matches!(found, Finding::Gradient(_))) {
            // They are summed over the window, so what an earlier backward pass left is still in them.
            self.seen.found.truncate(self.heeded);
            return if self.options.action == NanAction::Warn {
                Decision::CONTINUE
            } else {
                Decision::skip_update()
            };
        }
        self.heeded = self.seen.found.len();
        self.memory.poisoned = Some(window);
        if !again {
            self.memory.in_a_row = self.memory.in_a_row.saturating_add(1);
        }
        self.seen.parameters = describe(&run_cx.params());
        match self.options.action {
            NanAction::Warn if !self.raises() => Decision::CONTINUE,
            NanAction::Stop => Decision::stop(in_words(&self.seen.found)).and(Flow::SkipUpdate),
            _ => Decision::skip_update(),
        }
    }

    /// Says what was found, after dumping it; an error if that ends the run.
    fn report(&mut self, cx: &TrainBatchEnd) -> HookResult {
        let raises = self.raises();
        let in_a_row = self.memory.in_a_row;
        let text = self.text(cx, raises);
        let worth_saying = in_a_row <= 10 || in_a_row.is_multiple_of(100);
        if worth_saying && !raises {
            cx.say(text.clone());
        }
        if self.options.dump && self.memory.dumps < self.options.max_dumps {
            self.dump(cx);
        }
        if raises { Err(text.into()) } else { Ok(()) }
    }

    /// What was found. An error is reported with its epoch and the steps that were done, so it has no count of its
    /// own.
    fn text(&self, cx: &TrainBatchEnd, raised: bool) -> String {
        let good = match self.memory.last_good_step {
            Some(good) => format!("the last good step was {good}"),
            None => "there was no good step yet".to_owned(),
        };
        let row = match self.memory.in_a_row {
            0 | 1 => String::new(),
            in_a_row => format!("; {in_a_row} poisoned steps in a row"),
        };
        let skipped = if cx.progress.step_counted { "" } else { "; the update was skipped" };
        let batch = format!("batch {} of `{}`", cx.batch.index, cx.batch.loader);
        let (step, epoch, found) =
            (cx.progress.current_step(), epoch_label(cx.epoch, None), in_words(&self.seen.found));
        let place = if raised { batch } else { format!("step {step} ({epoch}, {batch})") };
        format!("{place}: {found}; {good}{row}{skipped}")
    }

    fn dump(&mut self, cx: &TrainBatchEnd) {
        let Seen { found, loss, parameters, gradients, .. } = &self.seen;
        let report = Report {
            step: cx.progress.current_step(),
            epoch: cx.epoch,
            batch: cx.batch.index,
            batch_size: cx.batch.size,
            loader: cx.batch.loader,
            loader_index: cx.batch.loader_index,
            action: self.options.action.word(),
            in_a_row: self.memory.in_a_row,
            last_good_step: self.memory.last_good_step,
            loss: loss.or_else(|| Some(cx.loss.as_ref()?.value())),
            found,
            note: "mean, std, min and max are over the finite values",
            batch_tensors: describe(&cx.batch.tensors),
            parameters,
            gradients,
            activations: self.seen.activations(),
        };
        let root = match dump::root(cx.run) {
            Ok(Some(root)) => root,
            // Only a dry run has none.
            Ok(None) => return,
            Err(error) => return cx.say(format!("cannot dump the batch: {error}")),
        };
        match dump::write(&root, &report, &cx.batch.tensors) {
            Ok(place) => {
                self.memory.dumps = self.memory.dumps.saturating_add(1);
                let (lines, place) = (dump::python(&place), place.display());
                let what = if cx.batch.tensors.is_empty() {
                    "the batch shows no tensors, so only the statistics"
                } else {
                    "batch and statistics"
                };
                cx.say(format!("{what} are in {place}; in Python:\n{lines}"));
            }
            Err(error) => cx.say(format!("cannot dump the batch below {}: {error}", root.display())),
        }
    }

    /// A batch in which everything was finite.
    fn is_well(&mut self, cx: &TrainBatchEnd) {
        let poisoned = self.memory.poisoned == Some(NanGuard::window(cx));
        if !cx.progress.step_counted || poisoned {
            return;
        }
        self.memory.last_good_step = Some(cx.step);
        let in_a_row = std::mem::take(&mut self.memory.in_a_row);
        if in_a_row > 0 {
            cx.say(format!("step {} is finite again, after {in_a_row} that were not", cx.step));
        }
    }
}

#[hook(state = "memory")]
impl Controller for NanGuard {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        spec.tier(Tier::BuiltIn)
            .policy(Policy::ABORT)
            .wants_if(Event::Activation, self.options.check_activations)
            .wants_if(Event::BeforeBackward, self.options.check_loss)
            .provides(FINDS_NAN)
    }

    fn wants_point(&self, point: &str) -> bool {
        self.points.want(point)
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
        self.seen.clear();
        self.heeded = 0;
        if self.options.log_shapes {
            self.shapes.tell(cx, &cx.batch.tensors);
        }
        Ok(Decision::CONTINUE)
    }

    fn on_activation(&mut self, cx: &Activation) -> HookResult {
        for tensor in cx.values.iter() {
            self.seen.activation(cx.point, &tensor);
        }
        Ok(())
    }

    fn on_before_backward(&mut self, cx: &BeforeBackward) -> HookResult<Decision> {
        self.seen.loss(cx.loss.value());
        Ok(Decision::CONTINUE)
    }

    fn on_after_backward(&mut self, cx: &AfterBackward) -> HookResult<Decision> {
        if self.options.check_gradients {
            self.seen.gradients(&cx.gradients);
        }
        if self.seen.found.len() == self.heeded {
            return Ok(Decision::CONTINUE);
        }
        self.seen.gradients = describe(&cx.gradients);
        Ok(self.heed(cx))
    }

    fn on_train_batch_end(&mut self, cx: &TrainBatchEnd) -> HookResult<Decision> {
        self.points.say_what_matches_nothing(cx);
        let mut decision = Decision::CONTINUE;
        if self.seen.found.len() > self.heeded {
            // In activations of a step that yielded no loss.
            decision = self.heed(cx);
        }
        if self.seen.found.is_empty() {
            self.is_well(cx);
        } else {
            self.report(cx)?;
        }
        Ok(decision)
    }
}
