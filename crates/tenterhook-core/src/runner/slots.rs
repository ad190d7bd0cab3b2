//! The list of hooks: registration, toggling, removal, and their states.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{HookRunner, judge};
use crate::access::Access;
use crate::erased::AnyHook;
use crate::event::Events;
use crate::failure::{BoxError, Contained, Failure, Origin, Policy, panic_message};
use crate::forward::ForwardHook;
use crate::hook::HookResult;
use crate::moment::{Progress, Shared};
use crate::plan::{Entry, Plan, Tier};
use crate::roster::{Change, HookInfo, HookKind};
use crate::state::State;
use crate::update::{Identity, UpdateHook};

pub(super) struct Slot {
    pub(super) name: String,
    pub(super) hook: AnyHook,
    pub(super) tier: Tier,
    pub(super) policy: Policy,
    pub(super) failures: u32,
    enabled: bool,
    removed: bool,
}

pub(super) struct UpdateSlot {
    pub(super) name: String,
    pub(super) hook: Box<dyn UpdateHook>,
    pub(super) policy: Policy,
    pub(super) enabled: bool,
    pub(super) failures: u32,
}

pub(super) struct ForwardSlot {
    pub(super) name: String,
    pub(super) hook: Box<dyn ForwardHook>,
    pub(super) policy: Policy,
    pub(super) enabled: bool,
    pub(super) failures: u32,
}

/// How a hook is registered, where that differs from what it says of itself.
#[derive(Clone, Debug, Default)]
pub struct Registration {
    /// Another name.
    pub name: Option<String>,
    /// Another policy.
    pub policy: Option<Policy>,
    /// Registered, but receiving nothing until it is enabled.
    pub disabled: bool,
}

/// Why the list of hooks could not be changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RosterError {
    /// Two hooks of one name.
    #[error("there is a hook named `{0}` already; give one of them another name")]
    Duplicate(String),
    /// No hook of that name.
    #[error("there is no hook named `{name}`; there are: {known}")]
    Unknown {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: String,
    },
}

/// The states of all hooks, by name.
pub type HookStates = BTreeMap<String, State>;

impl HookRunner {
    /// Registers a hook as it describes itself.
    pub fn add(&mut self, hook: impl Into<AnyHook>) -> Result<(), RosterError> {
        self.register(hook.into(), Registration::default())
    }

    /// Registers a hook.
    pub fn register(&mut self, hook: AnyHook, how: Registration) -> Result<(), RosterError> {
        let name = self.free(how.name.unwrap_or_else(|| hook.name()))?;
        let policy = how.policy.unwrap_or_else(|| hook.0.policy());
        let tier = hook.0.tier();
        let enabled = !how.disabled;
        self.slots.push(Slot { name, hook, tier, policy, failures: 0, enabled, removed: false });
        self.replan();
        Ok(())
    }

    /// Registers an update hook.
    pub fn add_update(&mut self, hook: impl UpdateHook) -> Result<(), RosterError> {
        let name = self.free(hook.name())?;
        let policy = hook.policy();
        self.updates.push(UpdateSlot { name, hook: Box::new(hook), policy, enabled: true, failures: 0 });
        Ok(())
    }

    /// Registers a forward hook.
    pub fn add_forward(&mut self, hook: impl ForwardHook) -> Result<(), RosterError> {
        let name = self.free(hook.name())?;
        let policy = hook.policy();
        self.forwards.push(ForwardSlot { name, hook: Box::new(hook), policy, enabled: true, failures: 0 });
        self.replan();
        Ok(())
    }

    /// Lets a hook receive events again.
    pub fn enable(&mut self, name: &str) -> Result<(), RosterError> {
        self.switch(name, true)
    }

    /// Lets a hook receive no events; it keeps its place and its state.
    pub fn disable(&mut self, name: &str) -> Result<(), RosterError> {
        self.switch(name, false)
    }

