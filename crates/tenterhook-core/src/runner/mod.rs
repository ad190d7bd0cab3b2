//! The runner: keeps the hooks of a run and delivers events to them in the plan's order.
//!
//! It needs no trainer. Somebody who keeps his own loop asks [`HookRunner::wants`], builds the
//! event's context behind it and calls [`HookRunner::deliver`].

mod accounting;
mod activations;
mod active_plan;
mod costs;
mod finish;
mod gradients;
mod hook_status;
mod ranks;
mod received_events;
mod roster_rules;
mod saved_status;
mod slot;
mod slots;
mod states;

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::delivery_stats::DeliveryStats;
use crate::event::Event;
use crate::failure::{BoxError, Contained, Failure, Policy};
use crate::flow::Decision;
use crate::hook::{EventResult, HookResponse};
use crate::roster::{Change, RosterRequest};
use crate::run_context::RunContext;
use crate::update::Touched;
use crate::world::World;

use accounting::{Accounting, Watch};
use active_plan::Planned;
use hook_status::{HookError, HookStatus};
pub use ranks::RequestedChange;
pub use received_events::Received;
pub use roster_rules::RosterError;
use saved_status::Absent;
pub use saved_status::RunnerState;
use slot::Slot;
pub use slots::Registration;
pub use states::HookStates;

/// The hooks of a run, their plan, and what they decided.
#[derive(Default)]
pub struct HookRunner {
    slots: Vec<Slot>,
    planned: Planned,
    news: Reports,
    accounting: Accounting,
    absent: Absent,
    /// What update hooks did, where that is to be noted.
    traced: Option<Vec<GradientChange>>,
    /// What each hook has received, where that is to be noted.
    received: Option<Vec<ReceivedEvents>>,
    /// The event that was delivered last.
    delivered: Option<Event>,
    /// What ends the run, and waits until the module's step is over.
    aborted: Option<Failure>,
    /// A call is under way: who is removed now leaves when it is over.
    in_call: bool,
    /// What became of what hooks handed to worker threads in the last call.
    sent: Vec<(String, DeliveryStats)>,
    /// Which rank of a distributed run this is.
    world: World,
}

/// What happened since the loop last asked.
#[derive(Default)]
struct Reports {
    decisions: Vec<HookDecision>,
    contained: Vec<Contained>,
    refused: Vec<RosterError>,
    changed: Vec<RosterChange>,
}

/// A decision, and whose it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HookDecision {
    /// The hook's name.
    pub hook: String,
    /// The event it answered.
    pub event: Event,
    /// What it decided.
    pub decision: Decision,
}

/// A change of the list of hooks that was made, and who asked for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RosterChange {
    /// The hook's name; `None` is the module, or the runner itself after a failure.
    pub by: Option<String>,
    /// What was changed.
    pub change: RosterRequest,
}

impl RosterChange {
    fn disabled(hook: &str) -> RosterChange {
        RosterChange { by: None, change: RosterRequest::Disable(hook.to_owned()) }
    }
}

