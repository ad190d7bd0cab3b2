//! The costs of hooks, and the checks of their budgets.
//!
//! Shares and budgets refer to the time of training steps, which `begin_steps` and `end_steps` delimit:
//! otherwise long validations would hide a hook that doubles the duration of every step. Work that the loop does for a hook
//! outside of its calls (saves, decisions, printed lines, losses that are read because a hook declares it) is
//! charged by the loop. Budgets are checked between batches against the lower end of the estimate, since a
//! timed call represents up to 31 calls (`GAP_LIMIT`) and a single slow one could seem to exceed a budget.

use std::time::Duration;

use super::slot::Slot;
use super::{HookRunner, RosterChange};
use crate::account::{BudgetOverrun, Cost, HookCost, OverBudget, Tally};
use crate::event::Event;

impl HookRunner {
    /// Sets whether the cost of hooks is measured. It is by default.
    pub fn set_accounting(&mut self, on: bool) {
        self.accounting.on = on;
        self.replan();
    }

    /// Whether the cost of hooks is measured.
    #[inline]
    #[must_use]
    pub fn is_accounting(&self) -> bool {
        self.accounting.on
    }

    /// Charges a hook for work of the loop that its last call caused, such as a requested save.
    pub fn charge(&mut self, hook: &str, event: Event, spent: Duration) {
        let nanos = u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX);
        let on = self.accounting.on;
        if let Some(slot) = self.find_mut(hook).filter(|_| on) {
            slot.status.account.extend_last_call(event as usize, nanos);
        }
    }

    /// The total time of all hooks so far.
    #[must_use]
    pub fn total_time(&self) -> Duration {
        Duration::from_nanos(self.slots.iter().map(|slot| slot.status.account.total()).sum())
    }

    /// Charges losses that were read from the engine only because hooks declare to read every one. Each of
    /// those hooks is charged in full, since it alone would have caused the reads.
    pub fn charge_losses(&mut self, count: u64) {
        if !self.accounting.on {
            return;
        }
        let wanting = self.slots.iter_mut().filter(|slot| slot.status.wants_losses);
        wanting.for_each(|slot| slot.status.account.read.scalars += count);
    }

    /// Training steps begin or continue: from now on, the time of hooks counts as part of steps. If neither
    /// this method nor `end_steps` is ever called, all time counts as part of steps.
    pub fn begin_steps(&mut self) {
        if !std::mem::replace(&mut self.accounting.in_steps, true) {
            self.tallies().for_each(Tally::begin_steps);
        }
    }

    /// Training steps pause or end.
    pub fn end_steps(&mut self) {
        if std::mem::replace(&mut self.accounting.in_steps, false) {
            self.tallies().for_each(Tally::end_steps);
        }
    }

    fn tallies(&mut self) -> impl Iterator<Item = &mut Tally> {
        self.slots.iter_mut().flat_map(|slot| slot.status.account.tallies())
    }

    /// The cost of every hook so far, removed hooks included, in registration order.
    #[must_use]
    pub fn costs(&self) -> Vec<HookCost> {
        self.slots.iter().map(|slot| slot.cost(self.accounting.in_steps)).collect()
    }

    /// Checks the budgets, given the time of all training steps so far. Each overrun is reported once. After
    /// training has ended, no hook is disabled.
    pub fn check_budgets(&mut self, step_time: Duration, training_ended: bool) -> Vec<BudgetOverrun> {
        let (step_time, in_steps) = (step_time.as_secs_f64(), self.accounting.in_steps);
        let over = |Slot { status, spec, .. }: &Slot| {
            let budget = status.budget.filter(|_| status.enabled && !status.account.reported)?;
            let (taken, error) = status.account.in_steps(in_steps);
            let share = Duration::from_nanos(taken).as_secs_f64() / step_time;
            let lower_end = share - error / 1e9 / step_time;
            (lower_end > budget.share).then(|| (spec.name.clone(), share, budget))
        };
        let over: Vec<_> = self.present().filter_map(over).collect();
        let mut overruns = Vec::new();
        for (hook, share, budget) in over {
            let disabled =
                !training_ended && budget.over == OverBudget::Disable && self.can_be_disabled(&hook);
            if let Some(slot) = self.find_mut(&hook) {
                slot.status.account.reported = true;
            }
            if disabled && self.disable(&hook).is_ok() {
                self.reports.changed.push(RosterChange::disabled(&hook));
            }
            overruns.push(BudgetOverrun { hook, share, budget: budget.share, disabled });
        }
        overruns
    }

    /// Whether training would be the same without this hook.
    fn can_be_disabled(&self, hook: &str) -> bool {
        let steers_or_is_read =
            |slot: &Slot| slot.spec.steers() || self.steering_reader_of(&slot.spec).is_some();
        !self.find(hook).is_some_and(steers_or_is_read)
    }
}

impl Slot {
    fn cost(&self, in_steps: bool) -> HookCost {
        let account = &self.status.account;
        let names = Event::ALL.iter().map(|event| event.handler()).chain(["update"]);
        let mut all = Tally::default();
        let mut by_event = Vec::new();
        for (name, (calls, tally)) in names.zip(account.rows()) {
            if let Some(tally) = tally {
                all.merge(tally);
                by_event.push((name, tally.cost(calls, in_steps)));
            } else if calls > 0 {
                by_event.push((name, Cost { calls, ..Cost::default() }));
            }
        }
        let calls = account.rows().map(|(calls, _)| calls).sum();
        HookCost {
            hook: self.spec.name.clone(),
            kind: self.spec.kind(),
            enabled: self.is_live(),
            failures: self.status.failures,
            cost: all.cost(calls, in_steps),
            read: account.read,
            by_event,
        }
    }
}