    /// Removes a hook.
    pub fn remove(&mut self, name: &str) -> Result<(), RosterError> {
        if let Some(slot) = self.slots.iter_mut().find(|slot| slot.name == name && !slot.removed) {
            // Slots are numbered, and numbers in use must not move.
            slot.removed = true;
        } else if let Some(at) = self.updates.iter().position(|slot| slot.name == name) {
            self.updates.remove(at);
        } else if let Some(at) = self.forwards.iter().position(|slot| slot.name == name) {
            self.forwards.remove(at);
        } else {
            return Err(self.unknown(name));
        }
        self.replan();
        Ok(())
    }

    /// All hooks: those that receive events in registration order, then forward and update hooks.
    /// Without an update hook there is `identity`.
    #[must_use]
    pub fn list(&self) -> Vec<HookInfo> {
        let forwards = self.forwards.iter().map(|slot| {
            let state = (slot.enabled, slot.failures);
            simple(&slot.name, HookKind::Forward, slot.policy, state)
        });
        let updates = self.updates.iter().map(|slot| {
            let state = (slot.enabled, slot.failures);
            simple(&slot.name, HookKind::Update, slot.policy, state)
        });
        let identity = self.updates.is_empty().then(|| {
            let (name, policy) = (Identity.name(), Identity.policy());
            simple(&name, HookKind::Update, policy, (true, 0))
        });
        let slots = self.slots.iter().filter_map(Slot::info);
        slots.chain(forwards).chain(updates).chain(identity).collect()
    }

    /// What every hook that receives events declares, in registration order.
    #[must_use]
    pub fn declared(&self) -> Vec<(String, Access)> {
        let live = self.slots.iter().filter(|slot| slot.is_live());
        live.map(|slot| (slot.name.clone(), slot.hook.0.access())).collect()
    }

    /// The plan in force.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The hook in a slot of the plan: its name and tier.
    #[must_use]
    pub fn receiver(&self, slot: usize) -> Option<(&str, Tier)> {
        self.slots.get(slot).map(|slot| (slot.name.as_str(), slot.tier))
    }

    /// Tells the hooks who is registered.
    pub fn publish(&self, shared: &Shared) {
        shared.roster.set(self.slots.iter().map(Slot::info).collect());
    }

    /// The state of every hook, by name. An error or a panic is judged by the hook's policy, like any other.
    pub fn states(&mut self, at: &Progress) -> Result<HookStates, Failure> {
        let mut states = HookStates::new();
        for id in self.state_order() {
            let slot = &mut self.slots[id];
            let state = guarded("state_dict", slot, at, &mut self.contained, |hook| hook.0.state_dict())?;
            states.insert(slot.name.clone(), state.unwrap_or_else(State::empty));
        }
        for slot in &self.updates {
            let state = slot.hook.state_dict().map_err(|error| slot.failed("state_dict", at, error))?;
            states.insert(slot.name.clone(), state);
        }
        Ok(states)
    }

    /// Gives every hook its state back. An error or a panic is judged by the hook's policy.
    pub fn load_states(&mut self, states: &HookStates, at: &Progress) -> Result<(), Failure> {
        let kept = |name: &str| states.get(name).filter(|state| !state.is_empty());
        for id in self.state_order() {
            let slot = &mut self.slots[id];
            if let Some(state) = kept(&slot.name) {
                guarded("load_state_dict", slot, at, &mut self.contained, |hook| {
                    hook.0.load_state_dict(state)
                })?;
            }
        }
        for slot in &mut self.updates {
            if let Some(state) = kept(&slot.name) {
                let loaded = slot.hook.load_state_dict(state);
                loaded.map_err(|error| slot.failed("load_state_dict", at, error))?;
            }
        }
        Ok(())
    }

    /// Every hook is asked for its state, a disabled one too, in the order of delivery.
    fn state_order(&self) -> Vec<usize> {
        let present = self.slots.iter().enumerate().filter(|(_, slot)| !slot.removed);
        let mut order: Vec<_> = present.map(|(id, slot)| (slot.tier, id)).collect();
        order.sort_by_key(|(tier, _)| *tier);
        order.into_iter().map(|(_, id)| id).collect()
    }

