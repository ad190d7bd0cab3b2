//! The list of hooks: registering, enabling, disabling and removing them.

use super::hook_status::HookStatus;
use super::slot::{Presence, Slot, Teardown};
use super::{HookRunner, RosterError};
use crate::account::Budget;
use crate::any_hook::AnyHook;
use crate::failure::{Origin, Policy};
use crate::hook::Hook;
use crate::plan::{Plan, Tier};
use crate::roster::{HookInfo, RosterRequest};
use crate::run_context::RunState;
use crate::spec::HookSpec;
use crate::update::Identity;

/// Settings of a registration that override the hook's spec.
#[derive(Clone, Debug, Default)]
pub struct Registration {
    /// Another name.
    pub name: Option<String>,
    /// Another policy.
    pub policy: Option<Policy>,
    /// The hook is registered as disabled: it receives nothing until it is enabled.
    pub disabled: bool,
    /// The share of the step time that the hook may take.
    pub budget: Option<Budget>,
    /// For an update hook: whether a gradient that is not finite afterwards is a failure.
    pub check_finite: Option<bool>,
}

impl HookRunner {
    /// Registers a hook according to its spec.
    pub fn add(&mut self, hook: impl Into<AnyHook>) -> Result<(), RosterError> {
        self.register(hook, Registration::default())
    }

    /// Registers a hook.
    pub fn register(&mut self, hook: impl Into<AnyHook>, how: Registration) -> Result<(), RosterError> {
        let AnyHook { hook, mut spec } = hook.into();
        spec.name = how.name.unwrap_or(spec.name);
        spec.policy = how.policy.unwrap_or(spec.policy);
        spec.check_finite = how.check_finite.unwrap_or(spec.check_finite);
        if spec.name.trim().is_empty() {
            return Err(RosterError::Nameless);
        }
        if self.find(&spec.name).is_some() {
            return Err(RosterError::Duplicate(spec.name));
        }
        let status = HookStatus::new(!how.disabled, how.budget);
        let slot = Slot { status, hook, spec, presence: Presence::Registered, teardown: Teardown::Open };
        let is_identity = slot.is_update() && !slot.spec.changes_gradients;
        let is_reserved = match slot.spec.name.as_str() {
            Origin::MODULE | Origin::TRAINER => true,
            name => name == Identity.spec().name && !is_identity,
        };
        if is_reserved {
            return Err(RosterError::Reserved(slot.spec.name));
        }
        self.absent.removed.remove(&slot.spec.name);
        self.slots.push(slot);
        self.replan();
        Ok(())
    }

    /// Enables a hook: it receives events again.
    pub fn enable(&mut self, name: &str) -> Result<(), RosterError> {
        self.set_enabled(name, true)
    }

    /// Disables a hook: it receives no events, but keeps its place and its state.
    pub fn disable(&mut self, name: &str) -> Result<(), RosterError> {
        self.set_enabled(name, false)
    }

    /// Removes a hook. Within a call the hook is torn down, finished and dropped at the end of the call.
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

    /// The registered hooks: those that receive events in registration order, then update hooks.
    pub(super) fn present(&self) -> impl Iterator<Item = &Slot> {
        let of_kind = |is_update: bool| {
            self.slots.iter().filter(move |slot| slot.is_present() && slot.is_update() == is_update)
        };
        of_kind(false).chain(of_kind(true))
    }

    pub(super) fn find(&self, name: &str) -> Option<&Slot> {
        self.slots.iter().find(|slot| slot.is_named(name))
    }

    pub(super) fn find_mut(&mut self, name: &str) -> Option<&mut Slot> {
        self.slots.iter_mut().find(|slot| slot.is_named(name))
    }

    /// All hooks: those that receive events in registration order, then update hooks. If no update hook is
    /// enabled, the list ends with `identity`.
    #[must_use]
    pub fn list(&self) -> Vec<HookInfo> {
        let identity = Identity.spec();
        let is_listed = |slot: &Slot| slot.is_update() && (slot.is_live() || slot.spec.name == identity.name);
        let missing = !self.present().any(is_listed);
        let missing = missing.then(|| HookStatus::new(true, None).info(&identity));
        self.present().map(Slot::info).chain(missing).collect()
    }

    /// The specs of all enabled hooks: those that receive events in registration order, then update hooks.
    #[must_use]
    pub fn declared(&self) -> Vec<HookSpec> {
        self.present().filter(|slot| slot.is_live()).map(|slot| slot.spec.clone()).collect()
    }

    /// A hook by its name and type, even inside wrappers.
    #[must_use]
    pub fn hook<H: Hook>(&self, name: &str) -> Option<&H> {
        self.find(name)?.hook.downcast_ref()
    }

    /// The names of all hooks of all kinds, in registration order.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        let present = self.slots.iter().filter(|slot| slot.is_present());
        present.map(|slot| slot.spec.name.as_str()).collect()
    }

    /// The current plan.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.active.plan
    }

    /// The name and tier of the hook in a slot of the plan.
    #[must_use]
    pub fn receiver(&self, slot: usize) -> Option<(&str, Tier)> {
        self.slots.get(slot).map(|slot| (slot.spec.name.as_str(), slot.spec.tier))
    }

    /// The tier of the hook of this name.
    #[must_use]
    pub fn tier(&self, name: &str) -> Option<Tier> {
        self.find(name).map(|slot| slot.spec.tier)
    }

    /// Updates the roster that hooks see. A delivery does this automatically.
    pub fn publish(&self, shared: &RunState) {
        let info = |slot: &Slot| slot.is_present().then(|| slot.info());
        shared.roster.set(self.slots.iter().map(info).collect());
        self.active.unpublished.set(false);
    }

    #[inline]
    pub(super) fn publish_changes(&self, shared: &RunState) {
        if self.active.unpublished.get() {
            self.publish(shared);
        }
    }

    /// Makes a requested change.
    pub(super) fn apply(
        &mut self,
        request: &RosterRequest,
        hook: Option<AnyHook>,
    ) -> Result<(), RosterError> {
        match request {
            RosterRequest::Enable(name) => self.enable(name),
            RosterRequest::Disable(name) => self.disable(name),
            RosterRequest::Remove(name) => self.remove(name),
            RosterRequest::Add(name) => {
                let Some(hook) = hook else { return Err(RosterError::NotOnAllRanks(name.clone())) };
                self.add(hook)?;
                if let Some(slot) = self.find_mut(name) {
                    slot.status.added = true;
                }
                self.restore_added(name);
                Ok(())
            }
        }
    }

    fn set_enabled(&mut self, name: &str, enabled: bool) -> Result<(), RosterError> {
        let Some(slot) = self.find_mut(name) else { return Err(self.unknown(name)) };
        slot.status.enabled = enabled;
        slot.status.gave_up &= !enabled;
        self.replan();
        Ok(())
    }

    /// Begins a call, which ends when the hooks [finish](HookRunner::finish). Hooks that receive events now
    /// are torn down at its end, even if they are disabled or removed before.
    pub fn begin_call(&mut self) {
        self.in_call = true;
        for slot in &mut self.slots {
            slot.teardown = if slot.is_live() { Teardown::Due } else { Teardown::Open };
        }
    }

    fn unknown(&self, name: &str) -> RosterError {
        let known: Vec<_> = self.present().map(|slot| format!("`{}`", slot.spec.name)).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        RosterError::Unknown { name: name.to_owned(), known }
    }
}
