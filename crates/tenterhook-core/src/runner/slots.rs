//! The list of hooks: registration, toggling and removal.

use super::hook_status::HookStatus;
use super::slot::{Presence, Slot, Teardown};
use super::{HookRunner, RosterError};
use crate::account::Budget;
use crate::any_hook::AnyHook;
use crate::failure::Policy;
use crate::hook::Hook;
use crate::plan::{Plan, Tier};
use crate::roster::{Change, HookInfo};
use crate::run_context::Shared;
use crate::spec::HookSpec;
use crate::update::Identity;

/// How a hook is registered, where that differs from what it says of itself.
#[derive(Clone, Debug, Default)]
pub struct Registration {
    /// Another name.
    pub name: Option<String>,
    /// Another policy.
    pub policy: Option<Policy>,
    /// Registered, but receiving nothing until it is enabled.
    pub disabled: bool,
    /// What share of the time of training steps it may take.
    pub budget: Option<Budget>,
    /// Of an update hook: whether it fails when a gradient is not finite after it.
    pub check_finite: Option<bool>,
}

impl HookRunner {
    /// Registers a hook as it describes itself.
    pub fn add(&mut self, hook: impl Into<AnyHook>) -> Result<(), RosterError> {
        self.register(hook, Registration::default())
    }

    /// Registers a hook.
    pub fn register(&mut self, hook: impl Into<AnyHook>, how: Registration) -> Result<(), RosterError> {
        let AnyHook { hook, mut spec } = hook.into();
        spec.name = self.free(how.name.unwrap_or(spec.name))?;
        spec.policy = how.policy.unwrap_or(spec.policy);
        spec.check_finite = how.check_finite.unwrap_or(spec.check_finite);
        let enabled = !how.disabled;
        let status = HookStatus {
            enabled,
            registered: enabled,
            budget: how.budget,
            ..HookStatus::new(spec.name.clone(), spec.policy)
        };
        let slot = Slot { status, hook, spec, presence: Presence::Registered, teardown: Teardown::Open };
        if (slot.spec.changes_gradients || !slot.is_update()) && slot.spec.name == Identity.spec().name {
            return Err(RosterError::Reserved(slot.spec.name));
        }
        self.absent.removed.remove(&slot.spec.name);
        self.slots.push(slot);
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

    /// Removes a hook. In a call it is torn down and finishes with the others, and is dropped then.
    pub fn remove(&mut self, name: &str) -> Result<(), RosterError> {
        let in_call = self.in_call;
        let Some(slot) = self.find_mut(name) else { return Err(self.unknown(name)) };
        slot.status.enabled = false;
        if in_call {
            slot.presence = Presence::Leaving;
        } else {
            slot.presence = Presence::Removed;
            slot.take_hook();
        }
        self.absent.removed.insert(name.to_owned());
        self.replan();
        Ok(())
    }

    /// The hooks that are registered now: those that receive events in registration order, then update hooks.
    pub(super) fn present(&self) -> impl Iterator<Item = &Slot> {
        let of_kind = |is_update: bool| {
            self.slots.iter().filter(move |slot| slot.is_present() && slot.is_update() == is_update)
        };
        of_kind(false).chain(of_kind(true))
    }

    pub(super) fn find(&self, name: &str) -> Option<&Slot> {
        self.slots.iter().find(|slot| slot.is_called(name))
    }

    pub(super) fn find_mut(&mut self, name: &str) -> Option<&mut Slot> {
        self.slots.iter_mut().find(|slot| slot.is_called(name))
    }

    /// All hooks: those that receive events in registration order, then update hooks. Where no update hook is
    /// enabled there is `identity`.
    #[must_use]
    pub fn list(&self) -> Vec<HookInfo> {
        let identity = Identity.spec();
        let stands = |slot: &Slot| slot.is_update() && (slot.is_live() || slot.spec.name == identity.name);
        let missing = !self.present().any(stands);
        let missing =
            missing.then(|| HookStatus::new(identity.name.clone(), identity.policy).info(&identity));
        self.present().map(Slot::info).chain(missing).collect()
    }

    /// What every enabled hook declares: those that receive events in registration order, then update hooks.
    #[must_use]
    pub fn declared(&self) -> Vec<HookSpec> {
        self.present().filter(|slot| slot.is_live()).map(|slot| slot.spec.clone()).collect()
    }

    /// A hook by its name and type; behind wrappers too.
    #[must_use]
    pub fn hook<H: Hook>(&self, name: &str) -> Option<&H> {
        self.find(name)?.hook.downcast_ref()
    }

    /// The names of all hooks of every kind, in registration order.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        let present = self.slots.iter().filter(|slot| slot.is_present());
        present.map(|slot| slot.status.name.as_str()).collect()
    }

    /// The plan in force.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.planned.plan
    }

    /// The hook in a slot of the plan: its name and tier.
    #[must_use]
    pub fn receiver(&self, slot: usize) -> Option<(&str, Tier)> {
        self.slots.get(slot).map(|slot| (slot.status.name.as_str(), slot.spec.tier))
    }

    /// The tier of the hook of this name.
    #[must_use]
    pub fn tier(&self, name: &str) -> Option<Tier> {
        self.find(name).map(|slot| slot.spec.tier)
    }

    /// Tells the hooks who is registered. A delivery does so by itself when that has changed.
    pub fn publish(&self, shared: &RunState) {
        let info = |slot: &Slot| slot.is_present().then(|| slot.info());
        shared.roster.set(self.slots.iter().map(info).collect());
        self.planned.unpublished.set(false);
    }

    #[inline]
    pub(super) fn publish_changes(&self, shared: &RunState) {
        if self.planned.unpublished.get() {
            self.publish(shared);
        }
    }

    pub(super) fn apply(&mut self, change: Change) -> Result<(), RosterError> {
        match change {
            Change::Enable(name) => self.enable(&name),
            Change::Disable(name) => self.disable(&name),
            Change::Remove(name) => self.remove(&name),
            Change::Add(hook) => {
                let name = hook.name().to_owned();
                self.add(*hook)?;
                if let Some(slot) = self.find_mut(&name) {
                    slot.status.added = true;
                }
                self.take_up(&name);
                Ok(())
            }
        }
    }

    fn switch(&mut self, name: &str, on: bool) -> Result<(), RosterError> {
        let Some(slot) = self.find_mut(name) else { return Err(self.unknown(name)) };
        slot.status.enabled = on;
        slot.status.given_up &= !on;
        self.replan();
        Ok(())
    }

    /// A call begins, until the hooks [finish](HookRunner::finish): who receives events now is torn down at its end,
    /// whatever becomes of it by then.
    pub fn begin_call(&mut self) {
        self.in_call = true;
        for slot in &mut self.slots {
            slot.teardown = if slot.is_live() { Teardown::Due } else { Teardown::Open };
        }
    }

    fn free(&self, name: String) -> Result<String, RosterError> {
        if name.trim().is_empty() {
            return Err(RosterError::Nameless);
        }
        if self.find(&name).is_some() { Err(RosterError::Duplicate(name)) } else { Ok(name) }
    }

    fn unknown(&self, name: &str) -> RosterError {
        let known: Vec<_> = self.present().map(|slot| format!("`{}`", slot.status.name)).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        RosterError::Unknown { name: name.to_owned(), known }
    }
}
