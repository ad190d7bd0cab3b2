//! Applies the decisions of hooks and module after they have run, and reports failures and changes of the
//! list of hooks.

use tenterhook_core::{BoxError, Event, Failure, HookDecision, LrChange, Origin, Progress, Request};

use super::{Callee, Loop};
use crate::accounts::{charge_since, stopwatch};
use crate::checkpoint::{PendingSave, Save};
use crate::journal::RunNotice;
use crate::module::Module;

impl<M: Module> Loop<M> {
    /// Applies the decisions of hooks after an event, and reports their messages and failures.
    #[inline]
    pub(crate) fn after_event(&mut self, module: &mut M) -> Result<(), Failure> {
        if self.hooks.has_decisions() {
            for decided in self.hooks.take_decisions() {
                if self.ranks.several {
                    self.defer_decision(module, decided)?;
                    continue;
                }
                let began = stopwatch(&*self.shared.clock, self.hooks.is_accounting());
                self.apply_decision(module, &decided)?;
                let clock = &*self.shared.clock;
                charge_since(&mut self.hooks, clock, began, &decided.hook, decided.event);
            }
        }
        if !self.shared.messages.borrow().is_empty() {
            for (hook, text) in self.shared.messages.take() {
                self.note(RunNotice::Said { hook, text });
            }
        }
        if !self.shared.console_lines.borrow().is_empty() {
            for (hook, line) in self.shared.console_lines.take() {
                let began = stopwatch(&*self.shared.clock, self.hooks.is_accounting());
                self.journal.notices.readers.tell(&RunNotice::Printed(line));
                let event = self.hooks.last_event();
                charge_since(&mut self.hooks, &*self.shared.clock, began, &hook, event);
            }
        }
        if self.hooks.has_reports() || !self.journal.disabled.is_empty() || !self.journal.pending.is_empty() {
            return self.report_changes_of_hooks(module);
        }
        Ok(())
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

    /// Checks the budgets of hooks every few batches.
    #[inline]
    pub(crate) fn check_budgets(&mut self, module: &mut M) -> Result<(), Failure> {
        if !self.accounts.checks_budgets(&self.hooks, self.state.progress.total_batches) {
            return Ok(());
        }
        self.report_overruns(false);
        self.after_event(module)
    }

    /// Reports the hooks that exceed their budgets. When training is done (`trained`), hooks are no longer disabled.
    pub(crate) fn report_overruns(&mut self, trained: bool) {
        for overrun in self.accounts.overruns(&mut self.hooks, &*self.shared.clock, trained) {
            let disabled = overrun.disabled.then(|| overrun.hook.clone());
            let notice = RunNotice::OverBudget(overrun);
            self.journal.disabled.extend(disabled.map(|hook| (hook, notice.to_string())));
            self.note(notice);
        }
    }

    /// Delivers the notices since the last event that a hook received.
    #[inline]
    pub(crate) fn deliver_notices(&mut self, module: &mut M) -> Result<(), Failure> {
        if self.journal.pending.is_empty() { Ok(()) } else { self.report_changes_of_hooks(module) }
    }

    /// Records failures and changes of the list of hooks, then delivers `on_hook_disabled` and `on_notice`.
    #[cold]
    fn report_changes_of_hooks(&mut self, module: &mut M) -> Result<(), Failure> {
        let progress = &self.state.progress;
        self.journal.note_changes_of_hooks(&mut self.hooks, &self.shared, progress, self.state.status);
        if self.journal.held {
            return Ok(());
        }
        self.journal.held = true;
        let delivered = self.deliver_disabled(module).and_then(|()| self.deliver_pending(module));
        self.journal.held = false;
        delivered
    }

    /// Delays `on_hook_disabled` and `on_notice` until `work` is done. From the moment at which a checkpoint
    /// takes the states of hooks until the end of the save, hooks receive neither.
    pub(crate) fn with_notices_delayed(
        &mut self,
        module: &mut M,
        work: impl FnOnce(&mut Loop<M>, &mut M) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let before = std::mem::replace(&mut self.journal.held, true);
        let done = work(self, module);
        self.journal.held = before;
        done?;
        self.after_event(module)
    }

    /// Delivers notices to hooks. Notices of their handlers are not delivered, because a hook that reports
    /// something on each notice would loop forever.
    fn deliver_pending(&mut self, module: &mut M) -> Result<(), Failure> {
        for notice in std::mem::take(&mut self.journal.pending) {
            let (text, shown, entry) = (notice.text.as_str(), notice.shown, &notice.entry);
            emit!(self, module, Notice { kind: notice.kind(), text, shown, entry });
        }
        Ok(())
    }

    /// Delivers `on_hook_disabled`, also for hooks that are disabled by its handlers. The rounds are bounded,
    /// because hooks may enable each other again and again.
    fn deliver_disabled(&mut self, module: &mut M) -> Result<(), Failure> {
        for _ in 0..=self.hooks.list().len() {
            for (hook, reason) in std::mem::take(&mut self.journal.disabled) {
                if !self.journal.closing {
                    emit!(self, module, HookDisabled { hook: &hook, reason: &reason });
                }
            }
        }
        Ok(())
    }

    /// Applies the module's decisions after it has run. A hook's failure within a step of the module was
    /// deferred until here.
    #[inline]
    pub(crate) fn after_module(&mut self, module: &mut M) -> Result<(), Failure> {
        if let Some(failure) = self.hooks.take_aborted() {
            return Err(failure);
        }
        if self.shared.roster.has_requests() {
            self.hooks.apply_roster_changes(&run_cx!(self, module));
            self.after_event(module)?;
        }
        if !self.flow.from_module.is_empty() {
            let event = Event::of_handler(self.calling.place).unwrap_or(Event::BeforeForward);
            for decision in std::mem::take(&mut self.flow.from_module) {
                let decided = HookDecision { hook: Origin::MODULE.into(), event, decision };
                if self.ranks.several {
                    self.defer_decision(module, decided)?;
                } else {
                    self.apply_decision(module, &decided)?;
                }
            }
        }
        Ok(())
    }

    /// Applies a decision of a hook or the module.
    pub(super) fn apply_decision(&mut self, module: &mut M, decided: &HookDecision) -> Result<(), Failure> {
        let (flows, requests) = decided.decision.clone().into_parts();
        for flow in flows {
            self.flow.request(&decided.hook, flow);
        }
        self.journal.note_decision(decided, &self.hooks, &self.shared, &self.state.progress);
        for request in requests {
            match request {
                Request::Validate => self.flow.validate = true,
                // Saved at the next resume point, after all other decisions are applied.
                Request::Save(save) => {
                    let (by, event) = (decided.hook.clone(), decided.event);
                    match Save::checked(&save, &self.shared.run, &self.hooks) {
                        Ok(save) => self.checkpointer.pending.push(PendingSave { save, by, event }),
                        Err(error) => self.refuse_decision(decided, error)?,
                    }
                }
                Request::SwapWeights(weights) => match self.swap_weights(module, &weights)? {
                    Ok(()) => self.weights.by = Some(decided.hook.clone()),
                    Err(refused) => {
                        self.swap_back(module)?;
                        self.refuse_decision(decided, refused)?;
                    }
                },
                Request::SwapBack => self.swap_back(module)?,
                Request::Lr { optimizer, change } => {
                    let optimizers = self.update.optimization.optimizers;
                    if let Some(error) = wrong_lr(optimizers, optimizer, change) {
                        self.refuse_decision(decided, error.into())?;
                        continue;
                    }
                    let which = optimizer.map_or(0..optimizers, |one| one..one + 1);
                    for optimizer in which {
                        call!(self, Module, "change_lr", module.change_lr(optimizer, change))?;
                    }
                }
                unknown => {
                    self.refuse_decision(decided, format!("the trainer does not know {unknown:?}").into())?;
                }
            }
        }
        Ok(())
    }

    /// Refuses a decision that cannot be applied. For a hook, its error policy applies; for the module, this
    /// is a failure.
    pub(super) fn refuse_decision(&mut self, decided: &HookDecision, error: BoxError) -> Result<(), Failure> {
        let Progress { epoch, step, .. } = self.state.progress;
        if decided.hook != Origin::MODULE {
            return self.hooks.fail_hook(&decided.hook, decided.event, (epoch, step), error);
        }
        self.fail(Callee::Module, decided.event.handler(), error)
    }
}

/// The problem with a change of a learning rate, if any.
fn wrong_lr(optimizers: usize, optimizer: Option<usize>, change: LrChange) -> Option<String> {
    let (LrChange::Set(number) | LrChange::Scale(number)) = change;
    if !(number.is_finite() && number >= 0.0) {
        return Some(format!(
            "a learning rate cannot be changed by {change:?}: it must be a number of 0 or more"
        ));
    }
    let missing = optimizer.filter(|optimizer| *optimizer >= optimizers)?;
    Some(format!("there is no optimizer {missing}; there are {optimizers}, counted from 0"))
}
