//! The runner's part of a checkpoint besides the hooks' own states: the status of each hook, including
//! removed hooks, and hooks that were added during the run and not yet added again after a resume.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::HookRunner;
use super::hook_status::HookStatus;
use super::slot::Slot;
use super::states::HookStates;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::run_context::RunState;
use crate::state::State;

/// The hooks that are not registered.
#[derive(Default)]
pub(super) struct AbsentHooks {
    /// The names of removed hooks.
    pub(super) removed: BTreeSet<String>,
    /// Hooks of a checkpoint that were added during the run and not yet added again.
    pub(super) awaited: BTreeMap<String, AwaitedHook>,
}

/// The status and state of a hook that was added during the run.
pub(super) struct AwaitedHook {
    status: SavedStatus,
    pub(super) state: State,
}

/// The status of all hooks in a checkpoint, without the hooks' own states.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunnerState {
    /// Status by hook name, including removed hooks.
    hooks: BTreeMap<String, SavedStatus>,
}

/// The status of a hook in a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct SavedStatus {
    /// Whether the hook was registered as enabled.
    registered: bool,
    enabled: bool,
    failures: u32,
    /// The hook was added during the run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    added: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    removed: bool,
}

impl From<&HookStatus> for SavedStatus {
    fn from(status: &HookStatus) -> SavedStatus {
        let HookStatus { registered, enabled, failures, added, .. } = *status;
        SavedStatus { registered, enabled, failures, added, removed: false }
    }
}

impl RunnerState {
    /// Whether a hook was added during the run, so it is not registered when the run begins.
    #[must_use]
    pub fn was_added(&self, hook: &str) -> bool {
        self.hooks.get(hook).is_some_and(|status| status.added)
    }

    /// Whether a hook was removed during the run.
    #[must_use]
    pub fn was_removed(&self, hook: &str) -> bool {
        self.hooks.get(hook).is_some_and(|status| status.removed)
    }
}

impl HookRunner {
    /// The status of all hooks, for a checkpoint.
    #[must_use]
    pub fn state(&self) -> RunnerState {
        let AbsentHooks { removed, awaited } = &self.absent;
        let removed =
            removed.iter().map(|name| (name, SavedStatus { removed: true, ..SavedStatus::default() }));
        let awaited = awaited.iter().map(|(name, hook)| (name, hook.status));
        let present = self.present().map(|slot| (&slot.spec.name, SavedStatus::from(&slot.status)));
        let all = removed.chain(awaited).chain(present);
        RunnerState { hooks: all.map(|(name, status)| (name.clone(), status)).collect() }
    }

    /// Restores the status and the states of the hooks from a checkpoint. A hook keeps its current status if
    /// its registration changed between enabled and disabled, or if a failure disabled it since. A checkpoint
    /// may come from an untrusted source, so it never enables a hook with effects that is registered as
    /// disabled.
    pub fn restore(
        &mut self,
        state: &RunnerState,
        hooks: &HookStates,
        at: &Progress,
        shared: &RunState,
    ) -> Result<(), Failure> {
        let barred = self.barred();
        for (name, saved) in &state.hooks {
            if saved.removed {
                // The hook may not have been registered this time.
                let _ = self.remove(name);
            } else if let Some(Slot { status, .. }) = self.find_mut(name) {
                if status.registered == saved.registered {
                    status.enabled = saved.enabled && !status.gave_up && !barred.contains(name);
                }
                status.failures = status.failures.max(saved.failures);
            } else if saved.added {
                let state = hooks.get(name).cloned().unwrap_or_else(State::empty);
                self.absent.awaited.insert(name.clone(), AwaitedHook { status: *saved, state });
            }
        }
        self.replan();
        self.load_states(hooks, at)?;
        self.publish(shared);
        Ok(())
    }

    /// The hooks that are registered as disabled and have effects outside of the run directory.
    fn barred(&self) -> BTreeSet<String> {
        let is_barred = |slot: &&Slot| !slot.status.registered && !slot.spec.effects.is_empty();
        self.present().filter(is_barred).map(|slot| slot.spec.name.clone()).collect()
    }

    /// Restores a hook that was added during the run and has been added again after a resume.
    pub(super) fn restore_added(&mut self, name: &str) {
        let Some(AwaitedHook { status: saved, state }) = self.absent.awaited.remove(name) else { return };
        let enabled = saved.enabled && !self.barred().contains(name);
        if let Some(Slot { status, .. }) = self.find_mut(name) {
            (status.enabled, status.failures) = (enabled, saved.failures);
        }
        let states = HookStates::from([(name.to_owned(), state)]);
        if let Err(failure) = self.load_states(&states, &Progress::default()) {
            self.aborted.get_or_insert(failure);
        }
    }
}
