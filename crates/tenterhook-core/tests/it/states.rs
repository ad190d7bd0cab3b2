//! The states of all hooks, and hooks that fail to save or load them.

use tenterhook_core::runner::HookStates;
use tenterhook_core::{
    Effect, Gradients, HookResult, HookSpec, Observer, Policy, Progress, Registration, State, Tier,
    TrainEpochEnd, TrainEpochStart, Update, UpdateHook, hook,
};

use crate::bench::{Bench, Log};

/// An observer with a state, which may panic in `state_dict`.
pub struct Stateful {
    name: String,
    log: Log,
    pub tier: Tier,
    pub policy: Policy,
    pub panics: bool,
    value: u64,
}

impl Stateful {
    pub fn new(name: &str, log: &Log) -> Stateful {
        let (tier, policy) = (Tier::User, Policy::DISABLE);
        Stateful { name: name.to_owned(), log: log.clone(), tier, policy, panics: false, value: 7 }
    }
}

#[hook]
impl Observer for Stateful {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        spec.name(&self.name).tier(self.tier).policy(self.policy)
    }
    fn on_train_epoch_start(&mut self, _: &TrainEpochStart) -> HookResult {
        self.log.note(&self.name);
        Ok(())
    }
    fn on_train_epoch_end(&mut self, _: &TrainEpochEnd) -> HookResult {
        self.log.note(&self.name);
        Ok(())
    }
    fn state_dict(&self) -> HookResult<State> {
        self.log.note(format!("{} asked", self.name));
        assert!(!self.panics, "no memory");
        Ok(State::of(1, &self.value)?)
    }
    fn load_state_dict(&mut self, state: &State) -> HookResult {
        self.value = state.read(1)?;
        self.log.note(format!("{} got {}", self.name, self.value));
        Ok(())
    }
}

/// An update hook that fails to save and to load its state.
struct FailingState(Policy);

#[hook]
impl UpdateHook for FailingState {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        spec.name("failing_state").policy(self.0)
    }
    fn update(&mut self, _: &mut Gradients<'_>, _: &Update<'_>) -> HookResult {
        Ok(())
    }
    fn state_dict(&self) -> HookResult<State> {
        panic!("cannot save")
    }
    fn load_state_dict(&mut self, _: &State) -> HookResult {
        Err("cannot load".into())
    }
}

#[test]
fn states_of_all_hooks_are_saved_in_the_order_of_delivery() {
    let mut bench = Bench::new();
    let mut last = Stateful::new("last", &bench.log);
    last.tier = Tier::Checkpoint;
    bench.runner.add(last).unwrap();
    bench.runner.add(Stateful::new("first", &bench.log)).unwrap();
    bench.runner.disable("first").unwrap();
    let states = bench.runner.states(&Progress::default()).unwrap();
    assert_eq!(bench.log.take(), ["first asked", "last asked"]);
    let state = State::of(1, &7).unwrap();
    assert_eq!(states, HookStates::from([("first".into(), state.clone()), ("last".into(), state)]));
}

#[test]
fn states_are_loaded_by_name_and_empty_ones_are_skipped() {
    let mut bench = Bench::new();
    bench.runner.add(Stateful::new("a", &bench.log)).unwrap();
    bench.runner.add(Stateful::new("b", &bench.log)).unwrap();
    let states =
        [("b", State::of(1, &9).unwrap()), ("a", State::empty()), ("gone", State::of(1, &1).unwrap())];
    let states = states.map(|(name, state)| (name.to_owned(), state)).into();
    bench.runner.load_states(&states, &Progress::default()).unwrap();
    assert_eq!(bench.log.take(), ["b got 9"]);
}

#[test]
fn a_hook_that_panics_in_state_dict_receives_no_more_events() {
    let mut bench = Bench::new();
    let mut bad = Stateful::new("bad", &bench.log);
    bad.panics = true;
    bench.runner.add(bad).unwrap();
    assert_eq!(bench.receivers(), ["bad"]);
    let states = bench.runner.states(&Progress { step: 3, ..Progress::default() }).unwrap();
    assert_eq!(states["bad"], State::empty());
    assert_eq!(
        bench.contained(),
        ["hook `bad` panicked in state_dict (epoch 1, step 3): no memory; disabled"]
    );
    bench.log.take();
    assert!(bench.receivers().is_empty());
    assert!(!bench.is_enabled("bad"));
}

