//! What may be asked of the list of hooks, and why something cannot be done.

use std::fmt;

use super::HookRunner;
use crate::roster::{Change, HookInfo, HookKind};

/// Why the list of hooks could not be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RosterError {
    /// Two hooks of one name.
    Duplicate(String),
    /// The name of the update that stands where no other does.
    Reserved(String),
    /// No hook of that name.
    Unknown {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// A hook without a name.
    Nameless,
    /// A hook that was to be added on some ranks of a distributed run only.
    NotOnAllRanks(String),
    /// An observer that would change training through another hook.
    NotForObservers {
        /// Who asked.
        by: String,
        /// The hook that it asked for.
        name: String,
        /// What kind of hook that is.
        kind: HookKind,
    },
    /// An observer that would take away what a controller or an update hook reads.
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

impl fmt::Display for RosterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what())?;
        self.fix().map_or(Ok(()), |fix| write!(f, "; {fix}"))
    }
}

impl std::error::Error for RosterError {}

impl RosterError {
    /// What cannot be done.
    #[must_use]
    pub fn what(&self) -> String {
        match self {
            RosterError::Duplicate(name) => format!("there is a hook named `{name}` already"),
            RosterError::Reserved(name) => {
                format!("`{name}` is the name of the update that changes nothing")
            }
            RosterError::Unknown { name, .. } => format!("there is no hook named `{name}`"),
            RosterError::Nameless => "a hook must have a name".to_owned(),
            RosterError::NotOnAllRanks(name) => {
                format!("hook `{name}` was to be added on some ranks and not on all")
            }
            RosterError::NotForObservers { by, name, kind } => format!(
                "observer `{by}` asked for a change of {kind} hook `{name}`, which would change training"
            ),
            RosterError::IsRead { by, name, reader, kind, what } => format!(
                "observer `{by}` asked for a change of hook `{name}`, from which {kind} hook `{reader}` reads \
                 `{what}`, which would change training"
            ),
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn fix(&self) -> Option<String> {
        Some(match self {
            RosterError::Duplicate(_) => "give one of them another name".to_owned(),
            RosterError::Reserved(_) => "give the hook another name".to_owned(),
            RosterError::Unknown { known, .. } => format!("there are: {known}"),
            RosterError::NotOnAllRanks(_) => "add it from a hook that runs on all ranks".to_owned(),
            RosterError::NotForObservers { .. } | RosterError::IsRead { .. } => {
                "make it a controller".to_owned()
            }
            RosterError::Nameless => return None,
        })
    }
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
            Change::Enable(name) | Change::Disable(name) | Change::Remove(name) => &self.find(name)?.spec,
        };
        let mut readers = self.present().map(|slot| &slot.spec).filter(|spec| spec.steers());
        readers.find_map(|spec| {
            let what = spec.reads_from(written)?.to_owned();
            Some((spec.name.clone(), spec.kind(), what))
        })
    }
}
