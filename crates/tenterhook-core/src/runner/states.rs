//! The hooks' own states, for a checkpoint and from one.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::HookRunner;
use super::hook_status::{HookStatus, attempt};
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
    /// The state of every hook, by name. An error or a panic is judged by the hook's policy, like any other.
    pub fn states(&mut self, at: &Progress) -> Result<HookStates, Failure> {
        let mut states = HookStates::new();
        for id in self.state_order() {
            let state = self.asked(id, "state_dict", at, |hook| hook.state_dict())?;
            states.insert(self.slots[id].status.name.clone(), state.unwrap_or_else(State::empty));
        }
        let awaited = self.absent.awaited.iter();
        states.extend(awaited.map(|(name, awaited)| (name.clone(), awaited.state.clone())));
        Ok(states)
    }

    /// The tensors that a hook keeps to be evaluated instead of the module's weights, if one does and has some.
    /// Nobody else is asked.
    pub fn eval_weights(&mut self, at: &Progress) -> Result<Option<NamedTensors>, Failure> {
        let keeps = |id: &usize| {
            let slot = &self.slots[*id];
            slot.is_live() && slot.spec.provides_eval_weights
        };
        // Of several the last counts, as where each leaves its name in a checkpoint.
        let Some(id) = self.state_order().into_iter().rfind(keeps) else { return Ok(None) };
        let state = self.asked(id, "state_dict", at, |hook| hook.state_dict())?;
        Ok(state.map(|state| state.tensors).filter(|tensors| !tensors.is_empty()))
    }

    /// The directories in which hooks declare to save checkpoints ([`Effect::SaveCheckpoints`]), by hook.
    #[must_use]
    pub fn checkpoint_directories(&self) -> Vec<(String, PathBuf)> {
        let slots = self.state_order().into_iter().map(|id| &self.slots[id]);
        let directories =
            slots.flat_map(|slot| slot.spec.effects.iter().map(|effect| (&slot.spec.name, effect)));
        let save = directories.filter_map(|(name, effect)| match effect {
            Effect::SaveCheckpoints(path) => Some((name.clone(), path.clone())),
            _ => None,
        });
        save.collect()
    }

    /// The names under which states are kept: of every hook that is asked for one.
    #[must_use]
    pub fn stateful_hooks(&self) -> Vec<String> {
        self.state_order().into_iter().map(|id| self.slots[id].status.name.clone()).collect()
    }

    /// Whether every hook whose errors end the run could load its state ([`Hook::check_state_dict`]). Nothing changes.
    ///
    /// [`Hook::check_state_dict`]: crate::Hook::check_state_dict
    pub fn check_states(&self, states: &HookStates, at: &Progress) -> Result<(), Failure> {
        for Slot { status, hook, .. } in self.state_order().into_iter().map(|id| &self.slots[id]) {
            if let Some(state) = kept(states, status)
                && status.policy.on_error == OnError::Abort
            {
                let failed = |error| status.failure(error, "load_state_dict", (at.epoch, at.step));
                attempt(|| hook.check_state_dict(state)).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Gives every hook its state back. An error or a panic is judged by the hook's policy.
    pub fn load_states(&mut self, states: &HookStates, at: &Progress) -> Result<(), Failure> {
        for id in self.state_order() {
            let Slot { status, spec, .. } = &self.slots[id];
            let is_here = spec.ranks.include(self.world);
            if let Some(state) = kept(states, status).filter(|_| is_here) {
                self.asked(id, "load_state_dict", at, |hook| hook.load_state_dict(state))?;
            }
        }
        Ok(())
    }

    /// Every hook is asked for its state, a disabled one too, in the order of delivery, and update hooks after it.
    fn state_order(&self) -> Vec<usize> {
        let present = self.slots.iter().enumerate().filter(|(_, slot)| slot.is_present());
        let mut order: Vec<_> = present.map(|(id, _)| id).collect();
        order.sort_by_key(|id| (self.slots[*id].is_update(), self.slots[*id].spec.tier));
        order
    }

    /// Asks a hook something outside of an event. Nothing comes of it where it failed and its policy goes on.
    fn asked<T>(
        &mut self,
        id: usize,
        place: &'static str,
        at: &Progress,
        ask: impl FnOnce(&mut dyn Hook) -> HookResult<T>,
    ) -> Result<Option<T>, Failure> {
        let hook = &mut *self.slots[id].hook;
        let error = match attempt(|| ask(hook)) {
            Ok(answer) => return Ok(Some(answer)),
            Err(error) => error,
        };
        if self.judge(id, error, place, (at.epoch, at.step))? {
            self.replan();
        }
        Ok(None)
    }
}

/// The state of this hook, where it has one.
fn kept<'a>(states: &'a HookStates, of: &HookStatus) -> Option<&'a State> {
    states.get(&of.name).filter(|state| !state.is_empty())
}
