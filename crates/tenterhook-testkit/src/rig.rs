//! The rig: one hook under test in a real runner, within a simulated run.

use std::sync::{Arc, MutexGuard};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tenterhook_core::runner::HookStates;
use tenterhook_core::{AnyHook, DeliveryStats, Hook, HookRunner, Registration, State};

use crate::outcomes::Outcomes;
use crate::probe::{Probe, Probed};
use crate::simulated_run::SimulatedRun;

/// A hook under test.
///
/// The hook is registered with a real [`HookRunner`], so policies, disabling and toggles behave as in a real run. There are
/// three groups of methods:
///
/// - **setters**: [`loss`](Rig::loss), [`epoch`](Rig::epoch), [`params`](Rig::params), … set what contexts
///   show. A value stays until it is changed. Setters return the rig, so an event can follow on the same
///   line;
/// - **events**: one method per event, with the name of its handler, such as
///   [`on_train_batch_end`](Rig::on_train_batch_end); [`deliver`](Rig::deliver) takes the event as a value and
///   [`play`](Rig::play) a whole script. For update hooks there is [`update`](Rig::update), for forward hooks
///   [`activation`](Rig::activation);
/// - **results**: [`hook`](Rig::hook), [`decisions`](Rig::decisions), [`failures`](Rig::failures),
///   [`metrics`](Rig::metrics), ….
///
/// Decisions are recorded. Only changes of learning rates are applied.
pub struct Rig<H> {
    pub(crate) probed: Arc<Probed<H>>,
    pub(crate) name: String,
    pub(crate) runner: HookRunner,
    pub(crate) run: SimulatedRun,
    pub(crate) outcomes: Outcomes,
    how: Registration,
}

impl<H: Hook> Rig<H> {
    /// A rig for a hook of any kind.
    #[must_use]
    pub fn new(hook: H) -> Rig<H> {
        Rig::registered(hook, Registration::default())
    }

    /// A rig for a hook that is registered with another name or policy, or disabled.
    #[must_use]
    pub fn registered(hook: H, how: Registration) -> Rig<H> {
        let probed = Probed::new(hook);
        let probe = AnyHook::new(Probe(Arc::clone(&probed)));
        let mut rig = Rig {
            probed,
            name: how.name.clone().unwrap_or_else(|| probe.name().to_owned()),
            runner: HookRunner::default(),
            run: SimulatedRun::default(),
            outcomes: Outcomes::default(),
            how: how.clone(),
        };
        if let Err(error) = rig.runner.register(probe, how) {
            unreachable!("the only hook of a runner has a name of its own: {error}");
        }
        rig.runner.publish(&rig.run.shared);
        rig
    }

    /// Delivery statistics of the hook's worker, if it has one.
    #[must_use]
    pub fn delivery_stats(&self) -> Option<DeliveryStats> {
        self.hook().delivery_stats()
    }

    /// Registers another hook, for hooks that share values on the blackboard or enable and disable each other.
    ///
    /// # Panics
    ///
    /// If a hook of that name is registered already.
    #[track_caller]
    pub fn add_hook(&mut self, hook: impl Into<AnyHook>) -> &mut Rig<H> {
        if let Err(error) = self.runner.add(hook) {
            panic!("{error}");
        }
        self.runner.publish(&self.run.shared);
        self
    }

    /// The hook under test. The guard must be dropped before the next event, which the borrow checker ensures.
    pub fn hook(&self) -> MutexGuard<'_, H> {
        self.probed.hook()
    }

    /// Ends the call: the hook waits for its worker, if it has one. A failure is in [`failures`](Rig::failures).
    pub fn finish(&mut self) {
        let failures = self.runner.finish(&self.run.at.progress, &self.run.shared);
        self.note_contained();
        for failure in failures {
            self.note_abort(failure);
        }
    }

    /// The state of the hook for a checkpoint. It is empty if the hook fails, and the failure is in
    /// [`failures`](Rig::failures).
    pub fn state_dict(&mut self) -> State {
        match self.runner.states(&self.run.at.progress) {
            Ok(mut states) => {
                self.note_contained();
                states.remove(&self.name).unwrap_or_else(State::empty)
            }
            Err(failure) => {
                self.note_abort(failure);
                State::empty()
            }
        }
    }

    /// Restores the state of the hook. A failure is in [`failures`](Rig::failures).
    pub fn load_state_dict(&mut self, state: &State) {
        let states = HookStates::from([(self.name.clone(), state.clone())]);
        match self.runner.load_states(&states, &self.run.at.progress) {
            Ok(()) => self.note_contained(),
            Err(failure) => self.note_abort(failure),
        }
    }

    /// Simulates that the run is killed now and resumed from a checkpoint with a fresh hook. The state of the
    /// hook is serialized to JSON and back, as in a checkpoint. Metrics, blackboard, random streams and all
    /// set values are kept; other hooks are not.
    ///
    /// A hook resumes correctly if both rigs have the same results for the same further events.
    ///
    /// # Panics
    ///
    /// If the state cannot be serialized to JSON.
    #[must_use]
    #[track_caller]
    pub fn resumed(&mut self, fresh: H) -> Rig<H> {
        let state = through_json(&self.state_dict(), &self.name);
        let mut rig = Rig::registered(fresh, self.how.clone());
        rig.run = self.run.resumed();
        rig.runner.publish(&rig.run.shared);
        rig.load_state_dict(&state);
        rig
    }
}

/// Serializes to JSON and back, as a checkpoint does.
#[track_caller]
pub(crate) fn through_json<T: Serialize + DeserializeOwned>(state: &T, hook: &str) -> T {
    let text = match serde_json::to_string(state) {
        Ok(text) => text,
        Err(error) => panic!("the state of `{hook}` has no JSON form: {error}"),
    };
    match serde_json::from_str(&text) {
        Ok(state) => state,
        Err(error) => panic!("the state of `{hook}` cannot be read from JSON: {error}"),
    }
}
