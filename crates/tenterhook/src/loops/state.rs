//! The state of the loop, in parts.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenterhook_core::tensor::ReadScalar;
use tenterhook_core::{Batch, Decision, Flow, Metrics, Phase, Progress, Stage, Status, Tensors};

use crate::data::BatchData;
use crate::losses::{LazyScalar, Losses};
use crate::module::{Module, Optimization};
use crate::outputs::Outputs;
use crate::settings::Limits;

/// The position of a batch, and the loader that it came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BatchPlace {
    pub(crate) index: u64,
    pub(crate) loader: usize,
    pub(crate) is_last: bool,
}

/// An accumulation window: the micro-batches whose gradients one update uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Window {
    /// The gradients of the last window have not been cleared yet.
    #[default]
    Closed,
    /// Gradients are being accumulated.
    Open,
    /// Gradients are being accumulated, but a controller has skipped the update.
    Skipped,
}

/// Stage, progress, batch and accumulation window.
pub(crate) struct LoopState {
    pub(crate) stage: Stage,
    pub(crate) phase: Phase,
    pub(crate) status: Status,
    pub(crate) progress: Progress,
    pub(crate) batch: BatchPlace,
    /// The training batch during a validation.
    pub(crate) train_batch: BatchPlace,
    /// The progress before the current training batch.
    pub(crate) before_batch: Option<Progress>,
    pub(crate) window: Window,
    /// The run's time when training began.
    pub(crate) train_began: Duration,
    /// The run's time when the last validation ended, or training began.
    pub(crate) last_validation: Duration,
}

impl LoopState {
    pub(super) fn new(stage: Stage) -> LoopState {
        LoopState {
            stage,
            phase: Phase::Train,
            status: Status::Starting,
            progress: Progress::default(),
            batch: BatchPlace::default(),
            train_batch: BatchPlace::default(),
            before_batch: None,
            window: Window::Closed,
            train_began: Duration::ZERO,
            last_validation: Duration::ZERO,
        }
    }

    /// Counts the batch, and opens an accumulation window if one starts here.
    #[inline]
    pub(super) fn begin_batch(&mut self, loader: usize, is_last: bool, accumulate: u64) {
        self.batch = BatchPlace { index: self.progress.batches, loader, is_last };
        self.before_batch = Some(self.progress);
        self.progress.batches += 1;
        self.progress.total_batches += 1;
        self.progress.step_counted = false;
        if self.batch.index.is_multiple_of(accumulate) {
            self.window = Window::Closed;
        }
    }

    /// Whether training is done: no further epoch begins. `length` is the number of batches of an epoch.
    pub(super) fn training_is_done(&self, limits: &Limits, flow: &FlowRequests, length: Option<u64>) -> bool {
        length == Some(0)
            || limits.steps_are_done(&self.progress)
            || limits.max_epochs.is_some_and(|max| self.progress.epochs_done >= max)
            || flow.stops(limits, &self.progress)
    }

    /// Whether the epoch is done: no further batch begins.
    #[inline]
    pub(super) fn epoch_is_done(&self, limits: &Limits, flow: &FlowRequests) -> bool {
        self.batch.is_last || limits.steps_are_done(&self.progress) || flow.stops(limits, &self.progress)
    }

    /// Ends the batch: later metrics belong to the last completed step.
    #[inline]
    pub(super) fn leave_batch(&mut self, metrics: &Metrics) {
        self.before_batch = None;
        metrics.set_step(self.progress.step);
    }

    /// A batch as hooks see it.
    pub(super) fn view<'b>(&self, batch: &'b impl BatchData, loader: &'b str) -> Batch<'b> {
        let BatchPlace { index, loader: loader_index, is_last } = self.batch;
        let tensors = Tensors::new(batch.tensors());
        Batch { index, size: batch.size(), loader_index, loader, is_last, tensors }
    }

    /// Whether an accumulation window is open.
    pub(crate) fn is_within_window(&self, limits: &Limits, module: &impl Module) -> bool {
        module.automatic_optimization()
            && self.window != Window::Closed
            && !self.training_batch().is_last
            && !self.progress.batches.is_multiple_of(limits.accumulate)
    }

    /// The training batch, also during a validation.
    pub(crate) fn training_batch(&self) -> BatchPlace {
        if self.phase == Phase::Train { self.batch } else { self.train_batch }
    }
}

/// The results of the module's steps.
pub(crate) struct StepValues<S> {
    pub(crate) losses: Losses<S>,
    /// The outputs of an evaluation step, if a hook receives them.
    pub(crate) outputs: Option<Outputs>,
}

impl<S: ReadScalar> StepValues<S> {
    pub(super) fn new() -> StepValues<S> {
        StepValues { losses: Losses::new(), outputs: None }
    }
}

/// The state of the optimizer steps.
pub(crate) struct UpdateState<S> {
    pub(crate) optimization: Optimization,
    /// The gradient norms of this step, one per optimizer.
    pub(crate) norms: Vec<LazyScalar<S>>,
    /// The optimizers that were checked for parameters without a gradient.
    pub(crate) gradients_seen: Vec<usize>,
    /// With manual optimization: the module's last step in this batch was counted.
    pub(crate) stepped_itself: bool,
}

impl<S> Default for UpdateState<S> {
    fn default() -> UpdateState<S> {
        UpdateState {
            optimization: Optimization::default(),
            norms: Vec::new(),
            gradients_seen: Vec::new(),
            stepped_itself: false,
        }
    }
}

impl<S> UpdateState<S> {
    /// The parameters that got no gradient, usually because of a mistake in the model. Checked once per
    /// optimizer.
    pub(super) fn missing_gradients(&mut self, module: &impl Module, optimizer: usize) -> Vec<String> {
        if self.gradients_seen.contains(&optimizer) {
            return Vec::new();
        }
        self.gradients_seen.push(optimizer);
        module.without_gradient(optimizer)
    }
}

/// The pending requests of hooks and module.
#[derive(Debug, Default)]
pub(crate) struct FlowRequests {
    /// The hook or module that requested a stop, and its reason.
    pub(crate) stop: Option<(String, String)>,
    pub(crate) end_epoch: bool,
    pub(crate) skip_batch: bool,
    pub(crate) skip_update: bool,
    pub(crate) validate: bool,
    /// Decisions of the module, applied after its handler has returned.
    pub(crate) from_module: Vec<Decision>,
}

impl FlowRequests {
    /// Whether a stop was requested, and `min_epochs` and `min_steps` allow it.
    #[inline]
    pub(super) fn stops(&self, limits: &Limits, progress: &Progress) -> bool {
        self.stop.is_some() && progress.epochs_done >= limits.min_epochs && progress.step >= limits.min_steps
    }

    /// Requests a flow, which takes effect at the next safe point of the loop.
    pub(super) fn request(&mut self, by: &str, flow: Flow) {
        match flow {
            Flow::Continue => {}
            Flow::SkipUpdate => self.skip_update = true,
            Flow::SkipBatch => self.skip_batch = true,
            Flow::EndEpoch => self.end_epoch = true,
            Flow::Stop { reason } => {
                self.stop.get_or_insert((by.to_owned(), reason));
            }
            unknown => debug_assert!(false, "the loop does not know {unknown:?}"),
        }
    }
}
