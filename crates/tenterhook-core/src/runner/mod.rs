//! The runner: keeps the hooks of a run and delivers events to them in the plan's order.
//!
//! It needs no trainer. Somebody who keeps his own loop asks [`HookRunner::wants`], builds the
//! event's context behind it and calls [`HookRunner::deliver`].

mod accounting;
mod finishing;
mod gradients;
mod permits;
mod points;
mod ranks;
mod received;
mod resuming;
mod slots;
mod standing;
mod states;
mod wanting;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::{Deserialize, Serialize};

use crate::account::HookCost;
use crate::context::Context;
use crate::event::Event;
use crate::failure::{BoxError, Contained, Failure, Policy};
use crate::flow::Decision;
use crate::hook::{Reply, Said};
use crate::moment::Moment;
use crate::plan::Plan;
use crate::progress::Progress;
use crate::roster::{Change, RosterRequest};
use crate::sent::Sent;
use crate::update::Touched;
use crate::world::World;

use accounting::{Accounting, Watch};
pub use permits::RosterError;
pub use ranks::RequestedChange;
pub use received::Received;
use resuming::Awaited;
pub use resuming::RunnerState;
pub use slots::Registration;
use slots::{Slot, UpdateSlot};
use standing::{Mishap, Standing};
pub use states::HookStates;

/// The hooks of a run, their plan, and what they decided.
#[derive(Default)]
pub struct HookRunner {
    slots: Vec<Slot>,
    updates: Vec<UpdateSlot>,
    /// How many hooks were ever registered.
    registered: usize,
    /// What update hooks did, where that is to be noted.
    traced: Option<Vec<Touched>>,
    plan: Plan,
    decisions: Vec<Decided>,
    contained: Vec<Contained>,
    refused: Vec<RosterError>,
    changed: Vec<Changed>,
    /// Some controller or update hook judges every loss.
    judging: bool,
    /// Some observer reads every loss.
    reading: bool,
    /// Some hook reads the norm of the gradients when a step has ended.
    norm_read: bool,
    /// Some hook wants the time spent in hooks.
    measuring: bool,
    /// Some hook has a budget.
    budgeted: bool,
    accounting: Accounting,
    /// The event that was delivered last.
    delivered: Option<Event>,
    /// What removed update hooks had cost.
    departed: Vec<HookCost>,
    /// What ends the run, and waits until the module's step is over.
    aborted: Option<Failure>,
    /// A call is under way: who is removed now leaves when it is over.
    in_call: bool,
    /// Update hooks that were removed in this call, and leave when it is over.
    leaving: Vec<UpdateSlot>,
    /// What became of what hooks handed to worker threads in the last call.
    sent: Vec<(String, Sent)>,
    /// A hook was disabled and is in the plan still, which follows when no delivery is under way.
    stale: bool,
    /// What each hook has received, where that is to be noted.
    received: Option<Vec<Received>>,
    /// The hooks have not been told yet who is registered.
    unpublished: Cell<bool>,
    /// The names of hooks that were removed.
    gone: BTreeSet<String>,
    /// What hooks had that were added while the run went on, until they are added again.
    awaited: BTreeMap<String, Awaited>,
    /// Which rank of a distributed run this is.
    world: World,
}

/// A decision, and whose it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decided {
    /// The hook's name.
    pub hook: String,
    /// The event it answered.
    pub event: Event,
    /// What it decided.
    pub decision: Decision,
}

/// A change of the list of hooks that was made, and who asked for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// The hook's name; `None` is the module, or the runner itself after a failure.
    pub by: Option<String>,
    /// What was changed.
    pub change: RosterRequest,
}

/// Which of an event's receivers a delivery is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All of them.
    All,
    /// Those that come before the module at `on_train_epoch_end`.
    BeforeModule,
    /// The monitors, which come after it.
    Monitors,
}

/// How far a delivery has come among the receivers of its event.
struct Walk {
    next: usize,
    end: usize,
}

impl HookRunner {
    /// Whether anybody wants the event. An event nobody wants should build no payload.
    #[inline]
    #[must_use]
    pub fn wants(&self, event: Event) -> bool {
        self.plan.wants(event)
    }

    /// Whether anybody wants the event at this step: where all who want it declare that they fire every
    /// so many steps, nobody does in between. For payloads that take work to build.
    #[inline]
    #[must_use]
    pub fn wants_at(&self, event: Event, progress: &Progress) -> bool {
        self.plan.wants(event) && self.plan.is_due(event, progress.current_step())
    }

    /// Whether anybody reads the norm of the gradients at the end of this step, so that they must be held until then.
    #[inline]
    #[must_use]
    pub fn reads_grad_norm(&self, progress: &Progress) -> bool {
        self.norm_read && self.wants_at(Event::StepEnd, progress)
    }

