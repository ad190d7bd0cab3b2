//! The records in a run directory.

use std::path::Path;

use tenterhook::HookInfo;
use tenterhook::run::{JournalEvent, Run, RunStatus};

use crate::run_directory::latest;

/// The records of a run.
#[derive(Debug)]
pub struct Written {
    pub status: RunStatus,
    /// The failures of `events.jsonl`, in order.
    pub failures: Vec<JournalEvent>,
    /// The number of failures in `run.json`.
    pub counted: u64,
    /// The hooks, as `run.json` lists them.
    pub hooks: Vec<HookInfo>,
    /// Whether the last journal entry is the end of the run.
    pub ends: bool,
}

impl Written {
    /// The records of the only run below a directory; `None` if no run began.
    pub fn below(root: &Path) -> Option<Written> {
        if !root.join("runs").exists() {
            return None;
        }
        let run = Run::read(latest(root)).unwrap();
        let entries = run.event_log().unwrap().entries;
        let ends = entries.last().is_some_and(|entry| matches!(entry.what, JournalEvent::End { .. }));
        let failures = entries.into_iter().map(|entry| entry.what);
        Some(Written {
            failures: failures.filter(|what| matches!(what, JournalEvent::Failure { .. })).collect(),
            counted: run.record.failures.iter().map(|kind| kind.count).sum(),
            status: run.record.status,
            hooks: run.record.hooks,
            ends,
        })
    }
}
