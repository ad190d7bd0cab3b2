//! What hooks have cost, in numbers, and whether they keep to their budgets.
//!
//! `begin_steps` and `end_steps` separate step time from the rest: shares and budgets are of step time, so that long
//! validations do not hide a hook that doubles every step. Work that the loop does for a hook outside of its turn (saves,
//! decisions, printed lines, losses that are read because a hook declares it) is charged by the loop. Budgets are judged
//! between batches by the lower end of the estimate, since one timed call stands for up to 31.

use std::time::Duration;

use super::hook_status::HookStatus;
use super::slot::Slot;
use super::{HookRunner, RosterChange};
use crate::account::{BudgetOverrun, Cost, HookCost, OverBudget, Tally};
use crate::event::Event;
use crate::roster::Change;

impl HookRunner {
    /// Whether account is kept of what hooks cost; it is, unless this says otherwise.
    pub fn set_accounting(&mut self, on: bool) {
        self.accounting.on = on;
        self.replan();
    }

    /// Whether account is kept.
    #[inline]
    #[must_use]
    pub fn is_accounting(&self) -> bool {
        self.accounting.on
    }

    /// The time that somebody else spent for a hook, such as saving what it asked for: its last call took longer by it.
    pub fn charge(&mut self, hook: &str, event: Event, spent: Duration) {
        let nanos = u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX);
        let on = self.accounting.on;
        if let Some(slot) = self.find_mut(hook).filter(|_| on) {
            slot.status.account.lengthen(event as usize, nanos);
        }
    }

    /// What all hooks together have taken so far.
    #[must_use]
    pub fn total_time(&self) -> Duration {
        Duration::from_nanos(self.slots.iter().map(|slot| slot.status.account.total()).sum())
    }

    /// So many losses were brought over from the engine only because hooks declare that they read every one. Each of
    /// those hooks is charged: without the others it would have been the same.
    pub fn charge_losses(&mut self, count: u64) {
        if !self.accounting.on {
            return;
        }
        let wanting = self.slots.iter_mut().filter(|slot| slot.status.wants_losses);
        wanting.for_each(|slot| slot.status.account.read.scalars += count);
    }

    /// Training steps begin, or go on after something else: what hooks take from here on is a part of them. Without a
    /// word about steps everything is.
    pub fn begin_steps(&mut self) {
        if !std::mem::replace(&mut self.accounting.in_steps, true) {
            self.tallies().for_each(Tally::begin_steps);
        }
    }

    /// Training steps have not begun, pause for something else, or are over.
    pub fn end_steps(&mut self) {
        if std::mem::replace(&mut self.accounting.in_steps, false) {
            self.tallies().for_each(Tally::end_steps);
        }
    }

    fn tallies(&mut self) -> impl Iterator<Item = &mut Tally> {
        self.slots.iter_mut().flat_map(|slot| slot.status.account.tallies())
    }

    /// What every hook has cost so far, in registration order; those that were removed are among them.
    #[must_use]
    pub fn costs(&self) -> Vec<HookCost> {
        self.slots.iter().map(|slot| slot.cost(self.accounting.in_steps)).collect()
    }

    /// Looks whether hooks have kept to their budgets, now that training steps have taken so long. Each is told of
    /// once. Once training is over, none is disabled any more.
    pub fn check_budgets(&mut self, spent: Duration, trained: bool) -> Vec<BudgetOverrun> {
        let (spent, in_steps) = (spent.as_secs_f64(), self.accounting.in_steps);
        let over = |status: &HookStatus| {
            let budget = status.budget.filter(|_| status.enabled && !status.account.told)?;
            let (taken, doubt) = status.account.in_steps(in_steps);
            let share = Duration::from_nanos(taken).as_secs_f64() / spent;
            // An estimate that may be off by so much must be over by more.
            let surely = share - doubt / 1e9 / spent;
            (surely > budget.share).then(|| (status.name.clone(), share, budget))
        };
        let over: Vec<_> = self.present().map(|slot| &slot.status).filter_map(over).collect();
        let mut overruns = Vec::new();
        for (hook, share, budget) in over {
            let disabled = !trained && budget.over == OverBudget::Disable && self.may_go(&hook);
            if let Some(slot) = self.find_mut(&hook) {
                slot.status.account.told = true;
            }
            if disabled && self.disable(&hook).is_ok() {
                self.reports.changed.push(RosterChange::disabled(&hook));
            }
            overruns.push(BudgetOverrun { hook, share, budget: budget.share, disabled });
        }
        overruns
    }

    /// Whether training would be the same without this hook.
    fn may_go(&self, hook: &str) -> bool {
        let steers = self.find(hook).is_some_and(|slot| slot.spec.steers());
        !steers && self.steering_reader_of(&Change::Disable(hook.to_owned())).is_none()
    }
}

impl Slot {
    fn cost(&self, in_steps: bool) -> HookCost {
        let HookStatus { name, failures, account, .. } = &self.status;
        let names = Event::ALL.iter().map(|event| event.handler()).chain(["update"]);
        let mut all = Tally::default();
        let mut by_event = Vec::new();
        for (name, (calls, tally)) in names.zip(account.places()) {
            if let Some(tally) = tally {
                all.take_in(tally);
                by_event.push((name, tally.cost(calls, in_steps)));
            } else if calls > 0 {
                by_event.push((name, Cost { calls, ..Cost::default() }));
            }
        }
        let calls = account.places().map(|(calls, _)| calls).sum();
        HookCost {
            hook: name.clone(),
            kind: self.spec.kind(),
            enabled: self.is_live(),
            failures: *failures,
            cost: all.cost(calls, in_steps),
            read: account.read,
            by_event,
        }
    }
}
