//! The state of the loop, by what it is about.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenterhook_core::tensor::ReadScalar;
use tenterhook_core::{Decision, Failure, Outcome, Phase, Progress, Stage, Status};

use crate::losses::{Losses, Once};
use crate::module::Optimization;
use crate::outputs::Outputs;
use crate::run::Interrupt;

/// Where the current batch came from.
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
    /// Its gradients have not been cleared yet.
    #[default]
    Closed,
    /// Gradients are being accumulated.
    Open,
    /// Open, but its gradients are not used: a controller skipped the update.
    Skipped,
}

/// Where the loop stands: stage, epoch, batch and accumulation window.
pub(crate) struct LoopState {
    pub(crate) stage: Stage,
    pub(crate) phase: Phase,
    pub(crate) status: Status,
    pub(crate) progress: Progress,
    pub(crate) batch: BatchPlace,
    /// The training batch, while an evaluation has its own.
    pub(crate) train_batch: BatchPlace,
    /// The progress before the training batch that is under way.
    pub(crate) before_batch: Option<Progress>,
    pub(crate) window: Window,
    /// How long the run had taken when training began.
    pub(crate) train_began: Duration,
    /// How long the run had taken when the last validation ended, or training began.
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

    /// The training batch, also while a validation has its own.
    pub(crate) fn training_batch(&self) -> BatchPlace {
        if self.phase == Phase::Train { self.batch } else { self.train_batch }
    }
}

/// What the module's steps yield.
pub(crate) struct StepValues<S> {
    pub(crate) losses: Losses<S>,
    /// The outputs of an evaluation step, while a hook wants them.
    pub(crate) outputs: Option<Outputs>,
}

impl<S: ReadScalar> StepValues<S> {
    pub(super) fn new() -> StepValues<S> {
        StepValues { losses: Losses::new(), outputs: None }
    }
}

/// What updates need to know from one to the next.
pub(crate) struct UpdateState<S> {
    pub(crate) optimization: Optimization,
    /// The gradient norms of this step, one per optimizer.
    pub(crate) norms: Vec<Once<S>>,
    /// The optimizers whose missing gradients have been reported.
    pub(crate) gradients_seen: Vec<usize>,
    /// The last step that the module made itself in this batch was counted.
    pub(crate) stepped_itself: bool,
}

impl<S> Default for UpdateState<S> {
    fn default() -> UpdateState<S> {
        let (optimization, norms, gradients_seen, stepped_itself) = Default::default();
        UpdateState { optimization, norms, gradients_seen, stepped_itself }
    }
}

/// What hooks and module have decided, until the loop carries it out.
#[derive(Debug, Default)]
pub(crate) struct FlowRequests {
    /// Who asked to stop, and why.
    pub(crate) stop: Option<(String, String)>,
    pub(crate) end_epoch: bool,
    pub(crate) skip_batch: bool,
    pub(crate) skip_update: bool,
    pub(crate) validate: bool,
    /// The decisions of the module, until its handler has returned.
    pub(crate) of_module: Vec<Decision>,
}

/// How the call ends.
pub(crate) struct Ending {
    pub(crate) interrupt: Interrupt,
    /// The signal that ends the run, once the loop has seen it.
    pub(crate) signal: Option<String>,
    /// A signal ends the epoch early.
    pub(crate) cut_short: bool,
    pub(crate) outcome: Outcome,
    /// Hooks are being torn down, or the run has failed: no other event follows.
    pub(crate) closing: bool,
    /// Failures between the first fatal one and `on_exception`.
    pub(crate) later: Vec<Failure>,
}

impl Default for Ending {
    fn default() -> Ending {
        let (signal, cut_short, closing, later) = Default::default();
        Ending { interrupt: Interrupt::new(), signal, cut_short, outcome: Outcome::Completed, closing, later }
    }
}
