//! What the runner keeps besides the hooks' own states: how each hook stands, and what waits for the event at
//! hand to reach everyone. A checkpoint may be taken in the middle of a delivery, so that it goes on in another
//! process.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::states::HookStates;
use super::{Cursor, Decided, HookRunner, Part};
use crate::event::Event;
use crate::failure::Failure;
use crate::flow::{Request, Weights};
use crate::moment::Shared;
use crate::progress::Progress;
use crate::roster::{Change, RosterRequest};

/// The runner as a checkpoint holds it, apart from the hooks' own states.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunnerState {
    /// How each hook stands, by name; removed ones, too.
    standings: BTreeMap<String, Stood>,
    /// What was decided at this event and waits for it to reach everyone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    decisions: Vec<Decided>,
    /// The changes of the list of hooks that were asked for, and by whom.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    changes: Vec<(Option<String>, RosterRequest)>,
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
    /// How the hooks stand, and what waits for the event at hand.
    #[must_use]
    pub fn state(&self, shared: &Shared) -> RunnerState {
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
        let asked = shared.roster.changes.borrow();
        let changes = asked.iter().map(|asked| {
            let by = asked.by.and_then(|by| shared.roster.info(by)).map(|by| by.name);
            (by, asked.change.in_words())
        });
        RunnerState {
            standings: gone.chain(awaited).chain(present).collect(),
            decisions: self.decisions.clone(),
            changes: changes.collect(),
        }
    }

    /// Gives the hooks their states and standing back; what waited for an event is held until
    /// [`take_up_event`](HookRunner::take_up_event). What was registered in another way than then, enabled or not,
    /// stays as it is registered now; so does what has failed too often since. A checkpoint never enables a hook with
    /// effects that is registered as disabled: it may come from anybody.
    pub fn restore(
        &mut self,
        state: RunnerState,
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
        let with_weights = |decided: Decided| {
            let tensors = hooks.get(&decided.hook).map(|state| Arc::new(state.tensors.clone()));
            let decision = decided.decision.map_requests(|request| {
                if let (Request::SwapWeights(weights), Some(tensors)) = (request, &tensors) {
                    *weights = Weights(Arc::clone(tensors));
                }
            });
            Decided { decision, ..decided }
        };
        let decisions = state.decisions.into_iter().map(with_weights).collect();
        let enables_barred =
            |change: &RosterRequest| matches!(change, RosterRequest::Enable(name) if barred.contains(name));
        let changes = state.changes.into_iter().filter(|(_, change)| !enables_barred(change)).collect();
        self.held = Held { decisions, changes };
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

    /// Lets wait again what waited for the event at hand when the checkpoint was taken, now that its delivery goes on.
    pub fn take_up_event(&mut self, shared: &Shared) {
        let Held { decisions, changes } = std::mem::take(&mut self.held);
        self.decisions.extend(decisions);
        for (by, change) in changes {
            let by = by.and_then(|by| shared.roster.number(&by));
            let change = match change {
                RosterRequest::Enable(name) => Change::Enable(name),
                RosterRequest::Disable(name) => Change::Disable(name),
                RosterRequest::Remove(name) => Change::Remove(name),
                // The hook itself cannot be kept; whoever asked for it asks again.
                RosterRequest::Add(_) => continue,
            };
            shared.roster.ask(by, change);
        }
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

    /// The rest of a delivery that a checkpoint was taken in: those that come behind this hook, or nobody when it
    /// does not receive the event any more.
    #[must_use]
    pub fn cursor_behind(&self, event: Event, hook: &str) -> Cursor {
        let Cursor { end, .. } = self.cursor(event, Part::All);
        let receivers = self.plan.receivers(event);
        let at = receivers.iter().position(|id| self.slots[*id].is_called(hook));
        Cursor::new(at.map_or(end, |at| at + 1), end)
    }

    /// The hook whose turn it is in a delivery that has paused.
    #[must_use]
    pub fn current<'a>(&'a self, shared: &Shared) -> Option<&'a str> {
        self.receiver(shared.current.get()).map(|(name, _)| name)
    }
}

impl Cursor {
    /// Whether nobody is left.
    #[must_use]
    pub fn is_at_end(&self) -> bool {
        self.next >= self.end
    }
}

/// What waited for an event when a checkpoint was taken within it, until its delivery goes on.
#[derive(Default)]
pub(super) struct Held {
    decisions: Vec<Decided>,
    changes: Vec<(Option<String>, RosterRequest)>,
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
