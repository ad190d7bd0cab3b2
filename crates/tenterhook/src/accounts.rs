//! What the loop does for the accounts of hooks: says how long it all took, judges budgets, and charges a hook for
//! what is done on its behalf.

use std::time::Duration;

use tenterhook_core::{Event, Failure};

use crate::journal::RunNotice;
use crate::loops::Loop;
use crate::module::Module;
use crate::run::{HookCosts, SentByHook};

/// So many training batches lie between two looks at budgets.
const JUDGED_EVERY: u64 = 100;

/// How long the calls of a trainer took, and the training steps among that: without set-up, validations and what comes
/// at the end of an epoch or of training.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    pub(crate) calls: Duration,
    pub(crate) steps: Duration,
}

/// Since when this call is accounted for, and the steps that are under way; and what earlier calls and steps took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Accounts {
    began: Duration,
    steps_began: Option<Duration>,
    /// How many batches had been trained when the first step of this call began.
    batches_before: Option<u64>,
    before: Spent,
}

impl<M: Module> Loop<M> {
    /// Begins to keep account, if that is wanted; otherwise nothing here looks at the clock.
    pub(crate) fn open_accounts(&mut self, on: bool, before: Spent) {
        self.hooks.set_accounting(on);
        if on {
            self.hooks.end_steps();
            self.accounts = Accounts { began: self.shared.clock.elapsed(), before, ..Accounts::default() };
        } else if self.hooks.has_budgets() && !self.shared.run.rehearsal {
            let text = "hooks have budgets, but `account_hooks` is off, so nobody knows what they take";
            self.note(RunNotice::Said { hook: "trainer".into(), text: text.into() });
        }
    }

    /// Training steps begin, or go on after a validation.
    pub(crate) fn begin_steps(&mut self) {
        if self.hooks.is_accounting() && self.accounts.steps_began.is_none() {
            self.accounts.steps_began = Some(self.shared.clock.elapsed());
            self.accounts.batches_before.get_or_insert(self.state.progress.total_batches);
            self.hooks.begin_steps();
        }
    }

    /// Training steps pause for something else, or are over.
    pub(crate) fn end_steps(&mut self) {
        if let Some(began) = self.accounts.steps_began.take() {
            self.accounts.before.steps += self.shared.clock.elapsed().saturating_sub(began);
            self.hooks.end_steps();
        }
    }

    /// How long the calls of this trainer took so far, where account is kept.
    pub(crate) fn spent(&self) -> Spent {
        let Accounts { began, steps_began, before, .. } = self.accounts;
        if !self.hooks.is_accounting() {
            return before;
        }
        let now = self.shared.clock.elapsed();
        let of_steps = steps_began.map_or(Duration::ZERO, |began| now.saturating_sub(began));
        Spent { calls: before.calls + now.saturating_sub(began), steps: before.steps + of_steps }
    }

    /// What became of what hooks handed to worker threads.
    pub(crate) fn sinks(&self) -> Vec<SentByHook> {
        self.hooks.delivery_stats().iter().map(|(hook, sent)| SentByHook::new(hook.clone(), *sent)).collect()
    }

    /// What hooks have cost so far; nothing where no account is kept.
    pub(crate) fn hook_costs(&self) -> HookCosts {
        if self.hooks.is_accounting() {
            HookCosts::of(&self.hooks.costs(), self.spent())
        } else {
            HookCosts::default()
        }
    }

    /// Looks from time to time whether hooks have kept to their budgets.
    #[inline]
    pub(crate) fn judge_budgets(&mut self, module: &mut M) -> Result<(), Failure> {
        // Of this call: accounts begin anew with each, and after a few batches little is known.
        let batches = || self.state.progress.total_batches - self.accounts.batches_before.unwrap_or_default();
        let due = self.hooks.has_budgets() && batches().is_multiple_of(JUDGED_EVERY);
        if !due || !self.hooks.is_accounting() {
            return Ok(());
        }
        self.tell_overruns(false);
        self.after_event(module)
    }

    /// The same once more when training is over, however short it was. There is nothing left to disable.
    pub(crate) fn judge_budgets_at_the_end(&mut self) {
        if self.hooks.has_budgets() && self.hooks.is_accounting() {
            self.tell_overruns(true);
        }
    }

    fn tell_overruns(&mut self, trained: bool) {
        for overrun in self.hooks.check_budgets(self.spent().steps, trained) {
            let disabled = overrun.disabled.then(|| overrun.hook.clone());
            let notice = RunNotice::OverBudget(overrun);
            self.journal.disabled.extend(disabled.map(|hook| (hook, notice.to_string())));
            self.note(notice);
        }
    }

    /// Does something that a hook asked for at an event, and charges it for the time, but for what other hooks did meanwhile.
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

    /// When something begins that a hook is charged for, where account is kept.
    pub(crate) fn begun(&self) -> Option<Duration> {
        self.hooks.is_accounting().then(|| self.shared.clock.elapsed())
    }

    /// Charges a hook for what began then, in which no other hook had a part.
    pub(crate) fn charge_since(&mut self, began: Option<Duration>, hook: &str, event: Event) {
        if let Some(began) = began {
            self.hooks.charge(hook, event, self.shared.clock.elapsed().saturating_sub(began));
        }
    }
}