    pub(super) fn apply(&mut self, change: Change) -> Result<(), RosterError> {
        match change {
            Change::Enable(name) => self.enable(&name),
            Change::Disable(name) => self.disable(&name),
            Change::Remove(name) => self.remove(&name),
            Change::Add(hook) => self.add(hook),
        }
    }

    fn switch(&mut self, name: &str, on: bool) -> Result<(), RosterError> {
        if let Some(slot) = self.slots.iter_mut().find(|slot| slot.name == name && !slot.removed) {
            slot.enabled = on;
        } else if let Some(slot) = self.updates.iter_mut().find(|slot| slot.name == name) {
            slot.enabled = on;
        } else if let Some(slot) = self.forwards.iter_mut().find(|slot| slot.name == name) {
            slot.enabled = on;
        } else {
            return Err(self.unknown(name));
        }
        self.replan();
        Ok(())
    }

    fn replan(&mut self) {
        let entries: Vec<_> = self.slots.iter().enumerate().map(|(id, slot)| slot.entry(id)).collect();
        self.plan = Plan::new(&entries);
        self.listening = self.forwards.iter().any(|slot| slot.enabled);
    }

    fn free(&self, name: String) -> Result<String, RosterError> {
        // `identity` stands for the absence of update hooks, so registering it replaces nothing.
        let taken = self.list().iter().any(|hook| hook.name == name && name != "identity");
        if taken { Err(RosterError::Duplicate(name)) } else { Ok(name) }
    }

    fn unknown(&self, name: &str) -> RosterError {
        let known = self.list().iter().map(|hook| format!("`{}`", hook.name)).collect::<Vec<_>>().join(", ");
        RosterError::Unknown { name: name.to_owned(), known }
    }
}

impl Slot {
    fn is_live(&self) -> bool {
        self.enabled && !self.removed
    }

    fn entry(&self, slot: usize) -> Entry {
        let events = if self.is_live() { self.hook.0.events() } else { Events::NONE };
        Entry { slot, tier: self.tier, events }
    }

    fn info(&self) -> Option<HookInfo> {
        (!self.removed).then(|| HookInfo {
            name: self.name.clone(),
            kind: self.hook.0.kind(),
            tier: self.tier,
            enabled: self.enabled,
            on_error: self.policy.on_error,
            failures: self.failures,
        })
    }
}

impl UpdateSlot {
    fn failed(&self, place: &'static str, at: &Progress, error: BoxError) -> Failure {
        let origin = Origin::Hook(self.name.clone());
        Failure { origin, place, epoch: at.epoch, step: at.step, panicked: false, error }
    }
}

/// Calls a hook outside of an event: `None` when it failed and its policy goes on.
fn guarded<T>(
    place: &'static str,
    slot: &mut Slot,
    at: &Progress,
    contained: &mut Vec<Contained>,
    call: impl FnOnce(&mut AnyHook) -> HookResult<T>,
) -> Result<Option<T>, Failure> {
    let (panicked, error) = match catch_unwind(AssertUnwindSafe(|| call(&mut slot.hook))) {
        Ok(Ok(value)) => return Ok(Some(value)),
        Ok(Err(error)) => (false, error),
        Err(panic) => (true, panic_message(&*panic).into()),
    };
    slot.failures += 1;
    let origin = Origin::Hook(slot.name.clone());
    let failure = Failure { origin, place, epoch: at.epoch, step: at.step, panicked, error };
    if judge(slot.policy, slot.failures, failure, contained)? {
        slot.enabled = false;
    }
    Ok(None)
}

fn simple(name: &str, kind: HookKind, policy: Policy, (enabled, failures): (bool, u32)) -> HookInfo {
    let (tier, on_error) = (Tier::User, policy.on_error);
    HookInfo { name: name.to_owned(), kind, tier, enabled, on_error, failures }
}
