//! Accounting of hooks in the loop: measures calls and steps, checks budgets, and charges hooks for work on
//! their behalf.

use std::time::Duration;

use tenterhook_core::{Event, Failure, Origin};

use crate::journal::RunNotice;
use crate::loops::Loop;
use crate::module::Module;
use crate::run::{HookCosts, SentByHook};

/// The number of training batches between two checks of the budgets.
const CHECK_EVERY: u64 = 100;

/// The time of a trainer's calls, and of the training steps in them: without set-up, validations, and the
/// ends of epochs and of training.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TimeSpent {
    pub(crate) calls: Duration,
    pub(crate) steps: Duration,
}

/// When this call and its current steps began, and the time of earlier calls and steps.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Accounts {
    began: Duration,
    steps_began: Option<Duration>,
    /// The number of batches before the first step of this call.
    batches_before: Option<u64>,
    before: TimeSpent,
}

impl<M: Module> Loop<M> {
    /// Starts accounting, if it is enabled. Otherwise nothing here reads the clock.
    pub(crate) fn open_accounts(&mut self, on: bool, before: TimeSpent) {
        self.hooks.set_accounting(on);
        if on {
            self.hooks.end_steps();
            self.accounts = Accounts { began: self.shared.clock.elapsed(), before, ..Accounts::default() };
        } else if self.hooks.has_budgets() && !self.shared.run.rehearsal {
            let text = "hooks have budgets, but `account_hooks` is off, so their time is not measured";
            self.note(RunNotice::Said { hook: Origin::TRAINER.into(), text: text.into() });
        }
    }

    /// Starts measuring training steps, also after a validation.
    pub(crate) fn begin_steps(&mut self) {
        if self.hooks.is_accounting() && self.accounts.steps_began.is_none() {
            self.accounts.steps_began = Some(self.shared.clock.elapsed());
            self.accounts.batches_before.get_or_insert(self.state.progress.total_batches);
            self.hooks.begin_steps();
        }
    }

    /// Stops measuring training steps, also for a validation.
    pub(crate) fn end_steps(&mut self) {
        if let Some(began) = self.accounts.steps_began.take() {
            self.accounts.before.steps += self.shared.clock.elapsed().saturating_sub(began);
            self.hooks.end_steps();
        }
    }

    /// The time of this trainer's calls so far, if accounting is enabled.
    pub(crate) fn spent(&self) -> TimeSpent {
        let Accounts { began, steps_began, before, .. } = self.accounts;
        if !self.hooks.is_accounting() {
            return before;
        }
        let now = self.shared.clock.elapsed();
        let of_steps = steps_began.map_or(Duration::ZERO, |began| now.saturating_sub(began));
        TimeSpent { calls: before.calls + now.saturating_sub(began), steps: before.steps + of_steps }
    }

    /// Delivery statistics of the worker threads of hooks.
    pub(crate) fn sinks(&self) -> Vec<SentByHook> {
        let sinks = self.hooks.delivery_stats().iter().cloned();
        sinks.map(|(hook, stats)| SentByHook { hook, stats }).collect()
    }

    /// The costs of hooks so far; empty without accounting.
    pub(crate) fn hook_costs(&self) -> HookCosts {
        if self.hooks.is_accounting() {
            HookCosts::of(&self.hooks.costs(), self.spent())
        } else {
            HookCosts::default()
        }
    }

    /// Checks the budgets of hooks every few batches.
    #[inline]
    pub(crate) fn check_budgets(&mut self, module: &mut M) -> Result<(), Failure> {
        // Counted from the start of this call, so that the first check has enough measurements.
        let batches = || self.state.progress.total_batches - self.accounts.batches_before.unwrap_or_default();
        let due = self.hooks.has_budgets() && batches().is_multiple_of(CHECK_EVERY);
        if !due || !self.hooks.is_accounting() {
            return Ok(());
        }
        self.report_overruns(false);
        self.after_event(module)
    }

    /// Checks the budgets at the end of training. Hooks are no longer disabled.
    pub(crate) fn check_final_budgets(&mut self) {
        if self.hooks.has_budgets() && self.hooks.is_accounting() {
            self.report_overruns(true);
        }
    }

    fn report_overruns(&mut self, trained: bool) {
        for overrun in self.hooks.check_budgets(self.spent().steps, trained) {
            let disabled = overrun.disabled.then(|| overrun.hook.clone());
            let notice = RunNotice::OverBudget(overrun);
            self.journal.disabled.extend(disabled.map(|hook| (hook, notice.to_string())));
            self.note(notice);
        }
    }

    /// Does work that a hook requested at an event, and charges the hook for its time, without that of other
    /// hooks.
    pub(crate) fn charging<T>(
        &mut self,
        asked: Option<(String, Event)>,
        work: impl FnOnce(&mut Loop<M>) -> T,
    ) -> T {
        let Some((hook, event)) = asked.filter(|_| self.hooks.is_accounting()) else { return work(self) };
        let (began, others) = (self.shared.clock.elapsed(), self.hooks.total_time());
        let done = work(self);
        let others = self.hooks.total_time().saturating_sub(others);
        let took = self.shared.clock.elapsed().saturating_sub(began).saturating_sub(others);
        self.hooks.charge(&hook, event, took);
        done
    }

    /// The start of work that a hook is charged for, if accounting is enabled.
    pub(crate) fn begun(&self) -> Option<Duration> {
        self.hooks.is_accounting().then(|| self.shared.clock.elapsed())
    }

    /// Charges a hook for the time since then.
    pub(crate) fn charge_since(&mut self, began: Option<Duration>, hook: &str, event: Event) {
        if let Some(began) = began {
            self.hooks.charge(hook, event, self.shared.clock.elapsed().saturating_sub(began));
        }
    }
}
