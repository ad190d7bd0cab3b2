//! The rules for changes of the list of hooks, and the errors of refused changes.

use std::fmt;

use super::HookRunner;
use crate::any_hook::AnyHook;
use crate::failure::Origin;
use crate::roster::{HookInfo, HookKind, RosterRequest};
use crate::spec::HookSpec;

/// The error for a refused change of the list of hooks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RosterError {
    /// There is a hook of this name already.
    Duplicate(String),
    /// The name is reserved for the module, the trainer or the update hook that changes nothing.
    Reserved(String),
    /// There is no hook of this name.
    Unknown {
        /// The name that was given.
        name: String,
        /// The names of the registered hooks.
        known: String,
    },
    /// The hook has no name.
    Nameless,
    /// The hook was to be added on some ranks of a distributed run only.
    NotOnAllRanks(String),
    /// An observer requested a change of a hook that steers training.
    NotForObservers {
        /// The observer.
        by: String,
        /// The hook to be changed.
        name: String,
        /// The kind of that hook.
        kind: HookKind,
    },
    /// An observer requested a change of a hook that a controller or an update hook reads from.
    IsRead {
        /// The observer.
        by: String,
        /// The hook to be changed.
        name: String,
        /// The hook that reads from it.
        reader: String,
        /// The kind of the reader.
        kind: HookKind,
        /// The name that the reader reads.
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
    /// The problem.
    #[must_use]
    pub fn what(&self) -> String {
        match self {
            RosterError::Duplicate(name) => format!("there is a hook named `{name}` already"),
            RosterError::Reserved(name) => match name.as_str() {
                Origin::MODULE | Origin::TRAINER => {
                    format!("`{name}` is the name of the {name} itself in reports and checkpoints")
                }
                _ => format!("`{name}` is the name of the update hook that changes nothing"),
            },
            RosterError::Unknown { name, .. } => format!("there is no hook named `{name}`"),
            RosterError::Nameless => "a hook must have a name".to_owned(),
            RosterError::NotOnAllRanks(name) => {
                format!("hook `{name}` was to be added on some ranks and not on all")
            }
            RosterError::NotForObservers { by, name, kind } => format!(
                "observer `{by}` requested a change of {kind} hook `{name}`, which would change training"
            ),
            RosterError::IsRead { by, name, reader, kind, what } => format!(
                "observer `{by}` requested a change of hook `{name}`, from which {kind} hook `{reader}` reads \
                 `{what}`, which would change training"
            ),
        }
    }

    /// The fix, if there is one.
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
    /// Refuses a request of an observer that would change training.
    pub(super) fn permit(
        &self,
        by: Option<&HookInfo>,
        request: &RosterRequest,
        added: Option<&AnyHook>,
    ) -> Result<(), RosterError> {
        let Some(by) = by.filter(|by| !by.kind.steers()) else { return Ok(()) };
        let (by, name) = (by.name.clone(), request.hook().to_owned());
        let listed = || self.list().into_iter().find(|hook| hook.name == name).map(|hook| hook.kind);
        if let Some(kind) = added.map(AnyHook::kind).or_else(listed).filter(|kind| kind.steers()) {
            return Err(RosterError::NotForObservers { by, name, kind });
        }
        let spec = added.map(AnyHook::spec).or_else(|| Some(&self.find(&name)?.spec));
        match spec.and_then(|spec| self.steering_reader_of(spec)) {
            Some((reader, kind, what)) => Err(RosterError::IsRead { by, name, reader, kind, what }),
            None => Ok(()),
        }
    }

    /// A controller or an update hook that reads what this hook writes, and the name that it reads.
    pub(super) fn steering_reader_of(&self, written: &HookSpec) -> Option<(String, HookKind, String)> {
        let mut readers = self.present().map(|slot| &slot.spec).filter(|spec| spec.steers());
        readers.find_map(|spec| {
            let what = spec.reads_from(written)?.to_owned();
            Some((spec.name.clone(), spec.kind(), what))
        })
    }
}
