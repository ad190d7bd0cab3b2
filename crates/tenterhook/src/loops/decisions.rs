//! What happens after hooks or the module have run: their decisions are applied, and people are told the news.

use tenterhook_core::{
    BoxError, Changed, Decided, Event, Failure, Flow, Lr, Origin, Progress, Request, RosterRequest, Status,
    Tier,
};

use super::{Loop, Who};
use crate::checkpoint::PendingSave;
use crate::journal::RunNotice;
use crate::module::Module;
use crate::run::JournalEvent;

/// The name under which the module decides.
const MODULE: &str = "module";

impl<M: Module> Loop<M> {
    /// After an event has reached the hooks: carries out what they asked for, reports what failed.
    #[inline]
    pub(crate) fn after_event(&mut self, module: &mut M) -> Result<(), Failure> {
        if self.hooks.has_decisions() {
            for decided in self.hooks.take_decisions() {
                if self.ranks.several {
                    self.hold(module, decided)?;
                    continue;
                }
                let began = self.begun();
                self.absorb(module, &decided)?;
                self.charge_since(began, &decided.hook, decided.event);
            }
        }
        if !self.shared.said.borrow().is_empty() {
            for (hook, text) in self.shared.said.take() {
                self.note(RunNotice::Said { hook, text });
            }
        }
        if !self.shared.printed.borrow().is_empty() {
            for (hook, line) in self.shared.printed.take() {
                let began = self.begun();
                self.journal.notices.tell(&RunNotice::Printed(line));
                self.charge_since(began, &hook, self.hooks.delivered_last());
            }
        }
        if self.hooks.has_news() || !self.journal.disabled.is_empty() || !self.journal.unread.is_empty() {
            return self.tell_news(module);
        }
        Ok(())
    }

    /// Delivers the notices that came up since the last event that a hook wanted.
    #[inline]
    pub(crate) fn deliver_notices(&mut self, module: &mut M) -> Result<(), Failure> {
        if self.journal.unread.is_empty() { Ok(()) } else { self.tell_news(module) }
    }

    /// Tells of failures and of changes of the list of hooks, and hooks of those that were disabled.
    #[cold]
    fn tell_news(&mut self, module: &mut M) -> Result<(), Failure> {
        self.note_news();
        if self.journal.held {
            return Ok(());
        }
        self.journal.held = true;
        let told = self.tell_disabled(module).and_then(|()| self.tell_unread(module));
        self.journal.held = false;
        told
    }

