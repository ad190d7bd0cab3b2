//! The current plan, and other facts that depend on which hooks are registered and enabled.

use std::cell::Cell;

use super::HookRunner;
use super::slot::Slot;
use crate::event::Event;
use crate::plan::Plan;
use crate::progress::Progress;

/// Facts derived from the list of hooks. Rebuilt when the list changes.
#[derive(Default)]
pub(super) struct ActivePlan {
    pub(super) plan: Plan,
    /// The update hooks that are called, in order.
    pub(super) updates: Vec<usize>,
    /// A controller or an update hook needs every loss.
    steering_needs_losses: bool,
    /// An observer needs every loss.
    observers_need_losses: bool,
    /// A hook reads the gradient norm in `on_step_end`.
    grad_norm: bool,
    /// A hook uses the time spent in hooks.
    hook_time: bool,
    budgets: bool,
    /// Deliveries are timed, counted or recorded.
    pub(super) watched: bool,
    /// A hook was disabled and is still in the plan, which changes only between deliveries.
    pub(super) outdated: bool,
    /// The roster that hooks see is not up to date.
    pub(super) unpublished: Cell<bool>,
}

impl HookRunner {
    pub(super) fn replan(&mut self) {
        for slot in &mut self.slots {
            slot.status.wants_losses = slot.wants_losses();
        }
        let slots = &self.slots;
        let entries: Vec<_> = slots.iter().enumerate().map(|(id, slot)| slot.entry(id, self.world)).collect();
        let updates = slots.iter().enumerate().filter(|(_, slot)| slot.changes_gradients());
        let any = |needs: fn(&Slot) -> bool| slots.iter().any(|slot| slot.is_live() && needs(slot));
        let hook_time = any(|slot| slot.spec.measures_hook_time);
        self.active = ActivePlan {
            plan: Plan::new(&entries),
            updates: updates.map(|(id, _)| id).collect(),
            steering_needs_losses: any(|slot| slot.status.wants_losses && slot.spec.steers()),
            observers_need_losses: any(|slot| slot.status.wants_losses && !slot.spec.steers()),
            grad_norm: any(Slot::reads_grad_norm),
            hook_time,
            budgets: any(|slot| slot.status.budget.is_some()),
            watched: self.accounting.on || hook_time || self.received.is_some(),
            outdated: false,
            unpublished: Cell::new(true),
        };
    }

    /// Whether any hook wants the event. Build no context for an event that no hook wants.
    #[inline]
    #[must_use]
    pub fn wants(&self, event: Event) -> bool {
        self.active.plan.wants(event)
    }

    /// Whether any hook wants the event at this step, by the step intervals that the hooks declare. For
    /// contexts that are expensive to build.
    #[inline]
    #[must_use]
    pub fn wants_at(&self, event: Event, progress: &Progress) -> bool {
        self.wants(event) && self.active.plan.is_due(event, progress.current_step())
    }

    /// Whether any update hook would run. If none would, the gradients are not touched.
    #[inline]
    #[must_use]
    pub fn updates_gradients(&self) -> bool {
        !self.active.updates.is_empty()
    }

    /// Whether any hook reads the gradient norm at the end of this step. If so, the gradients must be kept
    /// until then.
    #[inline]
    #[must_use]
    pub fn reads_grad_norm(&self, progress: &Progress) -> bool {
        self.active.grad_norm && self.wants_at(Event::StepEnd, progress)
    }

    /// Whether a controller or an update hook needs every loss. If so, every step logs its loss.
    #[inline]
    #[must_use]
    pub fn steering_needs_every_loss(&self) -> bool {
        self.active.steering_needs_losses
    }

    /// Whether an observer needs every loss. If so, every step shows its loss to observers only: a controller
    /// must see the same numbers with and without observers.
    #[inline]
    #[must_use]
    pub fn observers_need_every_loss(&self) -> bool {
        self.active.observers_need_losses
    }

    /// Whether any hook uses the time spent in hooks.
    #[inline]
    pub(super) fn measures_hook_time(&self) -> bool {
        self.active.hook_time
    }

    /// Whether any hook has a budget.
    #[inline]
    #[must_use]
    pub fn has_budgets(&self) -> bool {
        self.active.budgets
    }
}
