//! A controller that records every event.

use tenterhook::hook::{EventResult, event_result};
use tenterhook::{BoxError, Decision, Event, EventRef, Hook, HookResult, HookSpec, Policy, State, Tier};

use super::tape::{Happening, Tape, raised};

/// A controller that records every event it gets, and decides what the tape asks for.
pub struct RecordingHook {
    name: String,
    source: String,
    tape: Tape,
    policy: Policy,
    tier: Tier,
}

impl RecordingHook {
    /// A hook of this name, whose errors abort the run.
    #[must_use]
    pub fn new(name: &str, tape: &Tape) -> RecordingHook {
        let source = format!("hook:{name}");
        let (policy, tier) = (Policy::ABORT, Tier::User);
        RecordingHook { name: name.to_owned(), source, tape: tape.clone(), policy, tier }
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
        let happening = self.tape.record(&self.source, place, batch);
        Ok(match raised(happening, &self.source, place)? {
            Some(Happening::Stop) => Decision::stop("the tape says so"),
            Some(Happening::EndEpoch) => Decision::end_epoch(),
            _ => Decision::CONTINUE,
        })
    }
}

impl Hook for RecordingHook {
    fn spec(&self) -> HookSpec {
        let spec = HookSpec::controller(&self.name).policy(self.policy).tier(self.tier);
        // Notices follow other events, and are no part of the order that scenarios record.
        Event::ALL.iter().copied().filter(|event| *event != Event::Notice).fold(spec, HookSpec::wants)
    }

    fn deliver(&mut self, event: EventRef<'_>) -> EventResult {
        let decided = self.record(event);
        // Where nothing can be decided, a decision of the tape has no effect.
        if event.event().steers() { event_result(decided) } else { event_result(decided.map(|_| ())) }
    }

    fn state_dict(&self) -> HookResult<State> {
        self.tape.note(&self.source, "state_dict")?;
        Ok(State::of(1, &self.name)?)
    }

    fn load_state_dict(&mut self, _: &State) -> HookResult {
        self.tape.note(&self.source, "load_state_dict")
    }
}