    /// Delivers no `on_hook_disabled` while this runs, and then those that came up: hooks receive none between the
    /// moment at which a checkpoint takes their states and the end of the save.
    pub(crate) fn with_news_held(
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

    /// Tells people of failures and of changes of the list of hooks.
    pub(crate) fn note_news(&mut self) {
        for mut contained in self.hooks.take_contained() {
            contained.afterwards = self.state.status == Status::Error;
            if let (Origin::Hook(hook), true) = (&contained.failure.origin, contained.disabled) {
                self.journal.disabled.push((hook.clone(), contained.failure.to_string()));
            }
            self.note(RunNotice::Contained(contained));
        }
        for refused in self.hooks.take_refused() {
            self.note(RunNotice::Refused(refused));
        }
        for changed in self.hooks.take_changed() {
            // After a failure nobody asks for it.
            if let Changed { by: Some(by), change: RosterRequest::Disable(hook) } = &changed {
                self.journal.disabled.push((hook.clone(), format!("`{by}` asked for it")));
            }
            self.note(RunNotice::Changed(changed));
        }
    }

    /// Delivers notices to hooks. Notices that come up meanwhile are not delivered: a hook that says something about each
    /// would never end.
    fn tell_unread(&mut self, module: &mut M) -> Result<(), Failure> {
        for notice in std::mem::take(&mut self.journal.unread) {
            let (text, told, entry) = (notice.text.as_str(), notice.told, &notice.entry);
            emit!(self, module, Notice { kind: notice.kind(), text, told, entry });
        }
        Ok(())
    }

    /// Tells hooks which of them were disabled, and of those that are disabled in being told. Hooks that enable each other
    /// again and again wait for the next event.
    fn tell_disabled(&mut self, module: &mut M) -> Result<(), Failure> {
        for _ in 0..=self.hooks.list().len() {
            for (hook, reason) in std::mem::take(&mut self.journal.disabled) {
                if !self.ending.closing {
                    emit!(self, module, HookDisabled { hook: &hook, reason: &reason });
                }
            }
        }
        Ok(())
    }

    /// After the module has run: carries out what it asked for. What a hook failed by that the module showed something
    /// to, or let step, has waited for this.
    #[inline]
    pub(crate) fn after_module(&mut self, module: &mut M) -> Result<(), Failure> {
        if let Some(failure) = self.hooks.take_aborted() {
            return Err(failure);
        }
        if self.shared.roster.has_requests() {
            self.hooks.settle(&moment!(self, module));
            self.after_event(module)?;
        }
        if !self.flow.of_module.is_empty() {
            let event = Event::of_handler(self.caller.place).unwrap_or(Event::BeforeForward);
            for decision in std::mem::take(&mut self.flow.of_module) {
                let decided = Decided { hook: MODULE.into(), event, decision };
                if self.ranks.several {
                    self.hold(module, decided)?;
                } else {
                    self.absorb(module, &decided)?;
                }
            }
        }
        Ok(())
    }

    /// Records a decision. Two kinds come again and again: swaps of weights are part of every validation, so they are in
    /// the journal alone; each save of a checkpoint hook has an entry of its own there.
    fn note_decision(&mut self, decided: &Decided) {
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

    pub(super) fn absorb(&mut self, module: &mut M, decided: &Decided) -> Result<(), Failure> {
        let (flows, requests) = decided.decision.clone().into_parts();
        for flow in flows {
            self.signal(&decided.hook, flow);
        }
        self.note_decision(decided);
        for request in requests {
            match request {
                Request::Validate => self.flow.validate = true,
                // Not here: what else was decided must come first, and a run must be able to go on from it.
                Request::Save(save) => {
                    let (by, event) = (decided.hook.clone(), decided.event);
                    match self.checked_save(&save) {
                        Ok(save) => self.checkpointer.pending.push(PendingSave { save, by, event }),
                        Err(error) => self.refuse(decided, error)?,
                    }
                }
                Request::SwapWeights(weights) => match self.swap_weights(module, &weights)? {
                    Ok(()) => self.weights.by = Some(decided.hook.clone()),
                    Err(refused) => {
                        self.swap_back(module)?;
                        self.refuse(decided, refused)?;
                    }
                },
                Request::SwapBack => self.swap_back(module)?,
                Request::Lr { optimizer, change } => {
                    if let Some(error) = self.wrong_lr(optimizer, change) {
                        self.refuse(decided, error.into())?;
                        continue;
                    }
                    let which = optimizer.map_or(0..self.update.optimization.optimizers, |one| one..one + 1);
                    for optimizer in which {
                        self.at(Who::Module, "change_lr");
                        let changed = module.change_lr(optimizer, change);
                        self.checked(changed)?;
                    }
                }
                unknown => self.refuse(decided, format!("the trainer does not know {unknown:?}").into())?,
            }
        }
        Ok(())
    }

    /// Notes how training goes on; the loop heeds it at the next safe point.
    fn signal(&mut self, by: &str, flow: Flow) {
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

    /// Why a learning rate cannot be changed like this, if it cannot.
    fn wrong_lr(&self, optimizer: Option<usize>, change: Lr) -> Option<String> {
        let (Lr::Set(number) | Lr::Scale(number)) = change;
        let optimizers = self.update.optimization.optimizers;
        if !(number.is_finite() && number >= 0.0) {
            return Some(format!(
                "a learning rate cannot be changed by {change:?}: it must be a number of 0 or more"
            ));
        }
        let missing = optimizer.filter(|optimizer| *optimizer >= optimizers)?;
        Some(format!("there are only {optimizers} optimizers, counted from 0; {missing} is none of them"))
    }

    /// What somebody decided cannot be done. A hook's policy says what that means; of the module it is a failure.
    pub(super) fn refuse(&mut self, decided: &Decided, error: BoxError) -> Result<(), Failure> {
        let Progress { epoch, step, .. } = self.state.progress;
        if decided.hook != MODULE {
            return self.hooks.blame(&decided.hook, decided.event, (epoch, step), error);
        }
        self.at(Who::Module, decided.event.handler());
        Err(self.failed(error, false))
    }
}
