//! Notices for the terminal and other readers, and metrics, decisions and failures for the run directory.
//!
//! Metrics are recorded after hooks, module and strategy have received an event, so that all metrics of the
//! event are on one line. Without a recorder the cost is one branch. A line that cannot be written does not
//! stop training: it is reported once and counted, and the call fails when it ends.

mod failures;
mod notice;
mod recording;

pub(crate) use failures::Consequence;
pub use failures::{FailureKind, Failures};
pub use notice::RunNotice;
pub(crate) use notice::{Notices, Readers, print};
pub(crate) use recording::{Recording, SharedRecorder};

use crate::run::{Identity, JournalEvent, RunLocation};

/// The journal of a call: notices with their readers, and the recorder.
#[allow(clippy::struct_excessive_bools)] // independent properties
pub(crate) struct Journal {
    pub(crate) notices: Notices,
    pub(crate) recording: Option<Recording>,
    /// Data, program and processor.
    pub(crate) identity: Identity,
    /// A loss that is not finite has been reported.
    pub(crate) reported_not_finite: bool,
    /// Disabled hooks and the reasons, until `on_hook_disabled` is delivered.
    pub(crate) disabled: Vec<(String, String)>,
    /// Notices, until `on_notice` is delivered.
    pub(crate) pending: Vec<PendingNotice>,
    /// `on_hook_disabled` and `on_notice` are being delivered, or held back during a save.
    pub(crate) held: bool,
    /// Hooks are being torn down, or the run has failed: neither is delivered any more.
    pub(crate) closing: bool,
}

/// A notice as hooks receive it.
pub(crate) struct PendingNotice {
    pub(crate) text: String,
    pub(crate) shown: bool,
    pub(crate) entry: serde_json::Value,
}

impl PendingNotice {
    pub(crate) fn new(notice: &RunNotice, shown: bool) -> PendingNotice {
        let entry = serde_json::to_value(JournalEvent::from(notice)).unwrap_or_default();
        PendingNotice { text: notice.to_string(), shown, entry }
    }

    /// The kind, by its name in `events.jsonl`.
    pub(crate) fn kind(&self) -> &str {
        self.entry["event"].as_str().unwrap_or_default()
    }
}

/// The readers and the recorder of a trainer, between its calls.
pub(crate) struct JournalSetup {
    pub(crate) readers: Readers,
    pub(crate) recording: Option<Recording>,
    /// Announce the start of a run.
    pub(crate) announces_start: bool,
}

impl Default for JournalSetup {
    fn default() -> JournalSetup {
        JournalSetup { readers: Readers::one(print), recording: None, announces_start: true }
    }
}

impl JournalSetup {
    /// The journal of a call. It has the recorder until the call ends.
    pub(crate) fn open(&mut self) -> Journal {
        Journal {
            notices: Notices::new(self.readers.clone(), self.announces_start),
            recording: self.recording.take(),
            identity: Identity::default(),
            reported_not_finite: false,
            disabled: Vec::new(),
            pending: Vec::new(),
            held: false,
            closing: false,
        }
    }

    /// The run directory of the next training, if it must not be that of the last.
    pub(crate) fn next_location(&self) -> Option<RunLocation> {
        self.recording.as_ref()?.recorder().next_location()
    }
}
