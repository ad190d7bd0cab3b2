//! The rig: one hook under test, a real runner around it, and a made-up run around both.

use std::sync::{Arc, MutexGuard};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tenterhook_core::runner::HookStates;
use tenterhook_core::{AnyHook, DeliveryStats, Hook, HookRunner, Registration, State};

use crate::findings::Findings;
use crate::probe::{Probe, Probed};
use crate::world::World;

/// A hook under test.
///
/// The hook is registered with a real [`HookRunner`], so that policies, disabling and toggles are what
/// they will be in a run. Three groups of methods:
///
/// - **what is given**: [`loss`](Rig::loss), [`epoch`](Rig::epoch), [`params`](Rig::params), … say what
///   the following events find. Each stays until it is changed, and returns the rig, so that an event
///   can follow on the same line;
/// - **events**: one method per event, under the handler's name, such as
///   [`on_train_batch_end`](Rig::on_train_batch_end); [`deliver`](Rig::deliver) takes the event as a value and
///   [`play`](Rig::play) a whole script. An update hook has [`update`](Rig::update) instead, a forward hook
///   [`activation`](Rig::activation);
/// - **what came of it**: [`hook`](Rig::hook), [`decisions`](Rig::decisions), [`failures`](Rig::failures),
///   [`metrics`](Rig::metrics), ….
///
/// Decisions are recorded and not obeyed, except that learning rates change: a rig delivers what it is
/// told to.
pub struct Rig<H> {
    pub(crate) probed: Arc<Probed<H>>,
    pub(crate) name: String,
    pub(crate) runner: HookRunner,
    pub(crate) world: World,
    pub(crate) findings: Findings,
    how: Registration,
}

impl<H: Hook> Rig<H> {
    /// A rig for a hook of any kind.
    #[must_use]
    pub fn new(hook: H) -> Rig<H> {
        Rig::registered(hook, Registration::default())
    }

    /// A rig for a hook that is registered under another name or policy, or disabled.
    #[must_use]
    pub fn registered(hook: H, how: Registration) -> Rig<H> {
        let probed = Probed::new(hook);
        let probe = AnyHook::new(Probe(Arc::clone(&probed)));
        let mut rig = Rig {
            probed,
            name: how.name.clone().unwrap_or_else(|| probe.name().to_owned()),
            runner: HookRunner::default(),
            world: World::default(),
            findings: Findings::default(),
            how: how.clone(),
        };
        if let Err(error) = rig.runner.register(probe, how) {
            unreachable!("the only hook of a runner has a name of its own: {error}");
        }
        rig.runner.publish(&rig.world.shared);
        rig
    }

    /// What became so far of what the hook handed to its worker, where it has one.
    #[must_use]
    pub fn delivery_stats(&self) -> Option<DeliveryStats> {
        self.hook().delivery_stats()
    }
    /// Registers another hook beside the one under test: for hooks that leave values for each other on
    /// the board, or that enable and disable others.
    ///
    /// # Panics
    ///
    /// When there is a hook of that name already.
    #[track_caller]
    pub fn beside(&mut self, hook: impl Into<AnyHook>) -> &mut Rig<H> {
        if let Err(error) = self.runner.add(hook) {
            panic!("{error}");
        }
        self.runner.publish(&self.world.shared);
        self
    }

    /// The hook under test, to look at or to change.
    ///
    /// Let go of it before the next event; the compiler sees to that, since events need the whole rig.
    pub fn hook(&self) -> MutexGuard<'_, H> {
        self.probed.hook()
    }

    /// The call is over: the hook waits for its worker, where it has one. When it fails, the failure is among
    /// [`failures`](Rig::failures).
    pub fn finish(&mut self) {
        let failures = self.runner.finish(&self.world.at.progress, &self.world.shared);
        self.note_contained();
        for failure in failures {
            self.note_abort(failure);
        }
    }

    /// The hook's own state, as a checkpoint would hold it. When it fails there is none, and the failure
    /// is among [`failures`](Rig::failures).
    pub fn state_dict(&mut self) -> State {
        match self.runner.states(&self.world.at.progress) {
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

    /// Gives the hook a state back. When it fails, the failure is among [`failures`](Rig::failures).
    pub fn load_state_dict(&mut self, state: &State) {
        let states = HookStates::from([(self.name.clone(), state.clone())]);
        match self.runner.load_states(&states, &self.world.at.progress) {
            Ok(()) => self.note_contained(),
            Err(failure) => self.note_abort(failure),
        }
    }

    /// The same run killed here and resumed from a checkpoint with a fresh hook: the hook's state passes
    /// through JSON text, as it does in a checkpoint; metrics, board, random streams and everything
    /// given are carried over. Hooks [`beside`](Rig::beside) it are not.
    ///
    /// A hook resumes correctly when both rigs, sent the same events from here on, show the same.
    ///
    /// # Panics
    ///
    /// When the state has no JSON form.
    #[must_use]
    #[track_caller]
    pub fn resumed(&mut self, fresh: H) -> Rig<H> {
        let state = through_json(&self.state_dict(), &self.name);
        let mut rig = Rig::registered(fresh, self.how.clone());
        rig.world = self.world.resumed();
        rig.runner.publish(&rig.world.shared);
        rig.load_state_dict(&state);
        rig
    }
}

/// What comes back when a checkpoint has held it.
#[track_caller]
pub(crate) fn through_json<T: Serialize + DeserializeOwned>(state: &T, of: &str) -> T {
    let text = match serde_json::to_string(state) {
        Ok(text) => text,
        Err(error) => panic!("the state of `{of}` has no JSON form: {error}"),
    };
    match serde_json::from_str(&text) {
        Ok(state) => state,
        Err(error) => panic!("the state of `{of}` does not come back from JSON: {error}"),
    }
}
