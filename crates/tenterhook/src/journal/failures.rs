//! The failures of a call by kind: one that comes a thousand times is told once, and counted.

use serde::{Deserialize, Serialize};
use tenterhook_core::Failure;
use tenterhook_core::failure::Contained;

use crate::run::{JournalEntry, JournalEvent};

/// So many kinds are told apart; those that come after them are only counted.
const KINDS: usize = 100;

/// Failures of one kind: of the same hook (or module, data, strategy) in the same event, all of them errors or all
/// of them panics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
#[allow(clippy::struct_excessive_bools)] // what is known of it, side by side
pub struct FailureKind {
    /// Who: as in ``hook `console` ``.
    pub by: String,
    /// In which event or action.
    pub at: String,
    /// They were panics.
    pub panicked: bool,
    /// How often.
    pub count: u64,
    /// The completed steps at the first of them.
    pub step: u64,
    /// What went wrong the first time.
    pub error: String,
    /// The hook was disabled because of one of them.
    pub disabled: bool,
    /// One of them ended the run.
    pub aborted: bool,
    /// One of them came afterwards, while everybody was told and torn down.
    pub afterwards: bool,
}

/// What a failure led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    GoesOn,
    Disabled,
    Aborts,
    /// The run is ending for another.
    Afterwards {
        disabled: bool,
    },
}

impl Then {
    /// What became of a failure that did not end the run.
    pub(crate) fn of(contained: &Contained) -> Then {
        match *contained {
            Contained { afterwards: true, disabled, .. } => Then::Afterwards { disabled },
            Contained { disabled: true, .. } => Then::Disabled,
            _ => Then::GoesOn,
        }
    }

    pub(crate) fn disables(self) -> bool {
        matches!(self, Then::Disabled | Then::Afterwards { disabled: true })
    }

    pub(crate) fn is_afterwards(self) -> bool {
        matches!(self, Then::Afterwards { .. })
    }
}

/// The failures of a call, contained or not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failures {
    /// Each kind, in the order in which they came: the first hundred.
    pub kinds: Vec<FailureKind>,
    /// How many failures there were of other kinds.
    pub left_out: u64,
}

impl Failures {
    /// Counts a failure.
    pub(crate) fn count(&mut self, failure: &Failure, then: Then) {
        self.add(FailureKind {
            by: failure.origin.to_string(),
            at: failure.place.to_owned(),
            panicked: failure.panicked,
            count: 1,
            step: failure.step,
            error: failure.error.to_string(),
            disabled: then.disables(),
            aborted: then == Then::Aborts,
            afterwards: then.is_afterwards(),
        });
    }

    /// Counts what was written down, if it was a failure.
    pub(crate) fn read(&mut self, entry: &JournalEntry) {
        let JournalEvent::Failure { by, at, error, panicked, disabled, aborted, afterwards, .. } =
            &entry.what
        else {
            return;
        };
        self.add(FailureKind {
            by: by.clone(),
            at: at.clone(),
            panicked: *panicked,
            count: 1,
            step: entry.step,
            error: error.clone(),
            disabled: *disabled,
            aborted: *aborted,
            afterwards: *afterwards,
        });
    }

    /// Counts what a later call had, too.
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
        tally.count(&failure(1, "on_step_end", false), Then::GoesOn);
        tally.count(&failure(1, "on_step_end", false), Then::Disabled);
        // A panic is another kind, and so are another event and another hook.
        tally.count(&failure(1, "on_step_end", true), Then::GoesOn);
        tally.count(&failure(1, "on_train_end", false), Then::GoesOn);
        tally.count(&failure(2, "on_step_end", false), Then::GoesOn);
        let counts: Vec<_> = tally.kinds.iter().map(|kind| (kind.count, kind.disabled)).collect();
        assert_eq!(counts, [(2, true), (1, false), (1, false), (1, false)]);
    }

    #[test]
    fn more_kinds_than_anybody_reads_are_only_counted() {
        let mut tally = Failures::default();
        for hook in 0..3 * KINDS {
            tally.count(&failure(hook, "setup", false), Then::GoesOn);
        }
        assert_eq!((tally.kinds.len(), tally.left_out), (KINDS, 2 * KINDS as u64));
    }

    #[test]
    fn what_a_later_call_had_is_counted_with_it() {
        let mut tally = Failures::default();
        tally.count(&failure(1, "setup", false), Then::GoesOn);
        let mut later = Failures { left_out: 3, ..tally.clone() };
        later.count(&failure(1, "teardown", false), Then::Aborts);
        tally.extend(&later);
        let counts: Vec<_> = tally.kinds.iter().map(|kind| (kind.at.as_str(), kind.count)).collect();
        assert_eq!((counts, tally.left_out), (vec![("setup", 2), ("teardown", 1)], 3));
    }
}
