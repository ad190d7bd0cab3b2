//! The recorded calls in order, and the actions that a test injects into them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Deserialize;
use tenterhook::BoxError;

/// A recorded call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedCall {
    /// `hook:<name>`, `module`, `data` or `strategy`.
    pub source: String,
    /// The name of the method.
    pub place: &'static str,
    /// Index of the batch and of its loader.
    pub batch: Option<(u64, usize)>,
}

/// An action that a test injects into a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InjectedAction {
    /// The call returns an error.
    Error,
    /// The call panics.
    Panic,
    /// The call requests that training stops.
    Stop,
    /// The training step returns no loss.
    Skip,
    /// The call requests that the epoch ends.
    EndEpoch,
}

/// The recorded calls and the injections; clones share them.
#[derive(Clone, Default)]
pub struct CallLog(Arc<Mutex<Recording>>);

#[derive(Default)]
struct Recording {
    calls: Vec<RecordedCall>,
    counts: BTreeMap<(String, &'static str), u64>,
    injections: Vec<Injection>,
}

struct Injection {
    source: String,
    place: String,
    /// The number of the call, counted from 1; `None` for every call.
    nth: Option<u64>,
    action: InjectedAction,
}

impl CallLog {
    /// Makes all further calls of this method of this source return an error.
    pub fn fails_at(&self, source: &str, place: &str) {
        self.inject(source, place, None, InjectedAction::Error);
    }

    /// Makes all further calls of this method of this source panic.
    pub fn panics_at(&self, source: &str, place: &str) {
        self.inject(source, place, None, InjectedAction::Panic);
    }

    /// Injects an action into the nth call of this method of this source, counted from 1, or into every call.
    pub fn inject(&self, source: &str, place: &str, nth: Option<u64>, action: InjectedAction) {
        let injection = Injection { source: source.to_owned(), place: place.to_owned(), nth, action };
        self.recording().injections.push(injection);
    }

    /// Records a call. Returns the error that is injected into it.
    ///
    /// # Panics
    /// If a panic is injected.
    pub fn note(&self, source: &str, place: &'static str) -> Result<(), BoxError> {
        raise(self.record(source, place, None), source, place).map(|_| ())
    }

    /// Records a call, and returns the action that is injected into it.
    pub(super) fn record(
        &self,
        source: &str,
        place: &'static str,
        batch: Option<(u64, usize)>,
    ) -> Option<InjectedAction> {
        let mut recording = self.recording();
        recording.calls.push(RecordedCall { source: source.to_owned(), place, batch });
        let count = recording.counts.entry((source.to_owned(), place)).or_default();
        *count += 1;
        let count = *count;
        let due = |injection: &&Injection| {
            (&*injection.source, &*injection.place) == (source, place)
                && injection.nth.is_none_or(|nth| nth == count)
        };
        recording.injections.iter().find(due).map(|injection| injection.action)
    }

    /// All calls in order.
    #[must_use]
    pub fn calls(&self) -> Vec<RecordedCall> {
        self.recording().calls.clone()
    }

    /// Source and method of all calls in order.
    #[must_use]
    pub fn rows(&self) -> Vec<(String, &'static str)> {
        self.calls().into_iter().map(|call| (call.source, call.place)).collect()
    }

    /// The methods called on one source, in order.
    #[must_use]
    pub fn places(&self, source: &str) -> Vec<&'static str> {
        let calls = self.calls().into_iter();
        calls.filter(|call| call.source == source).map(|call| call.place).collect()
    }

    /// The sources on which this method was called, in order.
    #[must_use]
    pub fn sources(&self, place: &str) -> Vec<String> {
        self.calls().into_iter().filter(|call| call.place == place).map(|call| call.source).collect()
    }

    fn recording(&self) -> MutexGuard<'_, Recording> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Raises an injected error or panic.
pub(super) fn raise(
    action: Option<InjectedAction>,
    source: &str,
    place: &str,
) -> Result<Option<InjectedAction>, BoxError> {
    assert!(action != Some(InjectedAction::Panic), "{source} panics in {place}");
    if action == Some(InjectedAction::Error) {
        return Err(format!("{source} fails in {place}").into());
    }
    Ok(action)
}
