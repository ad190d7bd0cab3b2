//! What a run left in its directory.

use std::path::Path;

use tenterhook::HookInfo;
use tenterhook::run::{JournalEvent, Run, RunStatus};

use crate::run_directory::latest;

/// What was written.
#[derive(Debug)]
pub struct Written {
    pub status: RunStatus,
    /// The failures of `events.jsonl`, in order.
    pub failures: Vec<JournalEvent>,
    /// How many `run.json` counts.
    pub counted: u64,
    /// The hooks, as `run.json` lists them.
    pub hooks: Vec<HookInfo>,
    /// The journal ends with the end of the run.
    pub ends: bool,
}

impl Written {
    /// What the one run below this directory wrote; nothing where none began.
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
