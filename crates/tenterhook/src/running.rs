//! The state of a running call: what the loops share, apart from module, data and strategy.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenterhook_core::failure::speakable;
use tenterhook_core::plan::TRAIN_LOSS;
use tenterhook_core::{
    Batch, BoxError, Changed, Decided, Decision, Event, FINDS_NAN, Failure, Flow, HookRunner, LogOptions, Lr,
    Origin, Outcome, Phase, Progress, Request, RosterRequest, Shared, Stage, Status, Tensors, Weights,
    backtraces,
};

use crate::accounts::Period;
use crate::checkpoint::Saves;
use crate::data::{BatchData, of_loader, panic_in};
use crate::losses::{Losses, Once};
use crate::module::{Module, Optimization};
use crate::notice::{Notice, Notices};
use crate::outputs::Outputs;
use crate::run::{Happening, Identity, Interrupt, Recording};
use crate::settings::Limits;
use crate::stall::Watch;
use crate::tensors::TensorMap;

/// Whose a decision is that no hook made.
const MODULE: &str = "module";

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

/// Where the current batch came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BatchPlace {
    pub(crate) index: u64,
    pub(crate) loader: usize,
    pub(crate) is_last: bool,
}

/// What hooks and module have asked for, until the loop carries it out.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    pub(crate) stop: Option<(String, String)>,
    /// The signal that ends the run, once it is heeded.
    pub(crate) interrupted: Option<String>,
    pub(crate) end_epoch: bool,
    pub(crate) skip_batch: bool,
    pub(crate) skip_update: bool,
    pub(crate) validate: bool,
}

pub struct Running<M: Module> {
    pub(crate) hooks: HookRunner,
    pub(crate) shared: Shared,
    pub(crate) limits: Limits,
    pub(crate) stage: Stage,
    pub(crate) phase: Phase,
    pub(crate) status: Status,
    pub(crate) progress: Progress,
    pub(crate) losses: Losses<M::Scalar>,
    /// The outputs of an evaluation step, while a hook wants them.
    pub(crate) outputs: Option<Outputs>,
    /// The gradient norms of this step, one per optimizer.
    pub(crate) norms: Vec<Once<M::Scalar>>,
    pub(crate) signals: Signals,
    pub(crate) module_decisions: Vec<Decision>,
    pub(crate) optimization: Optimization,
    /// The module's own weights while it has others.
    pub(crate) own_weights: Option<Arc<TensorMap>>,
    /// The hook that gave it those.
    pub(crate) swapped_by: Option<String>,
    pub(crate) batch: BatchPlace,
    /// The training batch, while a validation has its own.
    pub(crate) train_batch: BatchPlace,
    /// Where training stood before the batch that is under way.
    pub(crate) before_batch: Progress,
    /// How long the run had taken when training began, and when the last validation ended (or else training began).
    pub(crate) train_began: Duration,
    pub(crate) last_validation: Duration,
    /// The names of the training loaders, and of those of the evaluation.
    pub(crate) loaders: [Vec<String>; 2],
    pub(crate) within_batch: bool,
    /// A signal ends the epoch before its time.
    pub(crate) cut_short: bool,
    /// The gradients of this accumulation window have been cleared.
    pub(crate) window_open: bool,
    /// The gradients of this accumulation window are not to be used.
    pub(crate) window_skipped: bool,
    /// The last step that the module made itself in this batch was counted.
    pub(crate) stepped_itself: bool,
    /// The optimizers whose gradients have been looked at for missing ones.
    pub(crate) gradients_seen: Vec<usize>,
    pub(crate) period: Period,
    pub(crate) outcome: Outcome,
    pub(crate) saves: Saves,
    pub(crate) notices: Notices,
    pub(crate) recording: Option<Recording>,
    /// Data, program and processor, once they are known.
    pub(crate) identity: Identity,
    pub(crate) interrupt: Interrupt,
    /// How long the loop waits for data.
    pub(crate) watch: Watch,
    /// That the loss is not finite was told.
    told_not_finite: bool,
    /// Hooks that were disabled, and why, until the others are told.
    pub(crate) disabled: Vec<(String, String)>,
    /// What failed after something that ends the run, and before anybody knew that it ends.
    pub(crate) later: Vec<Failure>,
    /// They are being told.
    telling: bool,
    /// Hooks are being torn down, or the run has failed: no other event follows.
    pub(crate) closing: bool,
    who: Who,
    place: &'static str,
}

