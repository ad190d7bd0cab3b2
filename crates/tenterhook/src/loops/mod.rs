//! The training loop: its parts, and what all of them need.
//!
//! Read `fit.rs` for the loop from the first event to the last, `update.rs` for one optimizer step, `event.rs` for how an
//! event goes out, `decisions.rs` for what the decisions of hooks do, and `ranks/` for what several ranks do together.
//!
//! - A skipped update inside an accumulation window skips the whole window, since the window's sum holds the gradients that must not
//!   be used.
//! - A decision may hold several flows. Each has its effect, and the strongest says how the run ends.
//! - Norms that only hooks with a cadence want are computed in their steps only (`HookRunner::wants_at`).
//! - Checkpoints hold the module's own weights while others are swapped in.
//! - Training loaders are made before `configure_optimizers`, so that schedules know how long training will be.
//! - After a failure a checkpoint is of the last point from which the run can be resumed; the accumulation window of the failing
//!   batch begins anew.

#[macro_use]
pub(crate) mod event;
mod decisions;
pub(crate) mod evaluate;
pub(crate) mod fit;
pub(crate) mod ranks;
mod state;
pub(crate) mod update;
mod weight_swap;

use tenterhook_core::failure::ensure_displayable;
use tenterhook_core::plan::TRAIN_LOSS;
use tenterhook_core::{
    Batch, BoxError, FINDS_NAN, Failure, HookRunner, LogOptions, Origin, Progress, RunState, Stage, Tensors,
    backtraces,
};

use crate::accounts::Accounts;
use crate::checkpoint::Checkpointer;
use crate::data::{BatchData, of_loader, panic_in};
use crate::journal::{Journal, RunNotice};
use crate::module::Module;
use crate::settings::Limits;
use crate::stall::Watch;
use crate::strategy::Strategy;
use ranks::Ranks;
pub(crate) use state::{BatchPlace, Ending, FlowRequests, LoopState, StepValues, UpdateState, Window};
pub(crate) use weight_swap::WeightSwap;

/// Who runs when it is not a hook. Noted before every call, so it must be cheap.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Who {
    Module,
    Data,
    Strategy,
    Trainer,
}

impl From<Who> for Origin {
    fn from(who: Who) -> Origin {
        match who {
            Who::Module => Origin::Module,
            Who::Data => Origin::Data,
            Who::Strategy => Origin::Strategy,
            Who::Trainer => Origin::Trainer,
        }
    }
}

/// The names of the training loaders and of those of the evaluation, and how long the loop waits for them.
pub(crate) struct LoaderNames {
    pub(crate) names: [Vec<String>; 2],
    pub(crate) watch: Watch,
}

/// The user code that runs now, so that a failure or a panic has an origin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub(crate) who: Who,
    pub(crate) place: &'static str,
}

