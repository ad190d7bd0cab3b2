//! What was called, in order, and what is to be made to go wrong in it.

use std::sync::{Arc, Mutex, PoisonError};

use tenterhook::hook::{Reply, reply};
use tenterhook::{BoxError, Event, EventRef, Hook, HookResult, HookSpec, Policy, State, Tier};

/// Shared by everything that records. A source is `hook:<name>`, `module`, `data` or `strategy`.
#[derive(Clone, Default)]
pub struct Tape(Arc<Mutex<Recording>>);

#[derive(Default)]
struct Recording {
    rows: Vec<(String, &'static str)>,
    faults: Vec<Fault>,
}

struct Fault {
    source: String,
    place: String,
    panics: bool,
}

impl Tape {
    /// From now on this place of this source returns an error.
    pub fn fails_at(&self, source: &str, place: &str) {
        self.goes_wrong(source, place, false);
    }

    /// From now on this place of this source panics.
    pub fn panics_at(&self, source: &str, place: &str) {
        self.goes_wrong(source, place, true);
    }

    fn goes_wrong(&self, source: &str, place: &str, panics: bool) {
        let fault = Fault { source: source.to_owned(), place: place.to_owned(), panics };
        self.recording().faults.push(fault);
    }

    /// Notes a call, and goes wrong in it if that was asked for.
    pub fn note(&self, source: &str, place: &'static str) -> Result<(), BoxError> {
        let mut recording = self.recording();
        recording.rows.push((source.to_owned(), place));
        let fault = recording.faults.iter().find(|fault| fault.source == source && fault.place == place);
        let Some(panics) = fault.map(|fault| fault.panics) else { return Ok(()) };
        drop(recording);
        assert!(!panics, "{source} panics in {place}");
        Err(format!("{source} fails in {place}").into())
    }

    pub fn rows(&self) -> Vec<(String, &'static str)> {
        self.recording().rows.clone()
    }

    /// What one source was called for, in order.
    pub fn places(&self, source: &str) -> Vec<&'static str> {
        let rows = self.rows();
        rows.into_iter().filter(|(of, _)| of == source).map(|(_, place)| place).collect()
    }

    /// Who was called for this, in order.
    pub fn sources(&self, place: &str) -> Vec<String> {
        let rows = self.rows();
        rows.into_iter().filter(|(_, at)| *at == place).map(|(source, _)| source).collect()
    }

    fn recording(&self) -> std::sync::MutexGuard<'_, Recording> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What hooks saw, for the test to look at afterwards.
pub struct Seen<T>(Arc<Mutex<Vec<T>>>);

impl<T> Seen<T> {
    pub fn new() -> Seen<T> {
        Seen(Arc::default())
    }

    pub fn push(&self, value: T) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(value);
    }

    pub fn take(&self) -> Vec<T> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<T> Clone for Seen<T> {
    fn clone(&self) -> Seen<T> {
        Seen(self.0.clone())
    }
}

/// A hook that records every event.
pub struct Recorder {
    name: String,
    source: String,
    tape: Tape,
    policy: Policy,
    tier: Tier,
}

impl Recorder {
    pub fn new(name: &str, tape: &Tape) -> Recorder {
        let source = format!("hook:{name}");
        Recorder { name: name.into(), source, tape: tape.clone(), policy: Policy::ABORT, tier: Tier::User }
    }

    pub fn with_policy(self, policy: Policy) -> Recorder {
        Recorder { policy, ..self }
    }

    pub fn with_tier(self, tier: Tier) -> Recorder {
        Recorder { tier, ..self }
    }
}

impl Hook for Recorder {
    fn spec(&self) -> HookSpec {
        let all = Event::ALL.iter().copied();
        let spec = HookSpec::controller(&self.name).policy(self.policy).tier(self.tier);
        all.fold(spec, HookSpec::wants)
    }
    fn deliver(&mut self, event: EventRef<'_>) -> Reply {
        reply(self.tape.note(&self.source, event.event().handler()))
    }
    fn state_dict(&self) -> HookResult<State> {
        self.tape.note(&self.source, "state_dict")?;
        Ok(State::of(1, &self.name)?)
    }
    fn load_state_dict(&mut self, _: &State) -> HookResult {
        self.tape.note(&self.source, "load_state_dict")
    }
}