impl<M: Module> Running<M> {
    pub(crate) fn new(
        hooks: HookRunner,
        shared: Shared,
        limits: Limits,
        stage: Stage,
        notices: Notices,
    ) -> Running<M> {
        let watch = Watch::new(limits.stall_warning);
        Running {
            hooks,
            shared,
            limits,
            stage,
            phase: Phase::Train,
            status: Status::Starting,
            progress: Progress::default(),
            losses: Losses::new(),
            outputs: None,
            norms: Vec::new(),
            signals: Signals::default(),
            module_decisions: Vec::new(),
            optimization: Optimization::default(),
            own_weights: None,
            swapped_by: None,
            batch: BatchPlace::default(),
            train_batch: BatchPlace::default(),
            before_batch: Progress::default(),
            train_began: Duration::ZERO,
            last_validation: Duration::ZERO,
            loaders: [Vec::new(), Vec::new()],
            within_batch: false,
            cut_short: false,
            window_open: false,
            window_skipped: false,
            stepped_itself: false,
            gradients_seen: Vec::new(),
            period: Period::default(),
            outcome: Outcome::Completed,
            saves: Saves::default(),
            notices,
            recording: None,
            identity: Identity::default(),
            interrupt: Interrupt::new(),
            watch,
            told_not_finite: false,
            disabled: Vec::new(),
            later: Vec::new(),
            telling: false,
            closing: false,
            who: Who::Trainer,
            place: "start",
        }
    }

    /// Notes who is about to run, in case that fails or panics.
    #[inline]
    pub(crate) fn at(&mut self, who: Who, place: &'static str) {
        self.who = who;
        self.place = place;
    }

    /// A failure of whoever was noted last. A hook's failure inside a module's manual step stays a hook's.
    pub(crate) fn failed(&self, error: BoxError, panicked: bool) -> Failure {
        match error.downcast::<Failure>() {
            Ok(failure) => *failure,
            Err(error) => {
                let mut error = speakable(error);
                let Progress { epoch, step, .. } = self.progress;
                if panicked && matches!((self.who, self.place), (Who::Data, "seek" | "next")) {
                    error = of_loader(&self.watch.desk.waited_for(), error);
                }
                let (panicked, trace) = match panic_in(&mut error) {
                    Some(elsewhere) => (true, elsewhere.take_trace()),
                    None if panicked => (true, backtraces::of_panic()),
                    None => (false, backtraces::of_error(&error)),
                };
                Failure { origin: self.who.into(), place: self.place, epoch, step, panicked, error, trace }
            }
        }
    }

    #[inline]
    pub(crate) fn checked<T>(&self, result: Result<T, BoxError>) -> Result<T, Failure> {
        result.map_err(|error| self.failed(error, false))
    }

    /// The batch is done: what is logged from here on belongs to the step that was completed last.
    pub(crate) fn leave_batch(&mut self) {
        self.within_batch = false;
        self.shared.metrics.set_step(self.progress.step);
    }

    /// A batch as hooks see it.
    pub(crate) fn view<'b>(&self, batch: &'b M::Batch, loader: &'b str) -> Batch<'b> {
        let BatchPlace { index, loader: loader_index, is_last } = self.batch;
        let tensors = Tensors::new(batch.tensors());
        Batch { index, size: batch.size(), loader_index, loader, is_last, tensors }
    }

    /// After an event has reached the hooks: carries out what they asked for, reports what failed.
    #[inline]
    pub(crate) fn after_event(&mut self, module: &mut M) -> Result<(), Failure> {
        if self.hooks.has_decisions() {
            for decided in self.hooks.take_decisions() {
                let began = self.begun();
                self.absorb(module, &decided)?;
                self.charge_since(began, &decided.hook, decided.event);
            }
        }
        if !self.shared.said.borrow().is_empty() {
            for (hook, text) in self.shared.said.take() {
                self.note(Notice::Said { hook, text });
            }
        }
        if !self.shared.printed.borrow().is_empty() {
            for (hook, line) in self.shared.printed.take() {
                let began = self.begun();
                self.notices.tell(&Notice::Printed(line));
                self.charge_since(began, &hook, self.hooks.delivered_last());
            }
        }
        if self.hooks.has_news() || !self.disabled.is_empty() {
            return self.tell_news(module);
        }
        Ok(())
    }

    /// Tells of failures and of changes of the list of hooks, and hooks of those that were disabled.
    #[cold]
    fn tell_news(&mut self, module: &mut M) -> Result<(), Failure> {
        self.note_news();
        // Below a delivery that waits for a save nobody changes places, so that one would hear of itself.
        if self.hooks.is_paused() || self.telling {
            return Ok(());
        }
        self.telling = true;
        let told = self.tell_disabled(module);
        self.telling = false;
        told
    }

