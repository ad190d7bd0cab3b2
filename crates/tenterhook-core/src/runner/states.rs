//! The hooks' own states, for a checkpoint and from one.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::HookRunner;
use super::standing::{Mishap, Standing, attempt};
use crate::effect::Effect;
use crate::failure::{Failure, OnError};
use crate::hook::HookResult;
use crate::named::NamedTensors;
use crate::progress::Progress;
use crate::state::State;

/// The states of all hooks, by name.
pub type HookStates = BTreeMap<String, State>;

/// A hook that has a state, by its number.
#[derive(Clone, Copy)]
enum Numbered {
    Slot(usize),
    Update(usize),
}

impl HookRunner {
    /// The state of every hook, by name. An error or a panic is judged by the hook's policy, like any other.
    pub fn states(&mut self, at: &Progress) -> Result<HookStates, Failure> {
        let mut states = HookStates::new();
        for id in self.state_order() {
            let slot = &mut self.slots[id];
            let name = slot.standing.name.clone();
            let asked = attempt(|| slot.hook.state_dict());
            states.insert(name, self.judged(Numbered::Slot(id), "state_dict", at, asked)?);
        }
        for id in 0..self.updates.len() {
            let slot = &mut self.updates[id];
            let name = slot.standing.name.clone();
            let asked = attempt(|| slot.hook.state_dict());
            states.insert(name, self.judged(Numbered::Update(id), "state_dict", at, asked)?);
        }
        states.extend(self.awaited.iter().map(|(name, awaited)| (name.clone(), awaited.state.clone())));
        Ok(states)
    }

    /// The tensors that a hook keeps to be evaluated instead of the module's weights, if one does and has some.
    /// Nobody else is asked.
    pub fn weights_to_evaluate(&mut self, at: &Progress) -> Result<Option<NamedTensors>, Failure> {
        let keeps = |id: &usize| {
            let slot = &self.slots[*id];
            slot.is_live() && slot.spec.keeps_weights_to_evaluate
        };
        // Of several the last counts, as where each leaves its name in a checkpoint.
        let Some(id) = self.state_order().into_iter().rfind(keeps) else { return Ok(None) };
        let slot = &mut self.slots[id];
        let asked = attempt(|| slot.hook.state_dict());
        let state = self.judged(Numbered::Slot(id), "state_dict", at, asked)?;
        Ok(Some(state.tensors).filter(|tensors| !tensors.is_empty()))
    }

    /// The directories in which hooks declare to save checkpoints ([`Effect::SaveCheckpoints`]), by hook.
    #[must_use]
    pub fn checkpoint_directories(&self) -> Vec<(String, PathBuf)> {
        let mut all = Vec::new();
        for slot in self.state_order().into_iter().map(|id| &self.slots[id]) {
            for effect in &slot.spec.effects {
                if let Effect::SaveCheckpoints(path) = effect {
                    all.push((slot.standing.name.clone(), path.clone()));
                }
            }
        }
        all
    }

    /// The names under which states are kept: of every hook that is asked for one.
    #[must_use]
    pub fn stateful(&self) -> Vec<String> {
        let slots = self.state_order().into_iter().map(|id| &self.slots[id].standing);
        let updates = self.updates.iter().map(|slot| &slot.standing);
        slots.chain(updates).map(|standing| standing.name.clone()).collect()
    }

    /// Whether every hook whose errors end the run could load its state ([`Hook::check_state_dict`]). Nothing changes.
    ///
    /// [`Hook::check_state_dict`]: crate::Hook::check_state_dict
    pub fn check_states(&self, states: &HookStates, at: &Progress) -> Result<(), Failure> {
        let check = |standing: &Standing, check: &dyn Fn(&State) -> HookResult| {
            let state = states.get(&standing.name).filter(|state| !state.is_empty());
            let Some(state) = state.filter(|_| standing.policy.on_error == OnError::Abort) else {
                return Ok(());
            };
            let failed = |mishap| standing.failure(mishap, "load_state_dict", (at.epoch, at.step));
            attempt(|| check(state)).map_err(failed)
        };
        for slot in self.state_order().into_iter().map(|id| &self.slots[id]) {
            check(&slot.standing, &|state| slot.hook.check_state_dict(state))?;
        }
        self.updates
            .iter()
            .try_for_each(|slot| check(&slot.standing, &|state| slot.hook.check_state_dict(state)))
    }

    /// Gives every hook its state back. An error or a panic is judged by the hook's policy.
    pub fn load_states(&mut self, states: &HookStates, at: &Progress) -> Result<(), Failure> {
        let kept = |name: &str| states.get(name).filter(|state| !state.is_empty());
        for id in self.state_order() {
            let slot = &mut self.slots[id];
            let is_here = slot.spec.ranks.include(self.world);
            if let Some(state) = kept(&slot.standing.name).filter(|_| is_here) {
                let told = attempt(|| slot.hook.load_state_dict(state)).map(|()| State::empty());
                self.judged(Numbered::Slot(id), "load_state_dict", at, told)?;
            }
        }
        for id in 0..self.updates.len() {
            let slot = &mut self.updates[id];
            if let Some(state) = kept(&slot.standing.name) {
                let told = attempt(|| slot.hook.load_state_dict(state)).map(|()| State::empty());
                self.judged(Numbered::Update(id), "load_state_dict", at, told)?;
            }
        }
        Ok(())
    }

    /// Every hook is asked for its state, a disabled one too, in the order of delivery.
    fn state_order(&self) -> Vec<usize> {
        let present = self.slots.iter().enumerate().filter(|(_, slot)| !slot.removed);
        let mut order: Vec<_> = present.map(|(id, slot)| (slot.spec.tier, id)).collect();
        order.sort_by_key(|(tier, _)| *tier);
        order.into_iter().map(|(_, id)| id).collect()
    }

    /// The state of a hook outside of an event, or none when it failed and its policy goes on.
    fn judged(
        &mut self,
        of: Numbered,
        place: &'static str,
        at: &Progress,
        result: Result<State, Mishap>,
    ) -> Result<State, Failure> {
        let mishap = match result {
            Ok(state) => return Ok(state),
            Err(mishap) => mishap,
        };
        let standing = match of {
            Numbered::Slot(id) => &mut self.slots[id].standing,
            Numbered::Update(id) => &mut self.updates[id].standing,
        };
        self.unpublished.set(true);
        if standing.judge(mishap, place, (at.epoch, at.step), &mut self.contained)? {
            self.changed.push(standing.give_up());
            self.replan();
        }
        Ok(State::empty())
    }
}
