//! Results of the delivered events: decisions, failures, and requests to the roster of hooks.

use tenterhook_core::context::CheckpointEntries;
use tenterhook_core::{
    Blackboard, Decision, Event, Failure, Flow, HookDecision, HookInfo, Metrics, Origin, RosterError,
    RosterRequest,
};

use crate::rig::Rig;

#[derive(Default)]
pub(crate) struct Outcomes {
    pub(crate) deliveries: Vec<Delivery>,
    pub(crate) failures: Vec<RecordedFailure>,
    pub(crate) refused: Vec<RosterError>,
    pub(crate) others: Vec<HookDecision>,
}

/// One event and the response of the hook under test.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    /// The event.
    pub event: Event,
    /// Whether the hook received the event, because it wants the event and is enabled.
    pub delivered: bool,
    /// The decision of the hook.
    pub decision: Decision,
    /// The text of the failure, if the hook failed.
    pub failure: Option<String>,
}

/// The effect of a failure, according to the policy of the hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureEffect {
    /// It was reported; the hook stays enabled.
    Warned,
    /// It was reported and the hook was disabled.
    Disabled,
    /// It would end the run.
    Aborted,
}

/// A failure and its effect.
#[derive(Debug)]
pub struct RecordedFailure {
    /// The failure: origin, place, step and error.
    pub failure: Failure,
    /// Its effect.
    pub effect: FailureEffect,
}

/// Results of the delivered events.
impl<H> Rig<H> {
    /// The deliveries so far, one for each event.
    #[must_use]
    pub fn deliveries(&self) -> &[Delivery] {
        &self.outcomes.deliveries
    }

    /// The decisions of the hook with their events, without `Decision::CONTINUE`.
    #[must_use]
    pub fn decisions(&self) -> Vec<(Event, Decision)> {
        let deliveries = self.outcomes.deliveries.iter().filter(|delivery| !delivery.decision.is_continue());
        deliveries.map(|delivery| (delivery.event, delivery.decision.clone())).collect()
    }

    /// The decisions of the hook at one event.
    #[must_use]
    pub fn decisions_at(&self, event: Event) -> Vec<Decision> {
        let decisions = self.decisions().into_iter().filter(|(at, _)| *at == event);
        decisions.map(|(_, decision)| decision).collect()
    }

    /// The reason of the hook's first request to stop.
    #[must_use]
    pub fn stop_reason(&self) -> Option<&str> {
        self.outcomes.deliveries.iter().find_map(|delivery| match delivery.decision.flow() {
            Flow::Stop { reason } => Some(reason.as_str()),
            _ => None,
        })
    }

    /// The decisions of the other hooks.
    #[must_use]
    pub fn other_decisions(&self) -> &[HookDecision] {
        &self.outcomes.others
    }

    /// All failures so far, including panics, of all hooks.
    #[must_use]
    pub fn failures(&self) -> &[RecordedFailure] {
        &self.outcomes.failures
    }

    /// Whether the hook still receives events: it was neither disabled nor removed.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.hooks().iter().any(|hook| hook.name == self.name && hook.enabled)
    }

    /// Requests of the hook to enable, disable, add or remove hooks. Those that failed are in [`refused`](Rig::refused).
    #[must_use]
    pub fn requests(&self) -> Vec<RosterRequest> {
        self.probed.notes().requests.clone()
    }

    /// Requests to enable, disable, add or remove hooks that failed.
    #[must_use]
    pub fn refused(&self) -> &[RosterError] {
        &self.outcomes.refused
    }

    /// The registered hooks.
    #[must_use]
    pub fn hooks(&self) -> Vec<HookInfo> {
        self.runner.list()
    }

    /// The metrics; a test can log some for the hook to read.
    ///
    /// A metric that is aggregated over an epoch is visible from the end of that epoch, as in a run.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.run.shared.metrics
    }

    /// The blackboard; a test can put values there for the hook to read.
    #[must_use]
    pub fn board(&self) -> &Blackboard {
        &self.run.shared.board
    }

    /// The notices of hooks so far: hook and text.
    #[must_use]
    pub fn said(&self) -> Vec<(String, String)> {
        self.run.shared.messages.borrow().clone()
    }

    /// The lines that hooks printed on the console so far.
    #[must_use]
    pub fn printed(&self) -> Vec<String> {
        self.run.shared.console_lines.borrow().iter().map(|(_, line)| line.clone()).collect()
    }

    /// The entries of the checkpoint that `on_save_checkpoint` and `on_load_checkpoint` see.
    #[must_use]
    pub fn entries(&self) -> &CheckpointEntries {
        &self.run.checkpoint.entries
    }

    /// The current learning rates, by optimizer and group. Requests to change them are applied.
    #[must_use]
    pub fn learning_rates(&self) -> Vec<f64> {
        self.run.model.learning_rates()
    }

    pub(crate) fn note_contained(&mut self) {
        for contained in self.runner.take_contained() {
            let effect = if contained.disabled { FailureEffect::Disabled } else { FailureEffect::Warned };
            self.outcomes.failures.push(RecordedFailure { failure: contained.failure, effect });
        }
    }

    pub(crate) fn note_abort(&mut self, failure: Failure) {
        self.note_contained();
        self.outcomes.failures.push(RecordedFailure { failure, effect: FailureEffect::Aborted });
    }

    /// The text of the first failure of the hook under test after the first `noted` failures.
    pub(crate) fn own_failure_since(&self, noted: usize) -> Option<String> {
        let own = Origin::Hook(self.name.clone());
        let mut failures = self.outcomes.failures[noted..].iter().map(|failed| &failed.failure);
        failures.find(|failure| failure.origin == own).map(ToString::to_string)
    }
}
