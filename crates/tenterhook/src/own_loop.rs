//! Hooks on a custom training loop, without the trainer.

use std::cell::{Cell, RefCell};

use tenterhook_core::run_context::NoModel;
use tenterhook_core::{
    AnyHook, Context, Event, Failure, Flow, HookDecision, HookRunner, Progress, RosterError, RunContext,
    RunInfo, RunState, Stage, Status,
};

use crate::journal::{Notices, Readers, RunNotice, print};
use crate::trainer::WallClock;

/// The hooks of a custom training loop.
///
/// Make one, [`emit`](OwnLoop::emit) events where they happen, and act on the [`Verdict`]. The events count
/// epochs, batches and steps; the clock runs from the start. Messages of hooks and failures that do not end
/// the run are printed, unless [`with_notices`](OwnLoop::with_notices) is set.
///
/// ```
/// use tenterhook::prelude::*;
/// use tenterhook::OwnLoop;
///
/// let hooks = OwnLoop::new([closure::on_step_end("stop", |cx| {
///     if cx.loss.value() < 0.1 { Decision::stop("good enough") } else { Decision::CONTINUE }
/// })])?;
/// let mut x = 4.0_f64;
/// loop {
///     x *= 0.5; // your own step
///     let loss = x * x;
///     let verdict =
///         hooks.emit(|run_cx| StepEnd::new(run_cx, Scalar::new(&loss), Scalar::new(&f64::NAN), 0.5, 0.5))?;
///     if let Some((hook, reason)) = verdict.stop() {
///         assert_eq!((hook, reason), ("stop", "good enough"));
///         break;
///     }
/// }
/// assert_eq!(hooks.progress().step, 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct OwnLoop {
    hooks: RefCell<HookRunner>,
    shared: RunState,
    progress: Cell<Progress>,
    in_batch: Cell<bool>,
    notices: RefCell<Notices>,
}

/// The decisions of the hooks that received an event.
#[derive(Debug, Default)]
#[must_use = "a hook may have requested a stop"]
pub struct Verdict {
    decided: Vec<HookDecision>,
}

impl Verdict {
    /// The first hook that requested a stop, and its reason.
    #[must_use]
    pub fn stop(&self) -> Option<(&str, &str)> {
        self.decided.iter().find_map(|decided| match decided.decision.flow() {
            Flow::Stop { reason } => Some((decided.hook.as_str(), reason.as_str())),
            _ => None,
        })
    }

    /// All decisions, in the order of the hooks.
    #[must_use]
    pub fn decided(&self) -> &[HookDecision] {
        &self.decided
    }
}

impl OwnLoop {
    /// A loop with these hooks; `hooks![a, b]` lists hooks of different types.
    pub fn new(hooks: impl IntoIterator<Item = impl Into<AnyHook>>) -> Result<OwnLoop, RosterError> {
        let mut runner = HookRunner::default();
        hooks.into_iter().try_for_each(|hook| runner.add(hook))?;
        Ok(OwnLoop {
            hooks: RefCell::new(runner),
            shared: RunState::new(RunInfo::default(), 0, Box::new(WallClock::start())),
            progress: Cell::default(),
            in_batch: Cell::new(false),
            notices: RefCell::new(Notices::new(Readers::one(print), true)),
        })
    }

    /// Passes notices to this function instead of printing them.
    #[must_use]
    pub fn with_notices(mut self, take: impl FnMut(&RunNotice) + Send + 'static) -> OwnLoop {
        self.notices = RefCell::new(Notices::new(Readers::one(take), true));
        self
    }

    /// The progress of the loop.
    pub fn progress(&self) -> Progress {
        self.progress.get()
    }

    /// Sets the progress: for samples and tokens, and for a loop that resumes.
    pub fn set_progress(&self, progress: Progress) {
        self.progress.set(progress);
    }

    /// Delivers an event to the hooks. The context is built only if a hook receives the event. An error is
    /// the failure of a hook whose policy is to abort the run.
    pub fn emit<'a, C: Context>(
        &'a self,
        make: impl FnOnce(RunContext<'a>) -> C,
    ) -> Result<Verdict, Failure> {
        self.count(C::EVENT);
        let result = if self.hooks.borrow().wants(C::EVENT) {
            let at = (Stage::Fit, C::EVENT.phase(), Status::Training);
            self.deliver(&make(RunContext::new(at, self.progress.get(), &self.shared, &NoModel, &NoModel)))
        } else {
            Ok(Verdict::default())
        };
        match C::EVENT {
            Event::TrainBatchEnd => self.in_batch.set(false),
            Event::TrainEpochEnd => self.update(|progress| progress.epoch = progress.epochs_done),
            _ => {}
        }
        result
    }

    fn deliver<C: Context>(&self, cx: &C) -> Result<Verdict, Failure> {
        let mut hooks = self.hooks.borrow_mut();
        let delivered = hooks.deliver(cx);
        let decided = hooks.take_decisions();
        self.record_roster_changes(&mut hooks);
        delivered.map(|()| Verdict { decided })
    }

    fn record_roster_changes(&self, hooks: &mut HookRunner) {
        let contained = hooks.take_contained().into_iter().map(RunNotice::Contained);
        let refused = hooks.take_refused_changes().into_iter().map(RunNotice::Refused);
        let said = self.shared.messages.take().into_iter().map(|(hook, text)| RunNotice::Said { hook, text });
        let printed = self.shared.console_lines.take().into_iter().map(|(_, line)| RunNotice::Printed(line));
        let mut notices = self.notices.borrow_mut();
        for mut notice in contained.chain(refused).chain(said).chain(printed) {
            if notices.is_shown(&mut notice) {
                notices.readers.tell(&notice);
            }
        }
        hooks.take_roster_changes();
    }

    /// Counts epochs, batches and steps by their events.
    fn count(&self, event: Event) {
        match event {
            Event::TrainEpochStart => self.update(|progress| progress.batches = 0),
            Event::TrainBatchStart => {
                self.in_batch.set(true);
                self.update(begin_batch);
            }
            Event::StepEnd => self.update(|progress| {
                // A loop that emits only the ends of steps has one batch per step.
                if !self.in_batch.get() {
                    begin_batch(progress);
                }
                progress.step += 1;
                progress.step_counted = true;
            }),
            Event::TrainEpochEnd => self.update(|progress| progress.epochs_done = progress.epoch + 1),
            _ => {}
        }
    }

    fn update(&self, change: impl FnOnce(&mut Progress)) {
        let mut progress = self.progress.get();
        change(&mut progress);
        self.progress.set(progress);
    }
}

fn begin_batch(progress: &mut Progress) {
    progress.batches += 1;
    progress.total_batches += 1;
    progress.step_counted = false;
}
