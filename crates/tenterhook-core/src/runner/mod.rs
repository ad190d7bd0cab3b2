//! The runner: keeps the hooks of a run and delivers events to them in the plan's order.
//!
//! It needs no trainer. Somebody who keeps his own loop asks [`HookRunner::wants`], builds the
//! event's context behind it and calls [`HookRunner::deliver`].

mod absent;
mod accounting;
mod costs;
mod finishing;
mod gradients;
mod permits;
mod planned;
mod points;
mod ranks;
mod received;
mod slot;
mod slots;
mod standing;
mod states;

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::event::Event;
use crate::failure::{BoxError, Contained, Failure, Policy};
use crate::flow::Decision;
use crate::hook::{Reply, Said};
use crate::moment::Moment;
use crate::roster::{Change, RosterRequest};
use crate::sent::Sent;
use crate::update::Touched;
use crate::world::World;

use absent::Absent;
pub use absent::RunnerState;
use accounting::{Accounting, Watch};
pub use permits::RosterError;
use planned::Planned;
pub use ranks::RequestedChange;
pub use received::Received;
use slot::Slot;
pub use slots::Registration;
use standing::{Mishap, Standing};
pub use states::HookStates;

/// The hooks of a run, their plan, and what they decided.
#[derive(Default)]
pub struct HookRunner {
    slots: Vec<Slot>,
    planned: Planned,
    news: News,
    accounting: Accounting,
    absent: Absent,
    /// What update hooks did, where that is to be noted.
    traced: Option<Vec<Touched>>,
    /// What each hook has received, where that is to be noted.
    received: Option<Vec<Received>>,
    /// The event that was delivered last.
    delivered: Option<Event>,
    /// What ends the run, and waits until the module's step is over.
    aborted: Option<Failure>,
    /// A call is under way: who is removed now leaves when it is over.
    in_call: bool,
    /// What became of what hooks handed to worker threads in the last call.
    sent: Vec<(String, Sent)>,
    /// Which rank of a distributed run this is.
    world: World,
}

/// What happened since the loop last asked.
#[derive(Default)]
struct News {
    decisions: Vec<Decided>,
    contained: Vec<Contained>,
    refused: Vec<RosterError>,
    changed: Vec<Changed>,
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

impl Changed {
    fn disabled(hook: &str) -> Changed {
        Changed { by: None, change: RosterRequest::Disable(hook.to_owned()) }
    }
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

impl Walk {
    /// The receivers that are still to come.
    fn rest<'a>(&self, receivers: &'a [usize]) -> &'a [usize] {
        receivers.get(self.next..self.end.min(receivers.len())).unwrap_or_default()
    }
}