    /// Tells people of failures and of changes of the list of hooks.
    pub(crate) fn note_news(&mut self) {
        for mut contained in self.hooks.take_contained() {
            contained.afterwards = self.status == Status::Error;
            if let (Origin::Hook(hook), true) = (&contained.failure.origin, contained.disabled) {
                self.disabled.push((hook.clone(), contained.failure.to_string()));
            }
            self.note(Notice::Contained(contained));
        }
        for refused in self.hooks.take_refused() {
            self.note(Notice::Refused(refused));
        }
        for changed in self.hooks.take_changed() {
            // After a failure nobody asks for it.
            if let Changed { by: Some(by), change: RosterRequest::Disable(hook) } = &changed {
                self.disabled.push((hook.clone(), format!("`{by}` asked for it")));
            }
            self.note(Notice::Changed(changed));
        }
    }

    /// Tells hooks which of them were disabled, and of those that are disabled in being told. Hooks that enable each other
    /// again and again wait for the next event.
    fn tell_disabled(&mut self, module: &mut M) -> Result<(), Failure> {
        for _ in 0..=self.hooks.list().len() {
            for (hook, reason) in std::mem::take(&mut self.disabled) {
                if !self.closing {
                    emit!(self, module, HookDisabled { hook: &hook, reason: &reason });
                }
            }
        }
        Ok(())
    }

    /// After the module has run: carries out what it asked for. What a hook failed by that the module showed something
    /// to, or let step, has waited for this.
    #[inline]
    pub(crate) fn after_module(&mut self, module: &mut M) -> Result<(), Failure> {
        if let Some(failure) = self.hooks.take_aborted() {
            return Err(failure);
        }
        if self.shared.roster.has_requests() {
            self.hooks.settle(&moment!(self, module));
            self.after_event(module)?;
        }
        if !self.module_decisions.is_empty() {
            let event = Event::of_handler(self.place).unwrap_or(Event::BeforeForward);
            for decision in std::mem::take(&mut self.module_decisions) {
                self.absorb(module, &Decided { hook: MODULE.into(), event, decision })?;
            }
        }
        Ok(())
    }

    fn absorb(&mut self, module: &mut M, decided: &Decided) -> Result<(), Failure> {
        let step = self.progress.step;
        let (flows, requests) = decided.decision.clone().into_parts();
        for flow in flows {
            self.signal(&decided.hook, flow);
        }
        let swaps = |request: &Request| matches!(request, Request::SwapWeights(_) | Request::SwapBack);
        if requests.iter().all(swaps) && decided.decision.flows().is_empty() {
            // Part of every validation; the journal has it, people need not read it each time.
            self.record_happening(Happening::from(&Notice::Decided { step, decided: decided.clone() }));
        } else {
            self.note(Notice::Decided { step, decided: decided.clone() });
        }
        for request in requests {
            match request {
                Request::Validate => self.signals.validate = true,
                // Not here: what else was decided must come first, and a run must be able to go on from it.
                Request::Save(save) => {
                    match self.checked_save(&save) {
                        Ok(save) => self.saves.asked.push(save),
                        Err(error) => {
                            self.refuse(decided, error)?;
                            continue;
                        }
                    }
                    self.saves.asked_by.get_or_insert_with(|| (decided.hook.clone(), decided.event));
                }
                Request::SwapWeights(weights) => match self.swap_weights(module, &weights)? {
                    Ok(()) => self.swapped_by = Some(decided.hook.clone()),
                    Err(refused) => {
                        self.swap_back(module)?;
                        self.refuse(decided, refused)?;
                    }
                },
                Request::SwapBack => self.swap_back(module)?,
                Request::Lr { optimizer, change } => {
                    if let Some(error) = self.wrong_lr(optimizer, change) {
                        self.refuse(decided, error.into())?;
                        continue;
                    }
                    let which = optimizer.map_or(0..self.optimization.optimizers, |one| one..one + 1);
                    for optimizer in which {
                        self.at(Who::Module, "change_lr");
                        let changed = module.change_lr(optimizer, change);
                        self.checked(changed)?;
                    }
                }
                unknown => self.refuse(decided, format!("the trainer does not know {unknown:?}").into())?,
            }
        }
        Ok(())
    }

