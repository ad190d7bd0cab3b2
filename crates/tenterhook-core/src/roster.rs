//! Who is registered, and requests to change that while training runs.

use std::cell::{Ref, RefCell};

use serde::{Deserialize, Serialize};

use crate::account::Budget;
use crate::any_hook::AnyHook;
use crate::failure::OnError;
use crate::plan::Tier;
use crate::spec::Ranks;

/// The kind of a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookKind {
    /// Watches events.
    Observer,
    /// Watches events and steers.
    Controller,
    /// Changes gradients before the update.
    Update,
    /// Watches events, activations among them.
    Forward,
}

impl HookKind {
    /// Whether hooks of this kind can change training.
    #[must_use]
    pub fn steers(self) -> bool {
        matches!(self, HookKind::Controller | HookKind::Update)
    }
}

impl std::fmt::Display for HookKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            HookKind::Observer => "observer",
            HookKind::Controller => "controller",
            HookKind::Update => "update",
            HookKind::Forward => "forward",
        })
    }
}

/// What a list of hooks says about one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HookInfo {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: HookKind,
    /// Where it stands among the others.
    #[serde(default)]
    pub tier: Tier,
    /// On which ranks it runs.
    #[serde(default, skip_serializing_if = "Ranks::is_all")]
    pub ranks: Ranks,
    /// Whether it receives events.
    pub enabled: bool,
    /// What its errors do.
    pub on_error: OnError,
    /// How often it has failed.
    #[serde(default)]
    pub failures: u32,
    /// What share of the step time it may take, where that is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
}

/// A change of the list of hooks, asked for while training runs.
pub(crate) enum Change {
    Enable(String),
    Disable(String),
    Remove(String),
    Add(Box<AnyHook>),
}

impl Change {
    pub(crate) fn in_words(&self) -> RosterRequest {
        match self {
            Change::Enable(name) => RosterRequest::Enable(name.clone()),
            Change::Disable(name) => RosterRequest::Disable(name.clone()),
            Change::Remove(name) => RosterRequest::Remove(name.clone()),
            Change::Add(hook) => RosterRequest::Add(hook.name().to_owned()),
        }
    }
}

/// A change of the list of hooks, in words: asked for, or made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RosterRequest {
    /// Let the hook of this name receive events again.
    Enable(String),
    /// Let it receive none.
    Disable(String),
    /// Remove it.
    Remove(String),
    /// Register a hook of this name.
    Add(String),
}

/// A change, and the number of the hook that asked for it; the runner itself has none.
pub(crate) struct PendingChange {
    pub(crate) by: Option<usize>,
    pub(crate) change: Change,
}

/// The list of hooks, and the changes that were asked for.
#[derive(Default)]
pub struct Roster {
    /// By the runner's number; a removed hook leaves its number empty.
    hooks: RefCell<Vec<Option<HookInfo>>>,
    pub(crate) changes: RefCell<Vec<PendingChange>>,
}

impl Roster {
    /// Whether changes were asked for that nobody has made yet.
    #[inline]
    #[must_use]
    pub fn has_requests(&self) -> bool {
        !self.changes.borrow().is_empty()
    }

    /// The registered hooks: those that receive events in registration order, then update hooks.
    #[must_use]
    pub fn list(&self) -> Vec<HookInfo> {
        let mut all: Vec<_> = self.hooks.borrow().iter().flatten().cloned().collect();
        all.sort_by_key(|hook| hook.kind == HookKind::Update);
        all
    }

    /// The list as the module sees it.
    #[must_use]
    pub fn handle(&self) -> RosterHandle<'_> {
        RosterHandle { roster: self, by: None }
    }

    /// What was asked for since the last change took effect, in order.
    #[must_use]
    pub fn pending(&self) -> Vec<RosterRequest> {
        let changes = self.changes.borrow();
        changes.iter().map(|asked| asked.change.in_words()).collect()
    }

    pub(crate) fn ask(&self, by: Option<usize>, change: Change) {
        self.changes.borrow_mut().push(PendingChange { by, change });
    }

    pub(crate) fn set(&self, hooks: Vec<Option<HookInfo>>) {
        *self.hooks.borrow_mut() = hooks;
    }

    pub(crate) fn info(&self, index: usize) -> Option<HookInfo> {
        self.hooks.borrow().get(index).cloned().flatten()
    }

    /// Whether this hook can change nothing.
    pub(crate) fn observes(&self, index: usize) -> bool {
        let hooks = self.hooks.borrow();
        hooks.get(index).and_then(Option::as_ref).is_some_and(|hook| !hook.kind.steers())
    }

    pub(crate) fn name(&self, index: usize) -> Ref<'_, str> {
        Ref::map(self.hooks.borrow(), |hooks| {
            hooks.get(index).and_then(Option::as_ref).map_or("", |hook| hook.name.as_str())
        })
    }
}

/// The list of hooks as one hook sees it. Requests take effect when the current event has reached
/// everyone, so nobody is skipped.
#[derive(Clone, Copy)]
pub struct RosterHandle<'a> {
    pub(crate) roster: &'a Roster,
    /// The number of the hook; the module has none.
    pub(crate) by: Option<usize>,
}

impl RosterHandle<'_> {
    /// The registered hooks: those that receive events in registration order, then update hooks.
    #[must_use]
    pub fn list(self) -> Vec<HookInfo> {
        self.roster.list()
    }

    /// Asks to let a hook receive events again.
    pub fn enable(self, name: &str) {
        self.ask(Change::Enable(name.to_owned()));
    }

    /// Asks to let a hook receive no events; it keeps its state.
    pub fn disable(self, name: &str) {
        self.ask(Change::Disable(name.to_owned()));
    }

    /// Asks to remove a hook.
    pub fn remove(self, name: &str) {
        self.ask(Change::Remove(name.to_owned()));
    }

    /// Asks to register one more hook.
    pub fn add(self, hook: impl Into<AnyHook>) {
        self.ask(Change::Add(Box::new(hook.into())));
    }

    /// What was asked for since the last change took effect, in order.
    #[must_use]
    pub fn pending(self) -> Vec<RosterRequest> {
        self.roster.pending()
    }

    fn ask(self, change: Change) {
        self.roster.ask(self.by, change);
    }
}
