//! The plan in force, and what follows from who is registered and enabled.

use std::cell::Cell;

use super::HookRunner;
use super::slot::Slot;
use crate::event::Event;
use crate::plan::Plan;
use crate::progress::Progress;

/// What the list of hooks amounts to; made anew when the list changes.
#[derive(Default)]
pub(super) struct Planned {
    pub(super) plan: Plan,
    /// The update hooks that are called, in order.
    pub(super) updates: Vec<usize>,
    needs: Needs,
    /// Deliveries are timed, counted or noted.
    pub(super) watched: bool,
    /// A hook was disabled and is in the plan still, which follows when no delivery is under way.
    pub(super) stale: bool,
    /// The hooks have not been told yet who is registered.
    pub(super) unpublished: Cell<bool>,
}

/// What any of the hooks needs.
#[derive(Clone, Copy, Default)]
struct Needs {
    /// A controller or an update hook judges every loss.
    losses: bool,
    /// An observer reads every loss.
    observed_losses: bool,
    /// The norm of the gradients when a step has ended.
    grad_norm: bool,
    /// The time spent in hooks.
    time_in_hooks: bool,
    /// Its budget is judged.
    budgets: bool,
}

impl HookRunner {
    pub(super) fn replan(&mut self) {
        for slot in &mut self.slots {
            slot.status.wants_losses = slot.wants_losses();
        }
        let slots = &self.slots;
        let entries: Vec<_> = slots.iter().enumerate().map(|(id, slot)| slot.entry(id, self.world)).collect();
        let live = |needs: fn(&Slot) -> bool| slots.iter().any(|slot| slot.is_live() && needs(slot));
        let needs = Needs {
            losses: live(|slot| slot.status.wants_losses && slot.spec.steers()),
            observed_losses: live(|slot| slot.status.wants_losses && !slot.spec.steers()),
            grad_norm: live(Slot::reads_grad_norm),
            time_in_hooks: live(|slot| slot.spec.measures_hook_time),
            budgets: live(|slot| slot.status.budget.is_some()),
        };
        let updates = slots.iter().enumerate().filter(|(_, slot)| slot.changes_gradients());
        self.planned = Planned {
            plan: Plan::new(&entries),
            updates: updates.map(|(id, _)| id).collect(),
            needs,
            watched: self.accounting.on || needs.time_in_hooks || self.received.is_some(),
            stale: false,
            unpublished: Cell::new(true),
        };
    }

    /// Whether anybody wants the event. An event nobody wants should build no payload.
    #[inline]
    #[must_use]
    pub fn wants(&self, event: Event) -> bool {
        self.planned.plan.wants(event)
    }

    /// Whether anybody wants the event at this step: where all who want it declare that they fire every
    /// so many steps, nobody does in between. For payloads that take work to build.
    #[inline]
    #[must_use]
    pub fn wants_at(&self, event: Event, progress: &Progress) -> bool {
        self.wants(event) && self.planned.plan.is_due(event, progress.current_step())
    }

    /// Whether any update hook would run. Without one the gradients are not touched at all.
    #[inline]
    #[must_use]
    pub fn updates_gradients(&self) -> bool {
        !self.planned.updates.is_empty()
    }

    /// Whether anybody reads the norm of the gradients at the end of this step, so that they must be held until then.
    #[inline]
    #[must_use]
    pub fn reads_grad_norm(&self, progress: &Progress) -> bool {
        self.planned.needs.grad_norm && self.wants_at(Event::StepEnd, progress)
    }

    /// Whether a controller or an update hook judges every loss, which must then be logged at every step.
    #[inline]
    #[must_use]
    pub fn steering_needs_every_loss(&self) -> bool {
        self.planned.needs.losses
    }

    /// Whether an observer reads every loss, which must then be shown to observers at every step, and to nobody
    /// else: a controller must not see other numbers because somebody watches.
    #[inline]
    #[must_use]
    pub fn observers_need_every_loss(&self) -> bool {
        self.planned.needs.observed_losses
    }

    /// Whether any hook wants to know the time spent in hooks.
    #[inline]
    pub(super) fn measures_hook_time(&self) -> bool {
        self.planned.needs.time_in_hooks
    }

    /// Whether any hook has a budget.
    #[inline]
    #[must_use]
    pub fn has_budgets(&self) -> bool {
        self.planned.needs.budgets
    }
}
