//! The runner: keeps the hooks of a run and delivers events to them in the plan's order.
//!
//! It needs no trainer. A custom loop calls [`HookRunner::wants`], builds the event's context only if a hook
//! wants it, and calls [`HookRunner::deliver`].

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

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::delivery_stats::DeliveryStats;
use crate::event::Event;
use crate::failure::{BoxError, Contained, Failure, Policy};
use crate::flow::Decision;
use crate::hook::{EventResult, HookResponse};
use crate::roster::{PendingChange, RosterRequest};
use crate::run_context::RunContext;
use crate::spec::HookSpec;
use crate::update::GradientChange;
use crate::world::World;

use accounting::{Accounting, Watch};
use active_plan::ActivePlan;
use hook_status::{HookError, HookStatus};
pub use ranks::RequestedChange;
pub use received_events::ReceivedEvents;
pub use roster_rules::RosterError;
use saved_status::AbsentHooks;
pub use saved_status::RunnerState;
use slot::Slot;
pub use slots::Registration;
pub use states::HookStates;

/// The hooks of a run, their plan, and their decisions.
#[derive(Default)]
pub struct HookRunner {
    slots: Vec<Slot>,
    active: ActivePlan,
    reports: Reports,
    accounting: Accounting,
    absent: AbsentHooks,
    /// The changes made by update hooks, while they are traced.
    gradient_changes: Option<Vec<GradientChange>>,
    /// The events that each hook received, while they are recorded.
    received: Option<Vec<ReceivedEvents>>,
    /// The event that was delivered last.
    last_event: Option<Event>,
    /// A failure that ends the run once the module's step has returned.
    aborted: Option<Failure>,
    /// A call is in progress: a hook that is removed now is dropped at its end.
    in_call: bool,
    /// Delivery statistics of the last call.
    delivery_stats: Vec<(String, DeliveryStats)>,
    /// The rank of this process.
    world: World,
}

/// Reports that the loop has not taken yet.
#[derive(Default)]
struct Reports {
    decisions: Vec<HookDecision>,
    contained: Vec<Contained>,
    refused: Vec<RosterError>,
    changed: Vec<RosterChange>,
}

/// A decision and the hook that made it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HookDecision {
    /// The hook's name.
    pub hook: String,
    /// The event at which the hook decided.
    pub event: Event,
    /// The decision.
    pub decision: Decision,
}

/// A change of the list of hooks that was made, and who requested it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RosterChange {
    /// The hook's name; `None` for the module, and for the runner itself after a failure.
    pub by: Option<String>,
    /// The change.
    pub change: RosterRequest,
}

impl RosterChange {
    fn disabled(hook: &str) -> RosterChange {
        RosterChange { by: None, change: RosterRequest::Disable(hook.to_owned()) }
    }
}

/// The hooks that a delivery is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookGroup {
    /// All hooks.
    All,
    /// The hooks that come before the module at `on_train_epoch_end`.
    BeforeModule,
    /// The monitors, which come after the module.
    Monitors,
}

/// The receivers of an event that it has not reached yet.
type Walk = Range<usize>;

impl HookRunner {
    /// Delivers an event to all hooks that want it. An error ends the run; every other failure is contained
    /// and counted.
    #[inline]
    pub fn deliver<C: Context>(&mut self, cx: &C) -> Result<(), Failure> {
        self.deliver_to(HookGroup::All, cx)
    }

    /// Delivers an event to the hooks of a group that want it.
    #[inline]
    pub fn deliver_to<C: Context>(&mut self, group: HookGroup, cx: &C) -> Result<(), Failure> {
        let mut walk = self.walk_over(C::EVENT, group);
        self.deliver_rest(cx, &mut walk).map_err(|failure| *failure)
    }

    fn walk_over(&self, event: Event, group: HookGroup) -> Walk {
        let (end, monitors) = (self.plan().receivers(event).len(), self.plan().monitors_from(event));
        match group {
            HookGroup::All => 0..end,
            HookGroup::BeforeModule => 0..monitors,
            HookGroup::Monitors => monitors..end,
        }
    }

