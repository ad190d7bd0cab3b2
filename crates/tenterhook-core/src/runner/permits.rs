//! What may be asked of the list of hooks, and why something cannot be done.

use super::HookRunner;
use crate::roster::{Change, HookInfo, HookKind};

/// Why the list of hooks could not be changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RosterError {
    /// Two hooks of one name.
    #[error("there is a hook named `{0}` already; give one of them another name")]
    Duplicate(String),
    /// The name of the update that stands where no other does.
    #[error("`{0}` is the name of the update that changes nothing; give the hook another name")]
    Reserved(String),
    /// No hook of that name.
    #[error("there is no hook named `{name}`; there are: {known}")]
    Unknown {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// A hook without a name.
    #[error("a hook must have a name")]
    Nameless,
    /// An observer that would change training through another hook.
    #[error(
        "observer `{by}` asked for a change of {kind} hook `{name}`, which would change training; make it a controller"
    )]
    NotForObservers {
        /// Who asked.
        by: String,
        /// The hook that it asked for.
        name: String,
        /// What kind of hook that is.
        kind: HookKind,
    },
    /// An observer that would take away what a controller or an update hook reads.
    #[error(
        "observer `{by}` asked for a change of hook `{name}`, from which {kind} hook `{reader}` reads `{what}`, which would change training; make it a controller"
    )]
    IsRead {
        /// Who asked.
        by: String,
        /// The hook that it asked for.
        name: String,
        /// Who reads from that one.
        reader: String,
        /// What kind of hook the reader is.
        kind: HookKind,
        /// What it reads.
        what: String,
    },
}

impl HookRunner {
    /// Refuses what an observer must not ask for.
    pub(super) fn permit(&self, by: Option<HookInfo>, change: &Change) -> Result<(), RosterError> {
        let Some(by) = by.filter(|by| !by.kind.steers()) else { return Ok(()) };
        let (name, kind) = match change {
            Change::Add(hook) => (hook.name().to_owned(), Some(hook.kind())),
            Change::Enable(name) | Change::Disable(name) | Change::Remove(name) => {
                let asked_for = self.list().into_iter().find(|hook| hook.name == *name);
                (name.clone(), asked_for.map(|hook| hook.kind))
            }
        };
        if let Some(kind) = kind.filter(|kind| kind.steers()) {
            return Err(RosterError::NotForObservers { by: by.name, name, kind });
        }
        match self.steering_reader_of(change) {
            Some((reader, kind, what)) => Err(RosterError::IsRead { by: by.name, name, reader, kind, what }),
            None => Ok(()),
        }
    }

    /// A controller or an update hook that reads from the hook that a change is about, and what.
    pub(super) fn steering_reader_of(&self, change: &Change) -> Option<(String, HookKind, String)> {
        let written = match change {
            Change::Add(hook) => hook.spec(),
            Change::Enable(name) | Change::Disable(name) | Change::Remove(name) => {
                &self.slots.iter().find(|slot| slot.is_called(name))?.spec
            }
        };
        let slots = self.slots.iter().filter(|slot| !slot.removed).map(|slot| &slot.spec);
        let updates = self.updates.iter().map(|slot| &slot.spec);
        let mut readers = slots.chain(updates).filter(|spec| spec.steers());
        readers.find_map(|spec| {
            let what = spec.reads_from(written)?.to_owned();
            Some((spec.name.clone(), spec.kind(), what))
        })
    }
}