    /// Gives the module other weights. Its own are kept, unless they are kept already. What is wrong with the others is
    /// no failure of the module.
    pub(crate) fn swap_weights(
        &mut self,
        module: &mut M,
        weights: &Weights,
    ) -> Result<Result<(), BoxError>, Failure> {
        self.at(Who::Module, "weights");
        if self.own_weights.is_none() {
            let own = module.weights();
            self.own_weights = Some(Arc::new(self.checked(own)?));
        }
        let mut others = TensorMap::default();
        for (name, shape, values) in weights.0.iter() {
            others.insert_f32(name, shape, values);
        }
        self.at(Who::Module, "load_weights");
        Ok(module.load_weights(&others))
    }

    /// Gives the module its own weights back, if it has others.
    pub(crate) fn swap_back(&mut self, module: &mut M) -> Result<(), Failure> {
        self.swapped_by = None;
        let Some(own) = self.own_weights.take() else { return Ok(()) };
        self.at(Who::Module, "load_weights");
        let loaded = module.load_weights(&own);
        self.checked(loaded)
    }

    /// Notes how training goes on; the loop heeds it at the next safe point.
    fn signal(&mut self, by: &str, flow: Flow) {
        match flow {
            Flow::Continue => {}
            Flow::SkipUpdate => self.signals.skip_update = true,
            Flow::SkipBatch => self.signals.skip_batch = true,
            Flow::EndEpoch => self.signals.end_epoch = true,
            Flow::Stop { reason } => {
                self.signals.stop.get_or_insert((by.to_owned(), reason));
            }
            unknown => debug_assert!(false, "the loop does not know {unknown:?}"),
        }
    }

    /// Why a learning rate cannot be changed like this, if it cannot.
    fn wrong_lr(&self, optimizer: Option<usize>, change: Lr) -> Option<String> {
        let (Lr::Set(number) | Lr::Scale(number)) = change;
        let optimizers = self.optimization.optimizers;
        if !(number.is_finite() && number >= 0.0) {
            return Some(format!(
                "a learning rate cannot be changed by {change:?}: it must be a number of 0 or more"
            ));
        }
        let missing = optimizer.filter(|optimizer| *optimizer >= optimizers)?;
        Some(format!("there are only {optimizers} optimizers, counted from 0; {missing} is none of them"))
    }

    /// What somebody decided cannot be done. A hook's policy says what that means; of the module it is a failure.
    fn refuse(&mut self, decided: &Decided, error: BoxError) -> Result<(), Failure> {
        let Progress { epoch, step, .. } = self.progress;
        if decided.hook != MODULE {
            return self.hooks.blame(&decided.hook, decided.event, (epoch, step), error);
        }
        self.at(Who::Module, decided.event.handler());
        Err(self.failed(error, false))
    }

    /// The first of two failures is the one that counts; the other is listed after it.
    pub(crate) fn first_of(
        &mut self,
        first: Result<(), Failure>,
        second: Result<(), Failure>,
    ) -> Result<(), Failure> {
        match (first, second) {
            (Err(first), Err(second)) => {
                self.later.push(second);
                Err(first)
            }
            (first, second) => first.and(second),
        }
    }

    /// Reads the losses when it is time to, or when somebody judges every one of them. Where only observers want
    /// it, only they see it, so that nobody decides otherwise because of them.
    pub(crate) fn log_loss(&mut self) {
        let due = self.limits.log_every > 0 && self.progress.step.is_multiple_of(self.limits.log_every);
        let for_everybody = due || self.hooks.judges_every_loss();
        if !(for_everybody || self.hooks.observes_every_loss()) {
            return;
        }
        if !due {
            self.hooks.charge_losses(self.losses.unread());
        }
        if let Some(loss) = self.losses.read() {
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
        if !loss.is_finite() && !std::mem::replace(&mut self.told_not_finite, true) {
            let guarded =
                self.hooks.declared().iter().any(|spec| spec.provides.iter().any(|it| it == FINDS_NAN));
            self.note(Notice::NotFinite { loss, step: self.progress.step, guarded });
        }
    }

    /// Whether a request to stop may be heeded.
    pub(crate) fn may_stop(&self) -> bool {
        self.progress.epochs_done >= self.limits.min_epochs && self.progress.step >= self.limits.min_steps
    }

    /// Whether somebody asked to stop and it may be heeded.
    pub(crate) fn stops(&self) -> bool {
        self.signals.stop.is_some() && self.may_stop()
    }

    /// Whether the last optimizer step that was allowed has been made.
    pub(crate) fn steps_are_done(&self) -> bool {
        self.limits.max_steps.is_some_and(|max| self.progress.step >= max)
    }
}
