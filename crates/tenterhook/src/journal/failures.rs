//! The failures of a call by kind. A failure that repeats is reported once and counted.

use serde::{Deserialize, Serialize};
use tenterhook_core::Failure;
use tenterhook_core::failure::Contained;

use crate::run::{JournalEntry, JournalEvent};

/// The largest number of kinds. Failures of further kinds are only counted.
const KINDS: usize = 100;

/// Failures of one kind: of the same hook (or module, data, strategy) in the same event, all errors or all
/// panics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
#[allow(clippy::struct_excessive_bools)] // independent properties
pub struct FailureKind {
    /// The origin, as in ``hook `console` ``.
    pub by: String,
    /// The event or action.
    pub at: String,
    /// They were panics.
    pub panicked: bool,
    /// The number of failures.
    pub count: u64,
    /// The completed steps at the first failure.
    pub step: u64,
    /// The error of the first failure.
    pub error: String,
    /// One of them disabled the hook.
    pub disabled: bool,
    /// One of them ended the run.
    pub aborted: bool,
    /// One of them happened during the clean-up after another failure.
    pub afterwards: bool,
}

/// The consequence of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Consequence {
    Continues,
    Disabled,
    Aborts,
    /// The run was already ending because of another failure.
    Afterwards {
        disabled: bool,
    },
}

impl Consequence {
    /// The consequence of a failure that did not end the run.
    pub(crate) fn of(contained: &Contained) -> Consequence {
        match *contained {
            Contained { afterwards: true, disabled, .. } => Consequence::Afterwards { disabled },
            Contained { disabled: true, .. } => Consequence::Disabled,
            _ => Consequence::Continues,
        }
    }

    pub(crate) fn disables(self) -> bool {
        matches!(self, Consequence::Disabled | Consequence::Afterwards { disabled: true })
    }

    pub(crate) fn is_afterwards(self) -> bool {
        matches!(self, Consequence::Afterwards { .. })
    }
}

/// The failures of a call, contained or not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failures {
    /// The first hundred kinds, in order of occurrence.
    pub kinds: Vec<FailureKind>,
    /// The number of failures of other kinds.
    pub left_out: u64,
}

impl Failures {
    /// Counts a failure.
    pub(crate) fn count(&mut self, failure: &Failure, then: Consequence) {
        self.count_entry(failure.step, JournalEvent::failed(failure, 1, then));
    }

    /// Counts a recorded failure; ignores other entries.
    pub(crate) fn read(&mut self, entry: &JournalEntry) {
        self.count_entry(entry.step, entry.what.clone());
    }

    fn count_entry(&mut self, step: u64, what: JournalEvent) {
        if let JournalEvent::Failure { by, at, error, panicked, disabled, aborted, afterwards, .. } = what {
            self.add(FailureKind { by, at, panicked, count: 1, step, error, disabled, aborted, afterwards });
        }
    }

    /// Adds the failures of a later call.
    pub fn extend(&mut self, later: &Failures) {
        for kind in &later.kinds {
            self.add(kind.clone());
        }
        self.left_out += later.left_out;
    }

    fn add(&mut self, new: FailureKind) {
        let same =
            |kind: &&mut FailureKind| kind.panicked == new.panicked && kind.at == new.at && kind.by == new.by;
        if let Some(kind) = self.kinds.iter_mut().find(same) {
            kind.count += new.count;
            kind.disabled |= new.disabled;
            kind.aborted |= new.aborted;
            kind.afterwards |= new.afterwards;
        } else if self.kinds.len() < KINDS {
            self.kinds.push(new);
        } else {
            self.left_out += new.count;
        }
    }
}

#[cfg(test)]
mod tests {
    use tenterhook_core::Origin;

    use super::*;

    fn failure(hook: usize, place: &'static str, panicked: bool) -> Failure {
        let origin = Origin::Hook(hook.to_string());
        Failure { origin, place, epoch: 0, step: 7, panicked, error: "no".into(), trace: None }
    }

    #[test]
    fn failures_are_counted_by_kind() {
        let mut tally = Failures::default();
        tally.count(&failure(1, "on_step_end", false), Consequence::Continues);
        tally.count(&failure(1, "on_step_end", false), Consequence::Disabled);
        // A panic is another kind, and so are another event and another hook.
        tally.count(&failure(1, "on_step_end", true), Consequence::Continues);
        tally.count(&failure(1, "on_train_end", false), Consequence::Continues);
        tally.count(&failure(2, "on_step_end", false), Consequence::Continues);
        let counts: Vec<_> = tally.kinds.iter().map(|kind| (kind.count, kind.disabled)).collect();
        assert_eq!(counts, [(2, true), (1, false), (1, false), (1, false)]);
    }

    #[test]
    fn further_kinds_are_only_counted() {
        let mut tally = Failures::default();
        for hook in 0..3 * KINDS {
            tally.count(&failure(hook, "setup", false), Consequence::Continues);
        }
        assert_eq!((tally.kinds.len(), tally.left_out), (KINDS, 2 * KINDS as u64));
    }

    #[test]
    fn the_failures_of_a_later_call_are_added() {
        let mut tally = Failures::default();
        tally.count(&failure(1, "setup", false), Consequence::Continues);
        let mut later = Failures { left_out: 3, ..tally.clone() };
        later.count(&failure(1, "teardown", false), Consequence::Aborts);
        tally.extend(&later);
        let counts: Vec<_> = tally.kinds.iter().map(|kind| (kind.at.as_str(), kind.count)).collect();
        assert_eq!((counts, tally.left_out), (vec![("setup", 2), ("teardown", 1)], 3));
    }
}
