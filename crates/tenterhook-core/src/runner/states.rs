//! Saving and restoring the hooks' own states.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::HookRunner;
use super::hook_status::attempt;
use super::slot::Slot;
use crate::effect::Effect;
use crate::failure::{Failure, OnError};
use crate::hook::{Hook, HookResult};
use crate::named::NamedTensors;
use crate::progress::Progress;
use crate::state::State;

/// The states of all hooks, by name.
pub type HookStates = BTreeMap<String, State>;

impl HookRunner {
    /// The states of all hooks. The hook's policy applies to an error or a panic.
    pub fn states(&mut self, at: &Progress) -> Result<HookStates, Failure> {
        let mut states = HookStates::new();
        for id in self.state_order() {
            let state = self.ask(id, "state_dict", at, |hook| hook.state_dict())?;
            states.insert(self.slots[id].spec.name.clone(), state.unwrap_or_else(State::empty));
        }
        let awaited = self.absent.awaited.iter();
        states.extend(awaited.map(|(name, awaited)| (name.clone(), awaited.state.clone())));
        Ok(states)
    }

    /// The tensors of the hook that [provides weights for
    /// evaluations](crate::HookSpec::provides_eval_weights), if there are any. No other hook is called.
    pub fn eval_weights(&mut self, at: &Progress) -> Result<Option<NamedTensors>, Failure> {
        let provides = |id: &usize| {
            let slot = &self.slots[*id];
            slot.is_live() && slot.spec.provides_eval_weights
        };
        // The last such hook counts, as it does in a checkpoint.
        let Some(id) = self.state_order().into_iter().rfind(provides) else { return Ok(None) };
        let state = self.ask(id, "state_dict", at, |hook| hook.state_dict())?;
        Ok(state.map(|state| state.tensors).filter(|tensors| !tensors.is_empty()))
    }

    /// The directories in which hooks declare to save checkpoints ([`Effect::SaveCheckpoints`]), with the
    /// hooks' names.
    #[must_use]
    pub fn checkpoint_directories(&self) -> Vec<(String, PathBuf)> {
        let specs = self.state_order().into_iter().map(|id| &self.slots[id].spec);
        let effects = specs.flat_map(|spec| spec.effects.iter().map(|effect| (&spec.name, effect)));
        let directories = effects.filter_map(|(name, effect)| match effect {
            Effect::SaveCheckpoints(path) => Some((name.clone(), path.clone())),
            _ => None,
        });
        directories.collect()
    }

    /// The names of the hooks whose states are saved, which are all registered hooks.
    #[must_use]
    pub fn stateful_hooks(&self) -> Vec<String> {
        self.state_order().into_iter().map(|id| self.slots[id].spec.name.clone()).collect()
    }

    /// Checks whether every hook whose policy is `abort` could load its state ([`Hook::check_state_dict`]),
    /// without changing anything.
    pub fn check_states(&self, states: &HookStates, at: &Progress) -> Result<(), Failure> {
        for Slot { spec, hook, .. } in self.state_order().into_iter().map(|id| &self.slots[id]) {
            if let Some(state) = saved(states, &spec.name)
                && spec.policy.on_error == OnError::Abort
            {
                attempt(|| hook.check_state_dict(state)).map_err(|error| {
                    error.into_failure(&spec.name, "load_state_dict", (at.epoch, at.step))
                })?;
            }
        }
        Ok(())
    }

    /// Restores the states of all hooks. The hook's policy applies to an error or a panic.
    pub fn load_states(&mut self, states: &HookStates, at: &Progress) -> Result<(), Failure> {
        for id in self.state_order() {
            let spec = &self.slots[id].spec;
            let is_here = spec.ranks.include(self.world);
            if let Some(state) = saved(states, &spec.name).filter(|_| is_here) {
                self.ask(id, "load_state_dict", at, |hook| hook.load_state_dict(state))?;
            }
        }
        Ok(())
    }

    /// All registered hooks, disabled ones too: those that receive events in the order of delivery, then
    /// update hooks.
    fn state_order(&self) -> Vec<usize> {
        let present = self.slots.iter().enumerate().filter(|(_, slot)| slot.is_present());
        let mut order: Vec<_> = present.map(|(id, _)| id).collect();
        order.sort_by_key(|id| (self.slots[*id].is_update(), self.slots[*id].spec.tier));
        order
    }

    /// Calls a hook outside of an event. `None` if it failed and the failure was contained.
    fn ask<T>(
        &mut self,
        id: usize,
        place: &'static str,
        at: &Progress,
        call: impl FnOnce(&mut dyn Hook) -> HookResult<T>,
    ) -> Result<Option<T>, Failure> {
        let hook = &mut *self.slots[id].hook;
        let error = match attempt(|| call(hook)) {
            Ok(value) => return Ok(Some(value)),
            Err(error) => error,
        };
        if self.judge(id, error, place, (at.epoch, at.step))? {
            self.replan();
        }
        Ok(None)
    }
}

/// The saved state of this hook, unless it is empty.
fn saved<'a>(states: &'a HookStates, hook: &str) -> Option<&'a State> {
    states.get(hook).filter(|state| !state.is_empty())
}