    /// The failure is boxed because a large result would double the cost of a delivery.
    fn deliver_rest<C: Context>(&mut self, cx: &C, walk: &mut Walk) -> Result<(), Box<Failure>> {
        self.publish_changes(cx.run_cx().shared);
        if self.active.watched {
            return self.measured(cx.run_cx(), |runner| runner.deliver_from::<C, true>(cx, walk));
        }
        self.deliver_from::<C, false>(cx, walk)
    }

    /// Runs hooks, and measures their time if any hook declares that it uses it.
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

    /// `WATCHED` if the delivery is timed, counted or recorded.
    fn deliver_from<C: Context, const WATCHED: bool>(
        &mut self,
        cx: &C,
        walk: &mut Walk,
    ) -> Result<(), Box<Failure>> {
        let weight = if WATCHED { self.accounting.weight(C::EVENT as usize) } else { 0 };
        let mut watch = Watch::begin(weight, cx.run_cx().shared);
        self.last_event = Some(C::EVENT);
        loop {
            // One guard around all hooks; `walk` records the position of a hook that panicked.
            match catch_unwind(AssertUnwindSafe(|| self.walk::<C, WATCHED>(cx, walk, &mut watch))) {
                Ok(Ok(())) => break,
                interrupted => {
                    let (event, run_cx) = (C::EVENT, cx.run_cx());
                    if interrupted.is_err() {
                        self.count_panic(event, walk.start - 1, &mut watch, run_cx.shared);
                    }
                    self.handle_response(event, run_cx, walk.start - 1, interrupted)?;
                }
            }
        }
        self.apply_roster_changes(cx.run_cx());
        Ok(())
    }

    /// The event that was delivered last, or `Event::Setup` if none was.
    #[must_use]
    pub fn last_event(&self) -> Event {
        self.last_event.unwrap_or(Event::Setup)
    }

    /// Delivers an event to all hooks that want it, even if some fail: for `on_exception`, and for the
    /// teardown after a failure. Returns the failures that would have ended the run.
    pub fn deliver_despite_failures<C: Context>(&mut self, cx: &C) -> Vec<Failure> {
        let (mut walk, mut failures) = (self.walk_over(C::EVENT, HookGroup::All), Vec::new());
        while let Err(failure) = self.deliver_rest(cx, &mut walk) {
            failures.push(*failure);
        }
        failures
    }

    /// Delivers the event to one hook after the other until one returns anything but `Ok(())`. The receivers
    /// cannot change meanwhile, so they are looked up once. Rare and watched cases take the slower loop.
    fn walk<C: Context, const WATCHED: bool>(
        &mut self,
        cx: &C,
        walk: &mut Walk,
        watch: &mut Watch,
    ) -> EventResult {
        if self.active.outdated || WATCHED && (watch.runs() || self.received.is_some()) {
            return self.walk_counting::<C, true>(cx, walk, watch);
        }
        if WATCHED && self.accounting.on {
            return self.walk_counting::<C, false>(cx, walk, watch);
        }
        let (current, slots) = (&cx.run_cx().shared.current, self.slots.as_mut_slice());
        for &id in &self.active.plan.receivers(C::EVENT)[walk.clone()] {
            walk.start += 1;
            let slot = &mut slots[id];
            if slot.had_its_teardown(C::EVENT) {
                continue;
            }
            current.hook.set(id);
            slot.offer(cx)?;
        }
        Ok(())
    }