#[test]
fn a_failure_to_load_a_state_names_the_hook() {
    let mut bench = Bench::new();
    let mut bad = Stateful::new("bad", &bench.log);
    bad.policy = Policy::ABORT;
    bench.runner.add(bad).unwrap();
    let states = HookStates::from([("bad".to_owned(), State::of(2, &9).unwrap())]);
    let failure = bench.runner.load_states(&states, &Progress::default()).unwrap_err();
    assert_eq!(
        failure.to_string(),
        "hook `bad` failed in load_state_dict (epoch 1, step 0): state has version 2, this program reads version 1"
    );
}

/// Checks the version of a state.
struct ChecksVersion(Policy);

#[hook]
impl Observer for ChecksVersion {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        spec.policy(self.0)
    }
    fn check_state_dict(&self, state: &State) -> HookResult {
        Ok(state.check(1, &0)?)
    }
    fn load_state_dict(&mut self, _: &State) -> HookResult {
        panic!("it is not loaded");
    }
}

#[test]
fn a_state_is_checked_only_if_an_error_would_end_the_run() {
    for (policy, version, refused) in [
        (Policy::ABORT, 2, Some("state has version 2, this program reads version 1")),
        (Policy::ABORT, 1, None),
        (Policy::WARN, 2, None),
    ] {
        let mut bench = Bench::new();
        bench.runner.add(ChecksVersion(policy)).unwrap();
        let states = HookStates::from([("checks_version".to_owned(), State::of(version, &9).unwrap())]);
        let at = Progress { step: 3, ..Progress::default() };
        let failed = bench.runner.check_states(&states, &at).err().map(|failure| failure.to_string());
        let named = |why| format!("hook `checks_version` failed in load_state_dict (epoch 1, step 3): {why}");
        assert_eq!(failed, refused.map(named));
        assert!(bench.contained().is_empty(), "a check is not a failure");
    }
}

#[test]
fn the_policy_of_an_update_hook_applies_to_its_state() {
    let mut bench = Bench::new();
    bench.runner.add(FailingState(Policy::WARN)).unwrap();
    let states = HookStates::from([("failing_state".to_owned(), State::of(1, &9).unwrap())]);
    bench.runner.load_states(&states, &Progress::default()).unwrap();
    assert_eq!(
        bench.contained(),
        ["hook `failing_state` failed in load_state_dict (epoch 1, step 0): cannot load"]
    );
    assert!(bench.runner.updates_gradients());
    bench.runner.states(&Progress::default()).unwrap();
    assert!(!bench.runner.updates_gradients(), "a panic disables");

    let mut strict = Bench::new();
    strict.runner.add(FailingState(Policy::ABORT)).unwrap();
    let failure = strict.runner.states(&Progress::default()).unwrap_err();
    assert_eq!(
        failure.to_string(),
        "hook `failing_state` panicked in state_dict (epoch 1, step 0): cannot save"
    );
}

/// An observer with an effect outside of the run directory.
struct HasEffect;

#[hook]
impl Observer for HasEffect {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        spec.effect(Effect::Command(vec!["true".to_owned()]))
    }
    fn on_train_epoch_end(&mut self, _: &TrainEpochEnd) -> HookResult {
        Ok(())
    }
}

#[test]
fn a_checkpoint_enables_no_hook_with_effects_that_is_registered_as_disabled() {
    let state = |enabled: bool| {
        let mut bench = Bench::new();
        let how = || Registration { disabled: true, ..Registration::default() };
        bench.runner.register(HasEffect, how()).unwrap();
        let how = Registration { name: Some("harmless".to_owned()), ..how() };
        bench.runner.register(bench.actor("harmless"), how).unwrap();
        for name in ["has_effect", "harmless"] {
            assert!(!bench.is_enabled(name));
            if enabled {
                bench.runner.enable(name).unwrap();
            }
        }
        bench
    };
    let (saved, mut resumed) = (state(true), state(false));
    let (kept, states) = (saved.runner.state(), HookStates::new());
    resumed.runner.restore(&kept, &states, &Progress::default(), &resumed.shared).unwrap();
    assert!(!resumed.is_enabled("has_effect"));
    assert!(resumed.is_enabled("harmless"), "other hooks are restored as enabled");
}