    /// Delivers an event to all hooks that want it. An error ends the run; every other failure is contained and counted.
    #[inline]
    pub fn deliver<C: Context>(&mut self, cx: &C) -> Result<(), Failure> {
        self.deliver_to(Part::All, cx)
    }

    /// Delivers an event to a part of the hooks that want it.
    #[inline]
    pub fn deliver_to<C: Context>(&mut self, part: Part, cx: &C) -> Result<(), Failure> {
        let mut walk = self.walk_over(C::EVENT, part);
        self.deliver_rest(cx, &mut walk).map_err(|failure| *failure)
    }

    fn walk_over(&self, event: Event, part: Part) -> Walk {
        let (end, monitors) = (self.plan.receivers(event).len(), self.plan.monitors_from(event));
        match part {
            Part::All => Walk { next: 0, end },
            Part::BeforeModule => Walk { next: 0, end: monitors },
            Part::Monitors => Walk { next: monitors, end },
        }
    }

    /// The failure is boxed: most deliveries reach every hook, and a large result costs as much as the rest of one.
    fn deliver_rest<C: Context>(&mut self, cx: &C, walk: &mut Walk) -> Result<(), Box<Failure>> {
        self.publish_changes(cx.moment().shared);
        if self.accounting.on || self.measuring || self.received.is_some() {
            return self.measured(cx.moment(), |runner| runner.deliver_from::<C, true>(cx, walk));
        }
        self.deliver_from::<C, false>(cx, walk)
    }

    /// Lets hooks run, and adds the time they take to the time in hooks, if any hook wants to know it.
    #[inline]
    fn measured<T>(&mut self, moment: &Moment<'_>, run: impl FnOnce(&mut HookRunner) -> T) -> T {
        let began = self.measuring.then(|| moment.elapsed());
        let result = run(self);
        if let Some(began) = began {
            let in_hooks = &moment.shared.in_hooks;
            in_hooks.set(in_hooks.get() + moment.elapsed().saturating_sub(began));
        }
        result
    }

    /// `NOTED` where anything is to be known of it besides what hooks answer.
    fn deliver_from<C: Context, const NOTED: bool>(
        &mut self,
        cx: &C,
        walk: &mut Walk,
    ) -> Result<(), Box<Failure>> {
        let weight = if NOTED { self.accounting.weight(C::EVENT as usize) } else { 0 };
        let mut watch = Watch::begin(weight, cx.moment().shared);
        self.delivered = Some(C::EVENT);
        loop {
            // One guard around the walk, not one per hook: the walk knows whose panic it was.
            match catch_unwind(AssertUnwindSafe(|| self.walk::<C, NOTED>(cx, walk, &mut watch))) {
                Ok(Ok(())) => break,
                interrupted => {
                    let (event, moment) = (C::EVENT, cx.moment());
                    if interrupted.is_err() {
                        self.count_panic(event, walk.next - 1, &mut watch, moment.shared);
                    }
                    self.heed(event, moment, walk.next - 1, interrupted)?;
                }
            }
        }
        self.settle(cx.moment());
        Ok(())
    }

    /// The event that was delivered last, or set-up before any was.
    #[must_use]
    pub fn delivered_last(&self) -> Event {
        self.delivered.unwrap_or(Event::Setup)
    }

    /// Delivers an event to all hooks that want it, whatever fails on the way: for `on_exception`, and for the teardown
    /// after a failure. Returns the failures that would have ended the run.
    pub fn deliver_through<C: Context>(&mut self, cx: &C) -> Vec<Failure> {
        let (mut walk, mut failures) = (self.walk_over(C::EVENT, Part::All), Vec::new());
        while let Err(failure) = self.deliver_rest(cx, &mut walk) {
            failures.push(*failure);
        }
        failures
    }

    /// Offers the event to one hook after the other, until one says anything. Nothing in here changes
    /// who they are, so they are looked up once.
    fn walk<C: Context, const NOTED: bool>(&mut self, cx: &C, walk: &mut Walk, watch: &mut Watch) -> Reply {
        if NOTED && (watch.runs() || self.received.is_some()) {
            return self.walk_counting::<C, true>(cx, walk, watch);
        }
        if NOTED && self.accounting.on {
            return self.walk_counting::<C, false>(cx, walk, watch);
        }
        let (current, stale) = (&cx.moment().shared.current, self.stale);
        let slots = self.slots.as_mut_slice();
        let receivers = self.plan.receivers(C::EVENT);
        let receivers = &receivers[..walk.end.min(receivers.len())];
        while let Some(&id) = receivers.get(walk.next) {
            walk.next += 1;
            let slot = &mut slots[id];
            if (stale && slot.is_out(C::EVENT)) || slot.had_its_teardown(C::EVENT) {
                continue;
            }
            current.set(id);
            slot.offer(cx)?;
        }
        Ok(())
    }

