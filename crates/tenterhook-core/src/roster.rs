//! The list of registered hooks, and requests to change it during training.

use std::cell::{Ref, RefCell};

use serde::{Deserialize, Serialize};

use crate::account::Budget;
use crate::any_hook::AnyHook;
use crate::failure::OnError;
use crate::plan::Tier;
use crate::spec::Ranks;

/// The kind of a hook.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum HookKind {
    /// Watches events.
    #[default]
    Observer,
    /// Watches events and steers training.
    Controller,
    /// Changes gradients before the optimizer step.
    Update,
    /// Watches activations, among other events.
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
        self.serialize(f)
    }
}

/// An entry in the list of registered hooks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HookInfo {
    /// The hook's name.
    pub name: String,
    /// The hook's kind.
    pub kind: HookKind,
    /// The hook's place in the order of hooks.
    #[serde(default)]
    pub tier: Tier,
    /// The ranks on which the hook runs.
    #[serde(default, skip_serializing_if = "Ranks::is_all")]
    pub ranks: Ranks,
    /// Whether the hook receives events.
    pub enabled: bool,
    /// The effect of the hook's errors on the run.
    pub on_error: OnError,
    /// How often the hook has failed.
    #[serde(default)]
    pub failures: u32,
    /// The share of the step time that the hook may take, if limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
}

/// A change of the list of hooks that was requested or made, with the hook's name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RosterRequest {
    /// Enable the hook: it receives events again.
    Enable(String),
    /// Disable the hook: it receives no events.
    Disable(String),
    /// Remove the hook.
    Remove(String),
    /// Register the hook.
    Add(String),
}

impl RosterRequest {
    /// The name of the hook that is to be changed.
    #[must_use]
    pub fn hook(&self) -> &str {
        match self {
            RosterRequest::Enable(name)
            | RosterRequest::Disable(name)
            | RosterRequest::Remove(name)
            | RosterRequest::Add(name) => name,
        }
    }
}

/// A requested change that has not been made yet.
pub(crate) struct PendingChange {
    /// The number of the hook that requested it; `None` for the module and for the runner itself.
    pub(crate) by: Option<usize>,
    pub(crate) request: RosterRequest,
    /// The hook to be added.
    pub(crate) hook: Option<AnyHook>,
}

/// The list of registered hooks, and the requested changes.
#[derive(Default)]
pub struct Roster {
    /// By the runner's number; a removed hook leaves its number empty.
    hooks: RefCell<Vec<Option<HookInfo>>>,
    pub(crate) changes: RefCell<Vec<PendingChange>>,
}

impl Roster {
    /// Whether any requested change has not been made yet.
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

    /// The roster as the module sees it.
    #[must_use]
    pub fn handle(&self) -> RosterHandle<'_> {
        RosterHandle { roster: self, by: None }
    }

    /// The requested changes that have not been made yet, in order.
    #[must_use]
    pub fn pending(&self) -> Vec<RosterRequest> {
        self.changes.borrow().iter().map(|change| change.request.clone()).collect()
    }

    pub(crate) fn ask(&self, by: Option<usize>, request: RosterRequest, hook: Option<AnyHook>) {
        self.changes.borrow_mut().push(PendingChange { by, request, hook });
    }

    pub(crate) fn set(&self, hooks: Vec<Option<HookInfo>>) {
        *self.hooks.borrow_mut() = hooks;
    }

    pub(crate) fn info(&self, index: usize) -> Option<HookInfo> {
        self.hooks.borrow().get(index).cloned().flatten()
    }

    /// Whether this hook cannot change training.
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

/// The roster as one hook or the module sees it. Requested changes are made after all hooks have received the
/// current event.
#[derive(Clone, Copy)]
pub struct RosterHandle<'a> {
    pub(crate) roster: &'a Roster,
    /// The number of the hook; `None` for the module.
    pub(crate) by: Option<usize>,
}

impl RosterHandle<'_> {
    /// The registered hooks: those that receive events in registration order, then update hooks.
    #[must_use]
    pub fn list(self) -> Vec<HookInfo> {
        self.roster.list()
    }

    /// Requests that a hook is enabled.
    pub fn enable(self, name: &str) {
        self.roster.ask(self.by, RosterRequest::Enable(name.to_owned()), None);
    }

    /// Requests that a hook is disabled. It keeps its state.
    pub fn disable(self, name: &str) {
        self.roster.ask(self.by, RosterRequest::Disable(name.to_owned()), None);
    }

    /// Requests that a hook is removed.
    pub fn remove(self, name: &str) {
        self.roster.ask(self.by, RosterRequest::Remove(name.to_owned()), None);
    }

    /// Requests that a hook is registered.
    pub fn add(self, hook: impl Into<AnyHook>) {
        let hook = hook.into();
        self.roster.ask(self.by, RosterRequest::Add(hook.name().to_owned()), Some(hook));
    }

    /// The requested changes that have not been made yet, in order.
    #[must_use]
    pub fn pending(self) -> Vec<RosterRequest> {
        self.roster.pending()
    }
}
