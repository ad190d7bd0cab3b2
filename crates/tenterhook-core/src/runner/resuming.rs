//! What a checkpoint keeps of the runner besides the hooks' own states: the status of each hook.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::HookRunner;
use super::states::HookStates;
use crate::failure::Failure;
use crate::moment::Shared;
use crate::progress::Progress;

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
        let gone = self.gone.iter().map(|name| (name.clone(), Stood { removed: true, ..Stood::default() }));
        let present = self.standings().map(|standing| {
            let stood = Stood {
                registered: standing.registered,
                enabled: standing.enabled,
                failures: standing.failures,
                added: standing.added,
                removed: false,
            };
            (standing.name.clone(), stood)
        });
        let awaited = self.awaited.iter().map(|(name, awaited)| (name.clone(), awaited.stood));
        RunnerState { standings: gone.chain(awaited).chain(present).collect() }
    }

    /// Gives the hooks their states and standing back. What was registered in another way than then, enabled or not,
    /// stays as it is registered now; so does what has failed too often since. A checkpoint never enables a hook with
    /// effects that is registered as disabled: it may come from anybody.
    pub fn restore(
        &mut self,
        state: &RunnerState,
        hooks: &HookStates,
        at: &Progress,
        shared: &Shared,
    ) -> Result<(), Failure> {
        let barred = self.barred();
        for (name, stood) in &state.standings {
            if stood.removed {
                // It may not have been registered this time.
                let _ = self.remove(name);
            } else if let Some(standing) = self.standing_mut(name) {
                if standing.registered == stood.registered {
                    standing.enabled = stood.enabled && !standing.given_up && !barred.contains(name);
                }
                standing.failures = standing.failures.max(stood.failures);
            } else if stood.added {
                let state = hooks.get(name).cloned();
                self.awaited.insert(name.clone(), (*stood, state.unwrap_or_else(crate::State::empty)).into());
            }
        }
        self.replan();
        self.load_states(hooks, at)?;
        self.publish(shared);
        Ok(())
    }

    /// The hooks that are registered as disabled and have effects outside of the run directory.
    fn barred(&self) -> Vec<String> {
        let slots = self.slots.iter().filter(|slot| !slot.removed);
        let slots = slots.map(|slot| (&slot.standing, &slot.spec));
        let all = slots.chain(self.updates.iter().map(|slot| (&slot.standing, &slot.spec)));
        let barred = all.filter(|(standing, spec)| !standing.registered && !spec.effects.is_empty());
        barred.map(|(standing, _)| standing.name.clone()).collect()
    }

    /// A hook that was added while the run went on has been added again: it gets back what it had.
    pub(super) fn take_up(&mut self, name: &str) {
        let Some(Awaited { stood, state }) = self.awaited.remove(name) else { return };
        let enabled = stood.enabled && !self.barred().iter().any(|barred| barred == name);
        if let Some(standing) = self.standing_mut(name) {
            (standing.enabled, standing.failures) = (enabled, stood.failures);
        }
        let states = HookStates::from([(name.to_owned(), state)]);
        if let Err(failure) = self.load_states(&states, &Progress::default()) {
            self.aborted.get_or_insert(failure);
        }
    }
}

/// What a hook that was added while the run went on had, until it is added again.
pub(super) struct Awaited {
    stood: Stood,
    pub(super) state: crate::State,
}

impl From<(Stood, crate::State)> for Awaited {
    fn from((stood, state): (Stood, crate::State)) -> Awaited {
        Awaited { stood, state }
    }
}
