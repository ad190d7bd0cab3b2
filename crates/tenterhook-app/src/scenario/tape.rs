//! What happened, row by row, and what is to be made to happen.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use super::{Happening, Injection};

/// One call: on whom, of what, and where the batch came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) source: String,
    pub(crate) event: &'static str,
    /// Index of the batch and of its loader.
    batch: Option<(u64, usize)>,
}

impl Row {
    /// Only steps and the starts and ends of batches carry the batch index, and the loader's only when not 0.
    pub(crate) fn to_json(&self) -> Value {
        let steps = ["training_step", "validation_step", "test_step", "predict_step"];
        let about_a_batch = self.event.ends_with("_batch_start") || self.event.ends_with("_batch_end");
        match self.batch.filter(|_| about_a_batch || steps.contains(&self.event)) {
            None => json!([self.source, self.event]),
            Some((index, 0)) => json!([self.source, self.event, index]),
            Some((index, loader)) => json!([self.source, self.event, index, loader]),
        }
    }
}

/// Shared by everything that records.
#[derive(Clone, Default)]
pub(crate) struct Tape(Arc<Mutex<Recording>>);

#[derive(Default)]
struct Recording {
    rows: Vec<Row>,
    calls: BTreeMap<(String, &'static str), u64>,
    injections: Vec<Injection>,
}

impl Tape {
    pub(super) fn new(injections: Vec<Injection>) -> Tape {
        Tape(Arc::new(Mutex::new(Recording { injections, ..Recording::default() })))
    }

    /// Notes a call, and says what is to happen in it.
    pub(super) fn note(
        &self,
        source: &str,
        event: &'static str,
        batch: Option<(u64, usize)>,
    ) -> Option<Happening> {
        let mut recording = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        recording.rows.push(Row { source: source.to_owned(), event, batch });
        let calls = recording.calls.entry((source.to_owned(), event)).or_default();
        *calls += 1;
        let nth = *calls;
        let due = |injection: &&Injection| {
            injection.source == source && injection.at == event && injection.nth == nth
        };
        recording.injections.iter().find(due).map(|injection| injection.what)
    }

    pub(crate) fn rows(&self) -> Vec<Row> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).rows.clone()
    }
}

/// The error that an injection raises.
pub(super) fn injected(source: &str, event: &str) -> tenterhook::BoxError {
    format!("the scenario lets {source} fail in {event}").into()
}