    /// Records a hook's decision, or applies its policy to an error or panic.
    #[cold]
    fn handle_response(
        &mut self,
        event: Event,
        run_cx: &RunContext<'_>,
        receiver: usize,
        interrupted: std::thread::Result<EventResult>,
    ) -> Result<(), Box<Failure>> {
        let id = self.plan().receivers(event)[receiver];
        let spec = &self.slots[id].spec;
        let error = match interrupted {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(response)) => match *response {
                HookResponse::Decision(decision) if spec.steers() && event.steers() => {
                    let hook = spec.name.clone();
                    self.reports.decisions.push(HookDecision { hook, event, decision });
                    return Ok(());
                }
                HookResponse::Decision(_) => {
                    HookError::error("it returned a decision where none is allowed".into())
                }
                HookResponse::Error(error) => HookError::error(error),
            },
            Err(panic) => HookError::panic(&*panic),
        };
        let at = (run_cx.epoch, run_cx.step);
        if self.judge_only(id, error, event.handler(), at)? {
            // The plan changes together with the requested changes, after all hooks have received the event.
            let request = RosterRequest::Disable(self.slots[id].spec.name.clone());
            run_cx.shared.roster.ask(None, request, None);
            self.active.outdated = true;
        }
        Ok(())
    }

    /// Applies the hook's policy to an error. Returns whether the hook must be disabled.
    fn judge_only(
        &mut self,
        id: usize,
        error: HookError,
        place: &'static str,
        at: (u64, u64),
    ) -> Result<bool, Failure> {
        self.active.unpublished.set(true);
        let Slot { status, spec, .. } = &mut self.slots[id];
        status.judge(spec, error, place, at, &mut self.reports.contained)
    }

    /// Applies the hook's policy to an error outside of an event. Returns whether the hook was disabled; the
    /// plan must then be rebuilt.
    fn judge(
        &mut self,
        id: usize,
        error: HookError,
        place: &'static str,
        at: (u64, u64),
    ) -> Result<bool, Failure> {
        let disabled = self.judge_only(id, error, place, at)?;
        if disabled {
            let Slot { status, spec, .. } = &mut self.slots[id];
            status.enabled = false;
            self.reports.changed.push(RosterChange::disabled(&spec.name));
        }
        Ok(disabled)
    }

    /// Reports that a hook's decision cannot be applied: a failure of the hook, at the event of the decision.
    pub fn fail_hook(
        &mut self,
        hook: &str,
        event: Event,
        at: (u64, u64),
        error: BoxError,
    ) -> Result<(), Failure> {
        let error = HookError::error(error);
        let Some(id) = self.slots.iter().position(|slot| slot.is_named(hook)) else {
            // The hook was removed in the meantime.
            let spec = HookSpec::observer(hook).policy(Policy::WARN);
            let mut status = HookStatus::new(true, None);
            return status.judge(&spec, error, event.handler(), at, &mut self.reports.contained).map(drop);
        };
        if self.judge(id, error, event.handler(), at)? {
            self.replan();
        }
        Ok(())
    }

    /// Makes the changes of the list of hooks that hooks or the module requested. Called after an event was
    /// delivered. With several ranks, the changes wait until all ranks have received them.
    #[inline]
    pub fn apply_roster_changes(&mut self, run_cx: &RunContext<'_>) {
        let wanted = self.active.outdated || run_cx.shared.roster.has_requests();
        if wanted && !self.world.is_distributed() {
            self.apply_requested_changes(run_cx);
        }
    }

    #[cold]
    fn apply_requested_changes(&mut self, run_cx: &RunContext<'_>) {
        let roster = &run_cx.shared.roster;
        for PendingChange { by, request, hook } in roster.changes.take() {
            let by = by.and_then(|by| roster.info(by));
            let permitted = self.permit(by.as_ref(), &request, hook.as_ref());
            match permitted.and_then(|()| self.apply(&request, hook)) {
                Ok(()) => {
                    let by = by.map(|by| by.name);
                    self.reports.changed.push(RosterChange { by, change: request });
                }
                Err(refused) => self.reports.refused.push(refused),
            }
        }
        self.replan();
        self.publish(run_cx.shared);
    }

    /// The decisions since the last call.
    pub fn take_decisions(&mut self) -> Vec<HookDecision> {
        std::mem::take(&mut self.reports.decisions)
    }

    /// Whether there are decisions to take.
    #[inline]
    #[must_use]
    pub fn has_decisions(&self) -> bool {
        !self.reports.decisions.is_empty()
    }

    /// Whether there are contained failures, made changes or refused changes to take.
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

    /// The requested changes of the list of hooks that were refused since the last call.
    pub fn take_refused_changes(&mut self) -> Vec<RosterError> {
        std::mem::take(&mut self.reports.refused)
    }
}
