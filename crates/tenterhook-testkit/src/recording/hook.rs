//! A hook that records every event.

use tenterhook::hook::{EventResult, event_result};
use tenterhook::{BoxError, Decision, Event, EventRef, Hook, HookResult, HookSpec, Policy, State, Tier};

use super::call_log::{CallLog, InjectedAction, raise};

/// A controller that records every event, and returns the decisions that a test injects.
pub struct RecordingHook {
    name: String,
    source: String,
    call_log: CallLog,
    policy: Policy,
    tier: Tier,
}

impl RecordingHook {
    /// A hook of this name, with the policy to abort the run on errors.
    #[must_use]
    pub fn new(name: &str, call_log: &CallLog) -> RecordingHook {
        let source = format!("hook:{name}");
        let (policy, tier) = (Policy::ABORT, Tier::User);
        RecordingHook { name: name.to_owned(), source, call_log: call_log.clone(), policy, tier }
    }

    /// With another policy.
    #[must_use]
    pub fn with_policy(self, policy: Policy) -> RecordingHook {
        RecordingHook { policy, ..self }
    }

    /// In another tier.
    #[must_use]
    pub fn with_tier(self, tier: Tier) -> RecordingHook {
        RecordingHook { tier, ..self }
    }

    fn record(&self, event: EventRef<'_>) -> Result<Decision, BoxError> {
        let batch = event.batch().map(|batch| (batch.index, batch.loader_index));
        let place = event.event().handler();
        let injected = self.call_log.record(&self.source, place, batch);
        Ok(match raise(injected, &self.source, place)? {
            Some(InjectedAction::Stop) => Decision::stop("injected by the test"),
            Some(InjectedAction::EndEpoch) => Decision::end_epoch(),
            _ => Decision::CONTINUE,
        })
    }
}

impl Hook for RecordingHook {
    fn spec(&self) -> HookSpec {
        let spec = HookSpec::controller(&self.name).policy(self.policy).tier(self.tier);
        // Notices are not part of the order that scenarios compare.
        Event::ALL.iter().copied().filter(|event| *event != Event::Notice).fold(spec, HookSpec::wants)
    }

    fn deliver(&mut self, event: EventRef<'_>) -> EventResult {
        let decided = self.record(event);
        // Events that take no decision ignore an injected one.
        if event.event().steers() { event_result(decided) } else { event_result(decided.map(|_| ())) }
    }

    fn state_dict(&self) -> HookResult<State> {
        self.call_log.note(&self.source, "state_dict")?;
        Ok(State::of(1, &self.name)?)
    }

    fn load_state_dict(&mut self, _: &State) -> HookResult {
        self.call_log.note(&self.source, "load_state_dict")
    }
}
