//! Applies the decisions of hooks and module after they have run, and reports failures and changes of the
//! list of hooks.

use tenterhook_core::{
    BoxError, Event, Failure, Flow, HookDecision, LrChange, Origin, Progress, Request, RosterChange,
    RosterRequest, Status, Tier,
};

use super::{Callee, Loop};
use crate::checkpoint::PendingSave;
use crate::journal::RunNotice;
use crate::module::Module;
use crate::run::JournalEvent;

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
                let began = self.begun();
                self.apply_decision(module, &decided)?;
                self.charge_since(began, &decided.hook, decided.event);
            }
        }
        if !self.shared.messages.borrow().is_empty() {
            for (hook, text) in self.shared.messages.take() {
                self.note(RunNotice::Said { hook, text });
            }
        }
        if !self.shared.console_lines.borrow().is_empty() {
            for (hook, line) in self.shared.console_lines.take() {
                let began = self.begun();
                self.journal.notices.readers.tell(&RunNotice::Printed(line));
                self.charge_since(began, &hook, self.hooks.last_event());
            }
        }
        if self.hooks.has_reports() || !self.journal.disabled.is_empty() || !self.journal.pending.is_empty() {
            return self.report_changes_of_hooks(module);
        }
        Ok(())
    }

    /// Delivers the notices since the last event that a hook received.
    #[inline]
    pub(crate) fn deliver_notices(&mut self, module: &mut M) -> Result<(), Failure> {
        if self.journal.pending.is_empty() { Ok(()) } else { self.report_changes_of_hooks(module) }
    }

    /// Records failures and changes of the list of hooks, then delivers `on_hook_disabled` and `on_notice`.
    #[cold]
    fn report_changes_of_hooks(&mut self, module: &mut M) -> Result<(), Failure> {
        self.record_roster_changes();
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

    /// Records failures of hooks and changes of the list of hooks.
    pub(crate) fn record_roster_changes(&mut self) {
        for mut contained in self.hooks.take_contained() {
            contained.afterwards = self.state.status == Status::Error;
            if let (Origin::Hook(hook), true) = (&contained.failure.origin, contained.disabled) {
                self.journal.disabled.push((hook.clone(), contained.failure.to_string()));
            }
            self.note(RunNotice::Contained(contained));
        }
        for refused in self.hooks.take_refused_changes() {
            self.note(RunNotice::Refused(refused));
        }
        for changed in self.hooks.take_roster_changes() {
            // Hooks that were disabled after a failure are listed above.
            if let RosterChange { by: Some(by), change: RosterRequest::Disable(hook) } = &changed {
                self.journal.disabled.push((hook.clone(), format!("requested by `{by}`")));
            }
            self.note(RunNotice::Changed(changed));
        }
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
                if !self.ending.closing {
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

    /// Records a decision. Two kinds are too frequent for notices: swaps of weights are only written to
    /// `events.jsonl`, and saves of checkpoint hooks have separate entries there.
    fn note_decision(&mut self, decided: &HookDecision) {
        let (flows, requests) = (decided.decision.flows(), decided.decision.requests());
        let only = |wanted: fn(&Request) -> bool| flows.is_empty() && requests.iter().all(wanted);
        let notice = || RunNotice::Decided { step: self.state.progress.step, decided: decided.clone() };
        if only(|request| matches!(request, Request::SwapWeights(_) | Request::SwapBack)) {
            self.record_event(JournalEvent::from(&notice()));
        } else if !(only(|request| matches!(request, Request::Save(_)))
            && self.hooks.tier(&decided.hook) == Some(Tier::Checkpoint))
        {
            self.note(notice());
        }
    }

    /// Applies a decision of a hook or the module.
    pub(super) fn apply_decision(&mut self, module: &mut M, decided: &HookDecision) -> Result<(), Failure> {
        let (flows, requests) = decided.decision.clone().into_parts();
        for flow in flows {
            self.request_flow(&decided.hook, flow);
        }
        self.note_decision(decided);
        for request in requests {
            match request {
                Request::Validate => self.flow.validate = true,
                // Saved at the next resume point, after all other decisions are applied.
                Request::Save(save) => {
                    let (by, event) = (decided.hook.clone(), decided.event);
                    match self.checked_save(&save) {
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
                    if let Some(error) = self.wrong_lr(optimizer, change) {
                        self.refuse_decision(decided, error.into())?;
                        continue;
                    }
                    let which = optimizer.map_or(0..self.update.optimization.optimizers, |one| one..one + 1);
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

    /// Requests a flow, which takes effect at the next safe point of the loop.
    fn request_flow(&mut self, by: &str, flow: Flow) {
        match flow {
            Flow::Continue => {}
            Flow::SkipUpdate => self.flow.skip_update = true,
            Flow::SkipBatch => self.flow.skip_batch = true,
            Flow::EndEpoch => self.flow.end_epoch = true,
            Flow::Stop { reason } => {
                self.flow.stop.get_or_insert((by.to_owned(), reason));
            }
            unknown => debug_assert!(false, "the loop does not know {unknown:?}"),
        }
    }

    /// The problem with a change of a learning rate, if any.
    fn wrong_lr(&self, optimizer: Option<usize>, change: LrChange) -> Option<String> {
        let (LrChange::Set(number) | LrChange::Scale(number)) = change;
        let optimizers = self.update.optimization.optimizers;
        if !(number.is_finite() && number >= 0.0) {
            return Some(format!(
                "a learning rate cannot be changed by {change:?}: it must be a number of 0 or more"
            ));
        }
        let missing = optimizer.filter(|optimizer| *optimizer >= optimizers)?;
        Some(format!("there is no optimizer {missing}; there are {optimizers}, counted from 0"))
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
