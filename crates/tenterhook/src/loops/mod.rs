//! The loops. `fit.rs` is training from the first event to the last, `update.rs` forward, backward and
//! optimizer step, `evaluate.rs` validation, test and prediction, `event.rs` how an event is delivered,
//! `decisions.rs` how the decisions of hooks are applied, `saving.rs` how checkpoints are taken, and `ranks/` the
//! collectives of several ranks.
//!
//! - A skipped update skips its whole accumulation window, because the sum of the gradients contains those
//!   that must not be used.
//! - A decision may hold several flows. Each takes effect, and the strongest determines how the run ends.
//! - Gradient norms that only hooks with a cadence read are computed in the steps of these hooks
//!   (`HookRunner::wants_at`).
//! - Checkpoints hold the module's own weights while others are swapped in.
//! - Training loaders are made before `configure_optimizers`, because schedules need the length of training.
//! - A checkpoint after a failure is taken at the last point from which the run can be resumed. The
//!   accumulation window of the failed batch starts again.

#[macro_use]
pub(crate) mod event;
mod decisions;
mod ending;
pub(crate) mod evaluate;
pub(crate) mod fit;
pub(crate) mod ranks;
mod recording;
mod saving;
mod state;
pub(crate) mod update;
mod weight_swap;

use tenterhook_core::failure::ensure_displayable;
use tenterhook_core::plan::TRAIN_LOSS;
use tenterhook_core::{
    BoxError, Failure, HookRunner, LogOptions, Origin, Progress, RunState, Stage, backtraces,
};

use crate::accounts::Accounts;
use crate::checkpoint::Checkpointer;
use crate::data::{of_loader, panic_in};
use crate::journal::Journal;
use crate::module::Module;
use crate::settings::Limits;
use crate::stall::StallWatch;
use crate::strategy::Strategy;
pub(crate) use ending::Ending;
use ranks::Ranks;
pub(crate) use state::{BatchPlace, FlowRequests, LoopState, StepValues, UpdateState, Window};
pub(crate) use weight_swap::WeightSwap;

/// User code that the loop calls, apart from hooks. It becomes the origin of a failure.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Callee {
    Module,
    Data,
    Strategy,
    Trainer,
}

impl From<Callee> for Origin {
    fn from(callee: Callee) -> Origin {
        match callee {
            Callee::Module => Origin::Module,
            Callee::Data => Origin::Data,
            Callee::Strategy => Origin::Strategy,
            Callee::Trainer => Origin::Trainer,
        }
    }
}

/// The loaders: names of those for training and of those for evaluation, and the watch that reports stalls.
pub(crate) struct LoaderState {
    pub(crate) names: [Vec<String>; 2],
    pub(crate) watch: StallWatch,
}

impl LoaderState {
    /// Starts watching for stalls of the training or evaluation loaders.
    pub(crate) fn begin_watch(
        &mut self,
        evaluates: bool,
        journal: &Journal,
        shared: &RunState,
        progress: &Progress,
    ) {
        self.watch.wait.set_position(progress, evaluates);
        self.watch.begin(&journal.notices.readers, journal.shared_recorder(), shared.elapsed());
    }
}

/// The current call of user code. It is set before every call, so it must be cheap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Calling {
    pub(crate) callee: Callee,
    pub(crate) place: &'static str,
}

/// The state of a call of the trainer, by parts. Module and data belong to the user and are passed in.
pub struct Loop<M: Module> {
    pub(crate) hooks: HookRunner,
    /// The state that hooks share: run, metrics, blackboard, random streams, clock.
    pub(crate) shared: RunState,
    pub(crate) limits: Limits,
    pub(crate) state: LoopState,
    pub(crate) values: StepValues<M::Scalar>,
    pub(crate) update: UpdateState<M::Scalar>,
    pub(crate) flow: FlowRequests,
    pub(crate) weights: WeightSwap,
    pub(crate) ending: Ending,
    pub(crate) accounts: Accounts,
    pub(crate) checkpointer: Checkpointer,
    pub(crate) journal: Journal,
    pub(crate) loaders: LoaderState,
    pub(crate) ranks: Ranks,
    pub(crate) calling: Calling,
}