    /// Does what a receiver said, or judges its panic.
    #[cold]
    fn heed(
        &mut self,
        event: Event,
        moment: &Moment<'_>,
        at: usize,
        interrupted: std::thread::Result<Reply>,
    ) -> Result<(), Box<Failure>> {
        let id = self.plan.receivers(event)[at];
        let mishap = match interrupted {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(said)) => match *said {
                Said::Decided(_) if !(self.slots[id].spec.steers() && event.steers()) => {
                    Mishap::error("it returned a decision, and decides nothing here".into())
                }
                Said::Decided(decision) => {
                    let hook = self.slots[id].standing.name.clone();
                    self.decisions.push(Decided { hook, event, decision });
                    return Ok(());
                }
                Said::Failed(error) => Mishap::error(error),
            },
            Err(panic) => Mishap::panic(&*panic),
        };
        self.fail(id, event, moment, mishap).map_err(Box::new)
    }

    fn fail(&mut self, id: usize, event: Event, moment: &Moment<'_>, mishap: Mishap) -> Result<(), Failure> {
        let standing = &mut self.slots[id].standing;
        self.unpublished.set(true);
        let position = (moment.epoch, moment.step);
        if standing.judge(mishap, event.handler(), position, &mut self.contained)? {
            // The plan follows with the other changes, when the event has reached everyone.
            moment.shared.roster.ask(None, Change::Disable(standing.name.clone()));
            self.stale = true;
        }
        Ok(())
    }

    /// What a hook decided cannot be done: that is a failure of the hook, in the event that it answered.
    pub fn blame(
        &mut self,
        hook: &str,
        event: Event,
        (epoch, step): (u64, u64),
        error: BoxError,
    ) -> Result<(), Failure> {
        let mut contained = Vec::new();
        let Some(standing) = self.standing_mut(hook) else {
            // It has been removed since.
            let mut gone = Standing::new(hook.to_owned(), Policy::WARN);
            gone.judge(Mishap::error(error), event.handler(), (epoch, step), &mut self.contained)?;
            return Ok(());
        };
        let judged = standing.judge(Mishap::error(error), event.handler(), (epoch, step), &mut contained);
        let disabled = matches!(judged, Ok(true)).then(|| standing.give_up());
        self.unpublished.set(true);
        self.contained.append(&mut contained);
        if let Some(changed) = disabled {
            self.changed.push(changed);
            self.replan();
        }
        judged.map(|_| ())
    }

    /// Carries out the changes that hooks, and the module after them, asked for, now that the event has reached them.
    #[inline]
    pub fn settle(&mut self, moment: &Moment<'_>) {
        let wanted = self.stale || moment.shared.roster.has_requests();
        if wanted && !self.world.is_distributed() {
            self.change(moment);
        }
    }

    #[cold]
    fn change(&mut self, moment: &Moment<'_>) {
        for asked in moment.shared.roster.changes.take() {
            let by = asked.by.and_then(|by| moment.shared.roster.info(by));
            let (name, change) = (by.as_ref().map(|by| by.name.clone()), asked.change.in_words());
            match self.permit(by, &asked.change).and_then(|()| self.apply(asked.change)) {
                Ok(()) => self.changed.push(Changed { by: name, change }),
                Err(refused) => self.refused.push(refused),
            }
        }
        self.replan();
        self.publish(moment.shared);
    }

    /// What was decided since the last call.
    pub fn take_decisions(&mut self) -> Vec<Decided> {
        std::mem::take(&mut self.decisions)
    }

    /// Whether anything was decided since it was last taken.
    #[inline]
    #[must_use]
    pub fn has_decisions(&self) -> bool {
        !self.decisions.is_empty()
    }

    /// Whether there are contained failures, and changes of the list of hooks that were made or refused,
    /// that nobody has taken yet.
    #[inline]
    #[must_use]
    pub fn has_news(&self) -> bool {
        !(self.contained.is_empty() && self.refused.is_empty() && self.changed.is_empty())
    }

    /// The changes of the list of hooks that were made since the last call.
    pub fn take_changed(&mut self) -> Vec<Changed> {
        std::mem::take(&mut self.changed)
    }

    /// The failures that were contained since the last call.
    pub fn take_contained(&mut self) -> Vec<Contained> {
        std::mem::take(&mut self.contained)
    }

    /// The requests to change the list of hooks that could not be carried out since the last call.
    pub fn take_refused(&mut self) -> Vec<RosterError> {
        std::mem::take(&mut self.refused)
    }
}