/// Which of an event's receivers a delivery is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookGroup {
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
        self.deliver_to(HookGroup::All, cx)
    }

    /// Delivers an event to a part of the hooks that want it.
    #[inline]
    pub fn deliver_to<C: Context>(&mut self, part: HookGroup, cx: &C) -> Result<(), Failure> {
        let mut walk = self.walk_over(C::EVENT, part);
        self.deliver_rest(cx, &mut walk).map_err(|failure| *failure)
    }

    fn walk_over(&self, event: Event, part: HookGroup) -> Walk {
        let (end, monitors) = (self.plan().receivers(event).len(), self.plan().monitors_from(event));
        match part {
            HookGroup::All => Walk { next: 0, end },
            HookGroup::BeforeModule => Walk { next: 0, end: monitors },
            HookGroup::Monitors => Walk { next: monitors, end },
        }
    }

    /// The failure is boxed: most deliveries reach every hook, and a large result costs as much as the rest of one.
    fn deliver_rest<C: Context>(&mut self, cx: &C, walk: &mut Walk) -> Result<(), Box<Failure>> {
        self.publish_changes(cx.run_cx().shared);
        if self.planned.watched {
            return self.measured(cx.run_cx(), |runner| runner.deliver_from::<C, true>(cx, walk));
        }
        self.deliver_from::<C, false>(cx, walk)
    }

    /// Lets hooks run, and adds the time they take to the time in hooks, if any hook wants to know it.
    #[inline]
    fn measured<T>(&mut self, run_cx: &RunContext<'_>, run: impl FnOnce(&mut HookRunner) -> T) -> T {
        let began = self.measures_hook_time().then(|| run_cx.elapsed());
        let result = run(self);
        if let Some(began) = began {
            let in_hooks = &run_cx.shared.in_hooks;
            in_hooks.set(in_hooks.get() + run_cx.elapsed().saturating_sub(began));
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
        let mut watch = Watch::begin(weight, cx.run_cx().shared);
        self.delivered = Some(C::EVENT);
        loop {
            // One guard around the walk, not one per hook: the walk knows whose panic it was.
            match catch_unwind(AssertUnwindSafe(|| self.walk::<C, NOTED>(cx, walk, &mut watch))) {
                Ok(Ok(())) => break,
                interrupted => {
                    let (event, run_cx) = (C::EVENT, cx.run_cx());
                    if interrupted.is_err() {
                        self.count_panic(event, walk.next - 1, &mut watch, run_cx.shared);
                    }
                    self.handle_response(event, run_cx, walk.next - 1, interrupted)?;
                }
            }
        }
        self.apply_roster_changes(cx.run_cx());
        Ok(())
    }

    /// The event that was delivered last, or set-up before any was.
    #[must_use]
    pub fn last_event(&self) -> Event {
        self.delivered.unwrap_or(Event::Setup)
    }

    /// Delivers an event to all hooks that want it, whatever fails on the way: for `on_exception`, and for the teardown
    /// after a failure. Returns the failures that would have ended the run.
    pub fn deliver_despite_failures<C: Context>(&mut self, cx: &C) -> Vec<Failure> {
        let (mut walk, mut failures) = (self.walk_over(C::EVENT, HookGroup::All), Vec::new());
        while let Err(failure) = self.deliver_rest(cx, &mut walk) {
            failures.push(*failure);
        }
        failures
    }

    /// Offers the event to one hook after the other, until one says anything. Nothing in here changes
    /// who they are, so they are looked up once. What is rare or noted is left to the closer loop.
    fn walk<C: Context, const NOTED: bool>(
        &mut self,
        cx: &C,
        walk: &mut Walk,
        watch: &mut Watch,
    ) -> EventResult {
        if self.planned.outdated || NOTED && (watch.runs() || self.received.is_some()) {
            return self.walk_counting::<C, true>(cx, walk, watch);
        }
        if NOTED && self.accounting.on {
            return self.walk_counting::<C, false>(cx, walk, watch);
        }
        let (turn, slots) = (&cx.run_cx().shared.current, self.slots.as_mut_slice());
        for &id in walk.rest(self.planned.plan.receivers(C::EVENT)) {
            walk.next += 1;
            let slot = &mut slots[id];
            if slot.had_its_teardown(C::EVENT) {
                continue;
            }
            current.hook.set(id);
            slot.offer(cx)?;
        }
        Ok(())
    }

    /// Does what a receiver said, or judges its panic.
    #[cold]
    fn handle_response(
        &mut self,
        event: Event,
        run_cx: &RunContext<'_>,
        at: usize,
        interrupted: std::thread::Result<EventResult>,
    ) -> Result<(), Box<Failure>> {
        let id = self.plan().receivers(event)[at];
        let error = match interrupted {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(said)) => match *said {
                HookResponse::Decision(_) if !(self.slots[id].spec.steers() && event.steers()) => {
                    HookError::error("it returned a decision, and decides nothing here".into())
                }
                HookResponse::Decision(decision) => {
                    let hook = self.slots[id].status.name.clone();
                    self.reports.decisions.push(HookDecision { hook, event, decision });
                    return Ok(());
                }
                HookResponse::Error(error) => HookError::error(error),
            },
            Err(panic) => HookError::panic(&*panic),
        };
        self.fail(id, event, run_cx, error).map_err(Box::new)
    }

    fn fail(
        &mut self,
        id: usize,
        event: Event,
        run_cx: &RunContext<'_>,
        error: HookError,
    ) -> Result<(), Failure> {
        let status = &mut self.slots[id].status;
        self.planned.unpublished.set(true);
        let position = (run_cx.epoch, run_cx.step);
        if status.judge(error, event.handler(), position, &mut self.reports.contained)? {
            // The plan follows with the other changes, when the event has reached everyone.
            run_cx.shared.roster.ask(None, Change::Disable(status.name.clone()));
            self.planned.outdated = true;
        }
        Ok(())
    }

    /// Judges what went wrong in a hook outside of an event. Whether the hook is disabled, which the plan must follow.
    fn judge(
        &mut self,
        id: usize,
        error: HookError,
        place: &'static str,
        at: (u64, u64),
    ) -> Result<bool, Failure> {
        self.planned.unpublished.set(true);
        let status = &mut self.slots[id].status;
        let disabled = status.judge(error, place, at, &mut self.reports.contained)?;
        if disabled {
            status.enabled = false;
            self.reports.changed.push(RosterChange::disabled(&status.name));
        }
        Ok(disabled)
    }

    /// What a hook decided cannot be done: that is a failure of the hook, in the event that it answered.
    pub fn fail_hook(
        &mut self,
        hook: &str,
        event: Event,
        at: (u64, u64),
        error: BoxError,
    ) -> Result<(), Failure> {
        let error = HookError::error(error);
        let Some(id) = self.slots.iter().position(|slot| slot.is_called(hook)) else {
            // It has been removed since.
            let mut gone = HookStatus::new(hook.to_owned(), Policy::WARN);
            return gone.judge(error, event.handler(), at, &mut self.reports.contained).map(|_| ());
        };
        if self.judge(id, error, event.handler(), at)? {
            self.replan();
        }
        Ok(())
    }

    /// Carries out the changes that hooks, and the module after them, asked for, now that the event has reached them.
    #[inline]
    pub fn apply_roster_changes(&mut self, run_cx: &RunContext<'_>) {
        let wanted = self.planned.outdated || run_cx.shared.roster.has_requests();
        if wanted && !self.world.is_distributed() {
            self.change(run_cx);
        }
    }

    #[cold]
    fn change(&mut self, run_cx: &RunContext<'_>) {
        for asked in run_cx.shared.roster.changes.take() {
            let by = asked.by.and_then(|by| run_cx.shared.roster.info(by));
            let (name, change) = (by.as_ref().map(|by| by.name.clone()), asked.change.in_words());
            match self.permit(by, &asked.change).and_then(|()| self.apply(asked.change)) {
                Ok(()) => self.reports.changed.push(RosterChange { by: name, change }),
                Err(refused) => self.reports.refused.push(refused),
            }
        }
        self.replan();
        self.publish(run_cx.shared);
    }

    /// What was decided since the last call.
    pub fn take_decisions(&mut self) -> Vec<HookDecision> {
        std::mem::take(&mut self.reports.decisions)
    }

    /// Whether anything was decided since it was last taken.
    #[inline]
    #[must_use]
    pub fn has_decisions(&self) -> bool {
        !self.reports.decisions.is_empty()
    }

    /// Whether there are contained failures, and changes of the list of hooks that were made or refused,
    /// that nobody has taken yet.
    #[inline]
    #[must_use]
    pub fn has_reports(&self) -> bool {
        let Reports { contained, refused, changed, .. } = &self.reports;
        !(contained.is_empty() && refused.is_empty() && changed.is_empty())
    }

    /// The changes of the list of hooks that were made since the last call.
    pub fn take_roster_changes(&mut self) -> Vec<RosterChange> {
        std::mem::take(&mut self.reports.changed)
    }

    /// The failures that were contained since the last call.
    pub fn take_contained(&mut self) -> Vec<Contained> {
        std::mem::take(&mut self.reports.contained)
    }

    /// The requests to change the list of hooks that could not be carried out since the last call.
    pub fn take_refused_changes(&mut self) -> Vec<RosterError> {
        std::mem::take(&mut self.reports.refused)
    }
}
