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
pub use notice::Notice;
pub(crate) use notice::{Notices, Tell, telling};
pub(crate) use recording::{Recording, SharedRecorder};

use crate::run::Identity;

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
    /// `on_hook_disabled` is being delivered, or waits for a save to end.
    pub(crate) held: bool,
}

impl Journal {
    pub(crate) fn new(notices: Notices, recording: Option<Recording>) -> Journal {
        let (identity, told_not_finite, disabled, held) = Default::default();
        Journal { notices, recording, identity, told_not_finite, disabled, held }
    }
}