/// The parts of the loop, apart from the module and the data, which the user brings.
pub struct Loop<M: Module> {
    pub(crate) hooks: HookRunner,
    /// What hooks see: run, metrics, board, random streams, clock.
    pub(crate) shared: RunState,
    pub(crate) limits: Limits,
    /// Where training stands.
    pub(crate) state: LoopState,
    pub(crate) values: StepValues<M::Scalar>,
    pub(crate) update: UpdateState<M::Scalar>,
    /// What hooks and module have decided, until the loop carries it out.
    pub(crate) flow: FlowRequests,
    pub(crate) weights: WeightSwap,
    pub(crate) ending: Ending,
    pub(crate) accounts: Accounts,
    pub(crate) checkpointer: Checkpointer,
    pub(crate) journal: Journal,
    pub(crate) loaders: LoaderNames,
    pub(crate) ranks: Ranks,
    pub(crate) caller: Caller,
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
        let watch = Watch::new(limits.stall_warning);
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
            loaders: LoaderNames { names: Default::default(), watch },
            ranks: Ranks::new(strategy),
            caller: Caller { who: Who::Trainer, place: "start" },
        }
    }

    /// Itself: for macros that are given a place or a reference.
    #[inline]
    pub(crate) fn as_mut(&mut self) -> &mut Loop<M> {
        self
    }

    /// Notes who is about to run, in case that fails or panics.
    #[inline]
    pub(crate) fn at(&mut self, who: Who, place: &'static str) {
        self.caller.who = who;
        self.caller.place = place;
    }

    /// A failure of whoever was noted last. A hook's failure inside a module's manual step stays a hook's.
    pub(crate) fn failed(&self, error: BoxError, panicked: bool) -> Failure {
        match error.downcast::<Failure>() {
            Ok(failure) => *failure,
            Err(error) => {
                let mut error = ensure_displayable(error);
                let Progress { epoch, step, .. } = self.state.progress;
                if panicked && matches!((self.caller.who, self.caller.place), (Who::Data, "seek" | "next")) {
                    error = of_loader(&self.loaders.watch.desk.waited_for(), error);
                }
                let (panicked, trace) = match panic_in(&mut error) {
                    Some(elsewhere) => (true, elsewhere.take_backtrace()),
                    None if panicked => (true, backtraces::of_last_panic()),
                    None => (false, backtraces::of_error(&error)),
                };
                Failure {
                    origin: self.caller.who.into(),
                    place: self.caller.place,
                    epoch,
                    step,
                    panicked,
                    error,
                    trace,
                }
            }
        }
    }

    #[inline]
    pub(crate) fn checked<T>(&self, result: Result<T, BoxError>) -> Result<T, Failure> {
        result.map_err(|error| self.failed(error, false))
    }

    /// The batch is done: what is logged from here on belongs to the step that was completed last.
    pub(crate) fn leave_batch(&mut self) {
        self.state.before_batch = None;
        self.shared.metrics.set_step(self.state.progress.step);
    }

    /// A batch as hooks see it.
    pub(crate) fn view<'b>(&self, batch: &'b M::Batch, loader: &'b str) -> Batch<'b> {
        let BatchPlace { index, loader: loader_index, is_last } = self.state.batch;
        let tensors = Tensors::new(batch.tensors());
        Batch { index, size: batch.size(), loader_index, loader, is_last, tensors }
    }

    /// The first of two failures is the one that counts; the other is listed after it.
    pub(crate) fn first_of(
        &mut self,
        first: Result<(), Failure>,
        second: Result<(), Failure>,
    ) -> Result<(), Failure> {
        match (first, second) {
            (Err(first), Err(second)) => {
                self.ending.later.push(second);
                Err(first)
            }
            (first, second) => first.and(second),
        }
    }

    /// Reads the losses when it is time to, or when somebody judges every one of them. Where only observers want
    /// it, only they see it, so that nobody decides otherwise because of them.
    pub(crate) fn log_loss(&mut self) {
        let due = self.limits.log_every > 0 && self.state.progress.step.is_multiple_of(self.limits.log_every);
        let for_everybody = due || self.hooks.steering_needs_every_loss();
        if !(for_everybody || self.hooks.observers_need_every_loss()) {
            return;
        }
        if !due {
            self.hooks.charge_losses(self.values.losses.unread());
        }
        if let Some(loss) = self.values.losses.read() {
            self.check_finite(loss);
            if for_everybody {
                self.shared.metrics.log(TRAIN_LOSS, loss, LogOptions::STEP);
            } else {
                self.shared.metrics.log_for_observers(TRAIN_LOSS, loss);
            }
        }
    }

    /// Tells once that the loss, which was read anyway, is not finite: nothing else would say so where no hook looks.
    pub(crate) fn check_finite(&mut self, loss: f64) {
        if !loss.is_finite() && !std::mem::replace(&mut self.journal.told_not_finite, true) {
            let guarded =
                self.hooks.declared().iter().any(|spec| spec.provides.iter().any(|it| it == FINDS_NAN));
            self.note(RunNotice::NotFinite { loss, step: self.state.progress.step, guarded });
        }
    }

    /// Whether a request to stop may be heeded.
    pub(crate) fn may_stop(&self) -> bool {
        self.state.progress.epochs_done >= self.limits.min_epochs
            && self.state.progress.step >= self.limits.min_steps
    }

    /// Whether somebody asked to stop and it may be heeded.
    pub(crate) fn stops(&self) -> bool {
        self.flow.stop.is_some() && self.may_stop()
    }

    /// Whether the last optimizer step that was allowed has been made.
    pub(crate) fn steps_are_done(&self) -> bool {
        self.limits.max_steps.is_some_and(|max| self.state.progress.step >= max)
    }
}
