//! A controller that records every event.

use tenterhook::{
    BoxError, Context, Decision, Event, Events, Hook, HookResult, Policy, State, Tier, for_each_event,
};

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

    fn record<C: Context>(&self, cx: &C) -> Result<Decision, BoxError> {
        let (place, batch) = (C::EVENT.handler(), cx.batch().map(|batch| (batch.index, batch.loader_index)));
        let happening = self.tape.record(&self.source, place, batch);
        Ok(match raised(happening, &self.source, place)? {
            Some(Happening::Stop) => Decision::stop("the tape says so"),
            Some(Happening::EndEpoch) => Decision::end_epoch(),
            _ => Decision::CONTINUE,
        })
    }
}

macro_rules! answer {
    (steer $record:expr) => {
        $record
    };
    (watch $record:expr) => {
        $record.map(|_| ())
    };
}

macro_rules! returned {
    (steer) => { HookResult<Decision> };
    (watch) => { HookResult };
}

macro_rules! record_all {
    ($($(#[$doc:meta])* $mode:ident $handler:ident $Event:ident;)*) => {
        impl Hook for RecordingHook {
            type Verdict = Decision;

            fn __events(&self) -> Events {
                Events::of(Event::ALL)
            }
            fn name(&self) -> String {
                self.name.clone()
            }
            fn policy(&self) -> Policy {
                self.policy
            }
            fn tier(&self) -> Tier {
                self.tier
            }
            fn state_dict(&self) -> HookResult<State> {
                self.tape.note(&self.source, "state_dict")?;
                Ok(State::of(1, &self.name)?)
            }
            fn load_state_dict(&mut self, _: &State) -> HookResult {
                self.tape.note(&self.source, "load_state_dict")
            }
            $(
                fn $handler(&mut self, cx: &tenterhook::$Event<'_>) -> returned!($mode) {
                    answer!($mode self.record(cx))
                }
            )*
        }
    };
}

for_each_event!(record_all);