impl<M: Module> Loop<M> {
    pub(crate) fn new(
        hooks: HookRunner,
        shared: RunState,
        limits: Limits,
        stage: Stage,
        journal: Journal,
        strategy: Box<dyn Strategy>,
    ) -> Loop<M> {
        let watch = StallWatch::new(limits.stall_warning);
        Loop {
            hooks,
            shared,
            limits,
            state: LoopState::new(stage),
            values: StepValues::new(),
            update: UpdateState::default(),
            flow: FlowRequests::default(),
            weights: WeightSwap::default(),
            ending: Ending::default(),
            accounts: Accounts::default(),
            checkpointer: Checkpointer::default(),
            journal,
            loaders: LoaderState { names: Default::default(), watch },
            ranks: Ranks::new(strategy),
            calling: Calling { callee: Callee::Trainer, place: "start" },
        }
    }

    /// Lets macros take a `Loop` or a reference to it.
    #[inline]
    pub(crate) fn as_mut(&mut self) -> &mut Loop<M> {
        self
    }

    /// Sets the origin of a failure or panic in the call that follows.
    #[inline]
    pub(crate) fn enter(&mut self, callee: Callee, place: &'static str) {
        self.calling = Calling { callee, place };
    }

    /// A failure of the current call. A hook's failure inside a manual step of the module remains the hook's.
    pub(crate) fn failed(&self, error: BoxError, panicked: bool) -> Failure {
        match error.downcast::<Failure>() {
            Ok(failure) => *failure,
            Err(error) => {
                let mut error = ensure_displayable(error);
                let Progress { epoch, step, .. } = self.state.progress;
                let Calling { callee, place } = self.calling;
                if panicked && matches!((callee, place), (Callee::Data, "seek" | "next")) {
                    error = of_loader(&self.loaders.watch.wait.loader_name(), error);
                }
                let (panicked, trace) = match panic_in(&mut error) {
                    Some(elsewhere) => (true, elsewhere.take_backtrace()),
                    None if panicked => (true, backtraces::of_last_panic()),
                    None => (false, backtraces::of_error(&error)),
                };
                Failure { origin: callee.into(), place, epoch, step, panicked, error, trace }
            }
        }
    }

    /// Converts an error to a failure of the current call.
    #[inline]
    pub(crate) fn checked<T>(&self, result: Result<T, BoxError>) -> Result<T, Failure> {
        result.map_err(|error| self.failed(error, false))
    }

    /// Fails on behalf of this callee.
    pub(crate) fn fail<T>(
        &mut self,
        callee: Callee,
        place: &'static str,
        error: impl Into<BoxError>,
    ) -> Result<T, Failure> {
        self.enter(callee, place);
        Err(self.failed(error.into(), false))
    }

    /// Reads and logs the loss every `log_every_n_steps`, or in every step if a hook reads every loss. A loss
    /// that is read only for observers is visible only to observers, so that they cannot influence decisions.
    pub(crate) fn log_loss(&mut self) {
        let due = self.limits.log_every > 0 && self.state.progress.step.is_multiple_of(self.limits.log_every);
        let for_all = due || self.hooks.steering_needs_every_loss();
        if !(for_all || self.hooks.observers_need_every_loss()) {
            return;
        }
        if !due {
            self.hooks.charge_losses(self.values.losses.unread());
        }
        if let Some(loss) = self.values.losses.read() {
            self.journal.check_finite(loss, &self.hooks, &self.shared, &self.state.progress);
            if for_all {
                self.shared.metrics.log(TRAIN_LOSS, loss, LogOptions::STEP);
            } else {
                self.shared.metrics.log_for_observers(TRAIN_LOSS, loss);
            }
        }
    }
}
