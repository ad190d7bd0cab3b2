//! What a run tells: notices to people, decisions, failures and metrics to the run directory.
//!
//! The loop passes metrics and events on after hooks, module and strategy have received an event, so everything that is logged in
//! it stands on one line. Without a recorder this costs a branch. A line that cannot be written does not stop training: it is
//! reported once and counted, and the call fails when it ends.
//!
//! An interrupt is checked once per batch. The current batch completes; training then ends like a stop that `min_epochs` and
//! `min_steps` do not hold back, without a further validation. The library installs no signal handler; `tenter` does.

mod failures;
mod notice;
mod recording;

pub(crate) use failures::Then;
pub use failures::{FailureKind, Failures};
pub use notice::RunNotice;
pub(crate) use notice::{Notices, Readers, print};
pub(crate) use recording::{Recording, SharedRecorder};

use crate::run::{Identity, JournalEvent, RunLocation};

/// What is told and written down of a run, and by whom it is read.
pub(crate) struct Journal {
    pub(crate) notices: Notices,
    pub(crate) recording: Option<Recording>,
    /// Data, program and processor, once they are known.
    pub(crate) identity: Identity,
    /// A loss that is not finite has been reported.
    pub(crate) told_not_finite: bool,
    /// Hooks that were disabled, and why, until the others receive `on_hook_disabled`.
    pub(crate) disabled: Vec<(String, String)>,
    /// Notices that hooks have not received yet.
    pub(crate) unread: Vec<UnreadNotice>,
    /// `on_hook_disabled` or `on_notice` is being delivered, or waits for a save to end.
    pub(crate) held: bool,
}

/// A notice as hooks receive it.
pub(crate) struct UnreadNotice {
    pub(crate) text: String,
    pub(crate) told: bool,
    pub(crate) entry: serde_json::Value,
}

impl UnreadNotice {
    pub(crate) fn new(notice: &RunNotice, told: bool) -> UnreadNotice {
        let entry = serde_json::to_value(JournalEvent::from(notice)).unwrap_or_default();
        UnreadNotice { text: notice.to_string(), told, entry }
    }

    /// The kind, as in `events.jsonl`.
    pub(crate) fn kind(&self) -> &str {
        self.entry["event"].as_str().unwrap_or_default()
    }
}

/// Who reads what the runs of a trainer tell, and what writes it down, between its calls.
pub(crate) struct JournalSetup {
    pub(crate) readers: Readers,
    pub(crate) recording: Option<Recording>,
    /// Whether the start of a run is told.
    pub(crate) introduces: bool,
}

impl Default for JournalSetup {
    fn default() -> JournalSetup {
        JournalSetup { readers: Readers::one(print), recording: None, introduces: true }
    }
}

impl JournalSetup {
    /// The journal of a call, which has the recorder until the call ends.
    pub(crate) fn open(&mut self) -> Journal {
        let (identity, told_not_finite, disabled, unread, held) = Default::default();
        let notices = Notices::new(self.readers.clone(), self.introduces);
        let recording = self.recording.take();
        Journal { notices, recording, identity, told_not_finite, disabled, unread, held }
    }

    /// Where the next training goes when it must not go where the last one went.
    pub(crate) fn next_location(&self) -> Option<RunLocation> {
        self.recording.as_ref()?.recorder().next_location()
    }
}