impl HookRunner {
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
        let (end, monitors) = (self.plan().receivers(event).len(), self.plan().monitors_from(event));
        match part {
            Part::All => Walk { next: 0, end },
            Part::BeforeModule => Walk { next: 0, end: monitors },
            Part::Monitors => Walk { next: monitors, end },
        }
    }

    /// The failure is boxed: most deliveries reach every hook, and a large result costs as much as the rest of one.
    fn deliver_rest<C: Context>(&mut self, cx: &C, walk: &mut Walk) -> Result<(), Box<Failure>> {
        self.publish_changes(cx.moment().shared);
        if self.planned.watched {
            return self.measured(cx.moment(), |runner| runner.deliver_from::<C, true>(cx, walk));
        }
        self.deliver_from::<C, false>(cx, walk)
    }

    /// Lets hooks run, and adds the time they take to the time in hooks, if any hook wants to know it.
    #[inline]
    fn measured<T>(&mut self, moment: &Moment<'_>, run: impl FnOnce(&mut HookRunner) -> T) -> T {
        let began = self.measures_hooks().then(|| moment.elapsed());
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
    /// who they are, so they are looked up once. What is rare or noted is left to the closer loop.
    fn walk<C: Context, const NOTED: bool>(&mut self, cx: &C, walk: &mut Walk, watch: &mut Watch) -> Reply {
        if self.planned.stale || NOTED && (watch.runs() || self.received.is_some()) {
            return self.walk_counting::<C, true>(cx, walk, watch);
        }
        if NOTED && self.accounting.on {
            return self.walk_counting::<C, false>(cx, walk, watch);
        }
        let (turn, slots) = (&cx.moment().shared.turn, self.slots.as_mut_slice());
        for &id in walk.rest(self.planned.plan.receivers(C::EVENT)) {
            walk.next += 1;
            let slot = &mut slots[id];
            if slot.had_its_teardown(C::EVENT) {
                continue;
            }
            turn.hook.set(id);
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
        let id = self.plan().receivers(event)[at];
        let mishap = match interrupted {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(said)) => match *said {
                Said::Decided(_) if !(self.slots[id].spec.steers() && event.steers()) => {
                    Mishap::error("it returned a decision, and decides nothing here".into())
                }
                Said::Decided(decision) => {
                    let hook = self.slots[id].standing.name.clone();
                    self.news.decisions.push(Decided { hook, event, decision });
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
        self.planned.unpublished.set(true);
        let position = (moment.epoch, moment.step);
        if standing.judge(mishap, event.handler(), position, &mut self.news.contained)? {
            // The plan follows with the other changes, when the event has reached everyone.
            moment.shared.roster.ask(None, Change::Disable(standing.name.clone()));
            self.planned.stale = true;
        }
        Ok(())
    }

    /// Judges what went wrong in a hook outside of an event. Whether the hook is disabled, which the plan must follow.
    fn judge(
        &mut self,
        id: usize,
        mishap: Mishap,
        place: &'static str,
        at: (u64, u64),
    ) -> Result<bool, Failure> {
        self.planned.unpublished.set(true);
        let standing = &mut self.slots[id].standing;
        let disabled = standing.judge(mishap, place, at, &mut self.news.contained)?;
        if disabled {
            standing.enabled = false;
            self.news.changed.push(Changed::disabled(&standing.name));
        }
        Ok(disabled)
    }

    /// What a hook decided cannot be done: that is a failure of the hook, in the event that it answered.
    pub fn blame(
        &mut self,
        hook: &str,
        event: Event,
        at: (u64, u64),
        error: BoxError,
    ) -> Result<(), Failure> {
        let mishap = Mishap::error(error);
        let Some(id) = self.slots.iter().position(|slot| slot.is_called(hook)) else {
            // It has been removed since.
            let mut gone = Standing::new(hook.to_owned(), Policy::WARN);
            return gone.judge(mishap, event.handler(), at, &mut self.news.contained).map(|_| ());
        };
        if self.judge(id, mishap, event.handler(), at)? {
            self.replan();
        }
        Ok(())
    }

    /// Carries out the changes that hooks, and the module after them, asked for, now that the event has reached them.
    #[inline]
    pub fn settle(&mut self, moment: &Moment<'_>) {
        let wanted = self.planned.stale || moment.shared.roster.has_requests();
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
                Ok(()) => self.news.changed.push(Changed { by: name, change }),
                Err(refused) => self.news.refused.push(refused),
            }
        }
        self.replan();
        self.publish(moment.shared);
    }

    /// What was decided since the last call.
    pub fn take_decisions(&mut self) -> Vec<Decided> {
        std::mem::take(&mut self.news.decisions)
    }

    /// Whether anything was decided since it was last taken.
    #[inline]
    #[must_use]
    pub fn has_decisions(&self) -> bool {
        !self.news.decisions.is_empty()
    }

    /// Whether there are contained failures, and changes of the list of hooks that were made or refused,
    /// that nobody has taken yet.
    #[inline]
    #[must_use]
    pub fn has_news(&self) -> bool {
        let News { contained, refused, changed, .. } = &self.news;
        !(contained.is_empty() && refused.is_empty() && changed.is_empty())
    }

    /// The changes of the list of hooks that were made since the last call.
    pub fn take_changed(&mut self) -> Vec<Changed> {
        std::mem::take(&mut self.news.changed)
    }

    /// The failures that were contained since the last call.
    pub fn take_contained(&mut self) -> Vec<Contained> {
        std::mem::take(&mut self.news.contained)
    }

    /// The requests to change the list of hooks that could not be carried out since the last call.
    pub fn take_refused(&mut self) -> Vec<RosterError> {
        std::mem::take(&mut self.news.refused)
    }
}
