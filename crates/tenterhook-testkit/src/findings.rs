//! What came of the events: replies, decisions, failures, and what was asked of the roster.

use tenterhook_core::context::CheckpointEntries;
use tenterhook_core::{
    Blackboard, Decision, Event, Failure, Flow, HookDecision, HookInfo, Metrics, Origin, RosterError,
    RosterRequest,
};

use crate::rig::Rig;

#[derive(Default)]
pub(crate) struct Findings {
    pub(crate) replies: Vec<Reply>,
    pub(crate) failures: Vec<Failed>,
    pub(crate) refused: Vec<RosterError>,
    pub(crate) others: Vec<HookDecision>,
}

/// How the hook under test answered one event.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The event.
    pub event: Event,
    /// Whether it was delivered to the hook at all: it wants it and is enabled.
    pub delivered: bool,
    /// What it decided.
    pub decision: Decision,
    /// The text of its failure, if it failed.
    pub failure: Option<String>,
}

/// What a failure led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It was reported and the hook stayed.
    Warned,
    /// It was reported and the hook disabled.
    Disabled,
    /// It would have ended the run.
    Aborted,
}

/// A failure, and what it led to.
#[derive(Debug)]
pub struct Failed {
    /// The failure: who, where, when and what.
    pub failure: Failure,
    /// What it led to.
    pub effect: Effect,
}

/// What came of the events.
impl<H> Rig<H> {
    /// The hook's answers, one for every event delivered so far.
    #[must_use]
    pub fn replies(&self) -> &[Reply] {
        &self.findings.replies
    }

    /// What the hook decided, and at which event, leaving out where it said nothing.
    #[must_use]
    pub fn decisions(&self) -> Vec<(Event, Decision)> {
        let replies = self.findings.replies.iter().filter(|reply| !reply.decision.is_continue());
        replies.map(|reply| (reply.event, reply.decision.clone())).collect()
    }

    /// What the hook decided at one event.
    #[must_use]
    pub fn decisions_at(&self, event: Event) -> Vec<Decision> {
        let decisions = self.decisions().into_iter().filter(|(at, _)| *at == event);
        decisions.map(|(_, decision)| decision).collect()
    }

    /// The reason for which the hook first asked to stop, if it did.
    #[must_use]
    pub fn stop_reason(&self) -> Option<&str> {
        self.findings.replies.iter().find_map(|reply| match reply.decision.flow() {
            Flow::Stop { reason } => Some(reason.as_str()),
            _ => None,
        })
    }

    /// What the hooks beside the one under test decided.
    #[must_use]
    pub fn others_decisions(&self) -> &[HookDecision] {
        &self.findings.others
    }

    /// Every failure so far, panics included, of the hook and of those beside it.
    #[must_use]
    pub fn failures(&self) -> &[Failed] {
        &self.findings.failures
    }

    /// Whether the hook still receives events: nobody disabled or removed it.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.hooks().iter().any(|hook| hook.name == self.name && hook.enabled)
    }

    /// What the hook asked of the roster. It has been carried out, or stands in [`refused`](Rig::refused).
    #[must_use]
    pub fn requests(&self) -> Vec<RosterRequest> {
        self.probed.notes().requests.clone()
    }

    /// What was asked of the roster and could not be carried out.
    #[must_use]
    pub fn refused(&self) -> &[RosterError] {
        &self.findings.refused
    }

    /// The registered hooks.
    #[must_use]
    pub fn hooks(&self) -> Vec<HookInfo> {
        self.runner.list()
    }

    /// The metrics: what was logged, and a place to log what the hook shall find there.
    ///
    /// A number that is aggregated over an epoch is visible from that epoch's end on, as in a run.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.world.shared.metrics
    }

    /// The board: what was put there, and a place to put what the hook shall find there.
    #[must_use]
    pub fn board(&self) -> &Blackboard {
        &self.world.shared.board
    }

    /// What hooks said to people so far: who, and what.
    #[must_use]
    pub fn said(&self) -> Vec<(String, String)> {
        self.world.shared.messages.borrow().clone()
    }

    /// The lines that hooks printed on the console so far.
    #[must_use]
    pub fn printed(&self) -> Vec<String> {
        self.world.shared.console_lines.borrow().iter().map(|(_, line)| line.clone()).collect()
    }

    /// The free entries of the made-up checkpoint, which `on_save_checkpoint` and `on_load_checkpoint` see.
    #[must_use]
    pub fn entries(&self) -> &CheckpointEntries {
        &self.world.checkpoint.entries
    }

    /// The learning rates in force, by optimizer and group. Requests to change them have been carried out.
    #[must_use]
    pub fn learning_rates(&self) -> Vec<f64> {
        self.world.model.learning_rates()
    }

    pub(crate) fn note_contained(&mut self) {
        for contained in self.runner.take_contained() {
            let effect = if contained.disabled { Effect::Disabled } else { Effect::Warned };
            self.findings.failures.push(Failed { failure: contained.failure, effect });
        }
    }

    pub(crate) fn note_abort(&mut self, failure: Failure) {
        self.note_contained();
        self.findings.failures.push(Failed { failure, effect: Effect::Aborted });
    }

    /// The text of the hook's own failure among those noted from here on.
    pub(crate) fn own_failure_since(&self, noted: usize) -> Option<String> {
        let own = Origin::Hook(self.name.clone());
        let mut failures = self.findings.failures[noted..].iter().map(|failed| &failed.failure);
        failures.find(|failure| failure.origin == own).map(ToString::to_string)
    }
}
