//! What the loop does for the accounts of hooks: says how long it all took, judges budgets, and charges a hook for
//! what is done on its behalf.

use std::time::Duration;

use tenterhook_core::{Event, Failure};

use crate::module::Module;
use crate::notice::Notice;
use crate::run::{HookCosts, SentByHook};
use crate::running::Running;

/// So many training batches lie between two looks at budgets.
const JUDGED_EVERY: u64 = 100;

/// Since when this call is accounted for, and how long earlier calls of the same trainer took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Period {
    began: Duration,
    before: Duration,
}

impl<M: Module> Running<M> {
    /// Begins to keep account, if that is wanted; otherwise nothing here looks at the clock.
    pub(crate) fn open_accounts(&mut self, on: bool, before: Duration) {
        self.hooks.account(on);
        if on {
            self.period = Period { began: self.shared.clock.elapsed(), before };
        } else if self.hooks.has_budgets() && !self.shared.run.rehearsal {
            let text = "hooks have budgets, but `account_hooks` is off, so nobody knows what they take";
            self.note(Notice::Said { hook: "trainer".into(), text: text.into() });
        }
    }

    /// How long the calls of this trainer took so far, where account is kept.
    pub(crate) fn spent(&self) -> Duration {
        if !self.hooks.keeps_account() {
            return self.period.before;
        }
        self.period.before + self.shared.clock.elapsed().saturating_sub(self.period.began)
    }

    /// What became of what hooks handed to worker threads.
    pub(crate) fn sinks(&self) -> Vec<SentByHook> {
        self.hooks.sent().into_iter().map(|(hook, sent)| SentByHook::new(hook, sent)).collect()
    }

    /// What hooks have cost so far; nothing where no account is kept.
    pub(crate) fn hook_costs(&self) -> HookCosts {
        if self.hooks.keeps_account() {
            HookCosts::of(&self.hooks.costs(), self.spent())
        } else {
            HookCosts::default()
        }
    }

    /// Looks from time to time whether hooks have kept to their budgets.
    #[inline]
    pub(crate) fn judge_budgets(&mut self, module: &mut M) -> Result<(), Failure> {
        let due = self.hooks.has_budgets() && self.progress.total_batches.is_multiple_of(JUDGED_EVERY);
        if !due || !self.hooks.keeps_account() {
            return Ok(());
        }
        for overrun in self.hooks.judge_budgets(self.spent()) {
            let disabled = overrun.disabled.then(|| overrun.hook.clone());
            let notice = Notice::OverBudget(overrun);
            self.disabled.extend(disabled.map(|hook| (hook, notice.to_string())));
            self.note(notice);
        }
        self.after_event(module)
    }

    /// Does something that the hook asked for whose turn it is, and charges it for the time.
    pub(crate) fn charging<T>(&mut self, event: Event, work: impl FnOnce(&mut Running<M>) -> T) -> T {
        let hook = self.hooks.current(&self.shared).filter(|_| self.hooks.keeps_account());
        let Some(hook) = hook.map(str::to_owned) else { return work(self) };
        let began = self.shared.clock.elapsed();
        let done = work(self);
        self.hooks.charge(&hook, event, self.shared.clock.elapsed().saturating_sub(began));
        done
    }
}
