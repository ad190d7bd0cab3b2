//! A controller that records every event it gets, and does what the scenario asks for.

use tenterhook::hook::{Reply, reply};
use tenterhook::{BoxError, Decision, Event, EventRef, Hook, HookResult, HookSpec, State};

use super::Happening;
use super::tape::{Tape, injected};

pub(crate) struct RecordingHook {
    name: String,
    source: String,
    tape: Tape,
}

impl RecordingHook {
    pub(super) fn new(name: &str, tape: Tape) -> RecordingHook {
        RecordingHook { name: name.to_owned(), source: format!("hook:{name}"), tape }
    }

    fn note(&self, event: &'static str, batch: Option<(u64, usize)>) -> Result<Decision, BoxError> {
        match self.tape.note(&self.source, event, batch) {
            None | Some(Happening::Skip) => Ok(Decision::CONTINUE),
            Some(Happening::Stop) => Ok(Decision::stop("the scenario says so")),
            Some(Happening::EndEpoch) => Ok(Decision::end_epoch()),
            Some(Happening::Error) => Err(injected(&self.source, event)),
        }
    }
}

impl Hook for RecordingHook {
    fn spec(&self) -> HookSpec {
        Event::ALL.iter().copied().fold(HookSpec::controller(&self.name), HookSpec::wants)
    }

    fn deliver(&mut self, event: EventRef<'_>) -> Reply {
        let batch = event.batch().map(|batch| (batch.index, batch.loader_index));
        let decided = self.note(event.event().handler(), batch);
        // Where nothing can be decided, the scenario's decision has no effect.
        if event.event().steers() { reply(decided) } else { reply(decided.map(|_| ())) }
    }

    fn state_dict(&self) -> HookResult<State> {
        self.note("state_dict", None)?;
        Ok(State::empty())
    }

    fn load_state_dict(&mut self, _: &State) -> HookResult {
        self.note("load_state_dict", None)?;
        Ok(())
    }
}
