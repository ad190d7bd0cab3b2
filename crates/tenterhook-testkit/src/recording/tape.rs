//! What was called, in order, and what is made to happen in a call.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Deserialize;
use tenterhook::BoxError;

/// One call: on whom, of what, and where the batch came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// `hook:<name>`, `module`, `data` or `strategy`.
    pub source: String,
    /// The method.
    pub place: &'static str,
    /// Index of the batch and of its loader.
    pub batch: Option<(u64, usize)>,
}

/// What is made to happen in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Happening {
    /// It returns an error.
    Error,
    /// It panics.
    Panic,
    /// It asks the run to stop.
    Stop,
    /// A training step yields no loss.
    Skip,
    /// It asks the epoch to end.
    EndEpoch,
}

/// Shared by everything that records.
#[derive(Clone, Default)]
pub struct Tape(Arc<Mutex<Recording>>);

#[derive(Default)]
struct Recording {
    calls: Vec<Call>,
    counts: BTreeMap<(String, &'static str), u64>,
    injections: Vec<Injection>,
}

struct Injection {
    source: String,
    place: String,
    /// Only in this call, counted from 1; otherwise in every call.
    nth: Option<u64>,
    what: Happening,
}

impl Tape {
    /// From now on this place of this source returns an error.
    pub fn fails_at(&self, source: &str, place: &str) {
        self.inject(source, place, None, Happening::Error);
    }

    /// From now on this place of this source panics.
    pub fn panics_at(&self, source: &str, place: &str) {
        self.inject(source, place, None, Happening::Panic);
    }

    /// Makes something happen in the nth call of this place of this source, counted from 1, or in every call.
    pub fn inject(&self, source: &str, place: &str, nth: Option<u64>, what: Happening) {
        let injection = Injection { source: source.to_owned(), place: place.to_owned(), nth, what };
        self.recording().injections.push(injection);
    }

    /// Records a call, and fails in it if that was asked for.
    ///
    /// # Panics
    /// If that was asked for.
    pub fn note(&self, source: &str, place: &'static str) -> Result<(), BoxError> {
        raised(self.record(source, place, None), source, place).map(|_| ())
    }

    /// Records a call, and returns what is made to happen in it.
    pub(super) fn record(
        &self,
        source: &str,
        place: &'static str,
        batch: Option<(u64, usize)>,
    ) -> Option<Happening> {
        let mut recording = self.recording();
        recording.calls.push(Call { source: source.to_owned(), place, batch });
        let count = recording.counts.entry((source.to_owned(), place)).or_default();
        *count += 1;
        let count = *count;
        let due = |injection: &&Injection| {
            (&*injection.source, &*injection.place) == (source, place)
                && injection.nth.is_none_or(|nth| nth == count)
        };
        recording.injections.iter().find(due).map(|injection| injection.what)
    }

    /// Every call, in order.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.recording().calls.clone()
    }

    /// Source and place of every call, in order.
    #[must_use]
    pub fn rows(&self) -> Vec<(String, &'static str)> {
        self.calls().into_iter().map(|call| (call.source, call.place)).collect()
    }

    /// What one source was called for, in order.
    #[must_use]
    pub fn places(&self, source: &str) -> Vec<&'static str> {
        let calls = self.calls().into_iter();
        calls.filter(|call| call.source == source).map(|call| call.place).collect()
    }

    /// Who was called for this, in order.
    #[must_use]
    pub fn sources(&self, place: &str) -> Vec<String> {
        self.calls().into_iter().filter(|call| call.place == place).map(|call| call.source).collect()
    }

    fn recording(&self) -> MutexGuard<'_, Recording> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Fails or panics where that is what happens.
pub(super) fn raised(
    what: Option<Happening>,
    source: &str,
    place: &str,
) -> Result<Option<Happening>, BoxError> {
    assert!(what != Some(Happening::Panic), "{source} panics in {place}");
    if what == Some(Happening::Error) {
        return Err(format!("{source} fails in {place}").into());
    }
    Ok(what)
}
