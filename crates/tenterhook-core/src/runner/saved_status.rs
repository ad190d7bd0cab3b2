//! Hooks that are not there: removed ones, and those of a checkpoint that are still to be added. What a checkpoint keeps of
//! the runner besides the hooks' own states: the status of each hook.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::HookRunner;
use super::hook_status::HookStatus;
use super::slot::Slot;
use super::states::HookStates;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::run_context::Shared;
use crate::state::State;

/// The hooks that are not registered now.
#[derive(Default)]
pub(super) struct Absent {
    /// The names of those that were removed.
    pub(super) removed: BTreeSet<String>,
    /// What hooks had that were added while the run went on, until they are added again.
    pub(super) awaited: BTreeMap<String, Awaited>,
}

/// What a hook that was added while the run went on had.
pub(super) struct Awaited {
    stood: Stood,
    pub(super) state: State,
}

/// The runner as a checkpoint holds it, apart from the hooks' own states.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunnerState {
    /// How each hook stands, by name; removed ones, too.
    standings: BTreeMap<String, Stood>,
}

/// How a hook stood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Stood {
    /// Whether it received events when it was registered.
    registered: bool,
    enabled: bool,
    failures: u32,
    /// It was added while the run went on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    added: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    removed: bool,
}

impl RunnerState {
    /// Whether a hook was added while the run went on, so that nobody registers it before the run begins.
    #[must_use]
    pub fn was_added(&self, hook: &str) -> bool {
        self.standings.get(hook).is_some_and(|stood| stood.added)
    }

    /// Whether a hook was removed while the run went on.
    #[must_use]
    pub fn was_removed(&self, hook: &str) -> bool {
        self.standings.get(hook).is_some_and(|stood| stood.removed)
    }
}

impl HookRunner {
    /// The status of every hook.
    #[must_use]
    pub fn state(&self) -> RunnerState {
        let Absent { removed, awaited } = &self.absent;
        let removed = removed.iter().map(|name| (name, Stood { removed: true, ..Stood::default() }));
        let awaited = awaited.iter().map(|(name, awaited)| (name, awaited.stood));
        let present = self.present().map(|slot| &slot.status).map(|status| {
            let HookStatus { name, registered, enabled, failures, added, .. } = status;
            let (registered, enabled, failures, added) = (*registered, *enabled, *failures, *added);
            (name, Stood { registered, enabled, failures, added, removed: false })
        });
        let all = removed.chain(awaited).chain(present);
        RunnerState { standings: all.map(|(name, stood)| (name.clone(), stood)).collect() }
    }

    /// Gives the hooks their states and status back. What was registered in another way than then, enabled or not,
    /// stays as it is registered now; so does what has failed too often since. A checkpoint never enables a hook with
    /// effects that is registered as disabled: it may come from anybody.
    pub fn restore(
        &mut self,
        state: &RunnerState,
        hooks: &HookStates,
        at: &Progress,
        shared: &RunState,
    ) -> Result<(), Failure> {
        let barred = self.barred();
        for (name, stood) in &state.standings {
            if stood.removed {
                // It may not have been registered this time.
                let _ = self.remove(name);
            } else if let Some(Slot { status, .. }) = self.find_mut(name) {
                if status.registered == stood.registered {
                    status.enabled = stood.enabled && !status.given_up && !barred.contains(name);
                }
                status.failures = status.failures.max(stood.failures);
            } else if stood.added {
                let state = hooks.get(name).cloned().unwrap_or_else(State::empty);
                self.absent.awaited.insert(name.clone(), Awaited { stood: *stood, state });
            }
        }
        self.replan();
        self.load_states(hooks, at)?;
        self.publish(shared);
        Ok(())
    }

    /// The hooks that are registered as disabled and have effects outside of the run directory.
    fn barred(&self) -> Vec<String> {
        let bars = |slot: &&Slot| !slot.status.registered && !slot.spec.effects.is_empty();
        self.present().filter(bars).map(|slot| slot.status.name.clone()).collect()
    }

    /// A hook that was added while the run went on has been added again: it gets back what it had.
    pub(super) fn take_up(&mut self, name: &str) {
        let Some(Awaited { stood, state }) = self.absent.awaited.remove(name) else { return };
        let enabled = stood.enabled && !self.barred().iter().any(|barred| barred == name);
        if let Some(Slot { status, .. }) = self.find_mut(name) {
            (status.enabled, status.failures) = (enabled, stood.failures);
        }
        let states = HookStates::from([(name.to_owned(), state)]);
        if let Err(failure) = self.load_states(&states, &Progress::default()) {
            self.aborted.get_or_insert(failure);
        }
    }
}
