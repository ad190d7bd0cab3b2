//! A controller that records every event it gets, and does what the scenario asks for.

use tenterhook::{BoxError, Context, Decision, Events, Hook, HookResult, Policy, State};

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

    fn record<C: Context>(&self, cx: &C) -> Result<Decision, BoxError> {
        self.note(C::EVENT.handler(), cx.batch().map(|batch| (batch.index, batch.loader_index)))
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
                Events::of(tenterhook::Event::ALL)
            }

            fn name(&self) -> String {
                self.name.clone()
            }

            fn policy(&self) -> Policy {
                Policy::ABORT
            }

            fn state_dict(&self) -> HookResult<State> {
                self.note("state_dict", None)?;
                Ok(State::empty())
            }

            fn load_state_dict(&mut self, _: &State) -> HookResult {
                self.note("load_state_dict", None)?;
                Ok(())
            }

            $(
                fn $handler(&mut self, cx: &tenterhook::$Event<'_>) -> returned!($mode) {
                    answer!($mode self.record(cx))
                }
            )*
        }
    };
}

tenterhook::for_each_event!(record_all);
