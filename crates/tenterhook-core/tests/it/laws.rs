//! Property tests for any list of hooks and any sequence of changes.

use proptest::prelude::*;
use tenterhook_core::{Decision, OnError, Policy, Tier};

use crate::bench::Bench;

fn any_tier() -> impl Strategy<Value = Tier> {
    use Tier::{BuiltIn, BuiltInMonitor, Checkpoint, Monitor, User};
    prop::sample::select(vec![User, BuiltIn, Monitor, BuiltInMonitor, Checkpoint])
}

/// A change of the list of hooks. Hooks are named by small numbers.
#[derive(Clone, Debug)]
enum Toggle {
    Add(u8, Tier),
    Enable(u8),
    Disable(u8),
    Remove(u8),
}

fn any_toggle() -> impl Strategy<Value = Toggle> {
    prop_oneof![
        2 => (0..6u8, any_tier()).prop_map(|(name, tier)| Toggle::Add(name, tier)),
        1 => (0..6u8).prop_map(Toggle::Enable),
        1 => (0..6u8).prop_map(Toggle::Disable),
        1 => (0..6u8).prop_map(Toggle::Remove),
    ]
}

/// A simple model of a list of hooks.
#[derive(Default)]
struct Model(Vec<(u8, Tier, bool)>);

impl Model {
    /// Returns `false` if the change is refused.
    fn apply(&mut self, toggle: &Toggle) -> bool {
        let at = |model: &Model, name: u8| model.0.iter().position(|hook| hook.0 == name);
        match *toggle {
            Toggle::Add(name, tier) => {
                let free = at(self, name).is_none();
                self.0.extend(free.then_some((name, tier, true)));
                free
            }
            Toggle::Enable(name) => at(self, name).map(|at| self.0[at].2 = true).is_some(),
            Toggle::Disable(name) => at(self, name).map(|at| self.0[at].2 = false).is_some(),
            Toggle::Remove(name) => at(self, name).map(|at| self.0.remove(at)).is_some(),
        }
    }

    fn receivers(&self) -> Vec<String> {
        let mut enabled: Vec<_> = self.0.iter().filter(|hook| hook.2).collect();
        enabled.sort_by_key(|hook| hook.1);
        enabled.into_iter().map(|hook| hook.0.to_string()).collect()
    }
}

proptest! {
    #[test]
    fn the_order_of_receivers_depends_on_tier_and_registration_only(tiers in prop::collection::vec(any_tier(), 0..20)) {
        let mut bench = Bench::new();
        for (number, tier) in tiers.iter().enumerate() {
            let actor = bench.actor(&number.to_string()).tier(*tier);
            bench.add(actor);
        }
        let mut expected: Vec<_> = tiers.iter().enumerate().map(|(number, tier)| (*tier, number)).collect();
        expected.sort_unstable();
        let expected: Vec<_> = expected.iter().map(|(_, number)| number.to_string()).collect();
        prop_assert_eq!(bench.receivers(), expected);
    }

    #[test]
    fn enabling_and_disabling_matches_the_model(toggles in prop::collection::vec(any_toggle(), 0..40)) {
        let (mut bench, mut model) = (Bench::new(), Model::default());
        for toggle in &toggles {
            let accepted = model.apply(toggle);
            let done = match toggle {
                Toggle::Add(name, tier) => bench.runner.add(bench.actor(&name.to_string()).tier(*tier)),
                Toggle::Enable(name) => bench.runner.enable(&name.to_string()),
                Toggle::Disable(name) => bench.runner.disable(&name.to_string()),
                Toggle::Remove(name) => bench.runner.remove(&name.to_string()),
            };
            prop_assert_eq!(done.is_ok(), accepted);
            prop_assert_eq!(bench.receivers(), model.receivers());
        }
    }

    /// One hook requests several changes per event; the other hooks receive that event unchanged.
    #[test]
    fn toggles_from_inside_take_effect_between_events(
        rounds in prop::collection::vec(prop::collection::vec(any_toggle(), 0..6), 0..10)
    ) {
        let (mut bench, mut model) = (Bench::new(), Model::default());
        let mut script = rounds.clone().into_iter();
        let log = bench.log.clone();
        let director = bench.actor("director").acting(move |_, run_cx| {
            for toggle in script.next().unwrap_or_default() {
                match toggle {
                    Toggle::Add(name, tier) => {
                        run_cx.hooks().add(crate::bench::Actor::new(&name.to_string(), &log).tier(tier));
                    }
                    Toggle::Enable(name) => run_cx.hooks().enable(&name.to_string()),
                    Toggle::Disable(name) => run_cx.hooks().disable(&name.to_string()),
                    Toggle::Remove(name) => run_cx.hooks().remove(&name.to_string()),
                }
            }
            Ok(tenterhook_core::Decision::CONTINUE)
        });
        bench.add(director);
        for toggles in &rounds {
            let expected = model.receivers();
            let seen = bench.receivers();
            prop_assert_eq!(&seen[0], "director");
            prop_assert_eq!(&seen[1..], &expected[..]);
            let refused = toggles.iter().filter(|toggle| !model.apply(toggle)).count();
            prop_assert_eq!(bench.refused().len(), refused);
        }
    }
}

/// The action of a hook at an event.
#[derive(Clone, Copy, Debug)]
enum Act {
    Nothing,
    Fail,
    Panic,
    /// Disables itself or another hook.
    Disable(usize),
    Remove(usize),
}

fn any_act(hooks: usize) -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => Just(Act::Nothing),
        2 => Just(Act::Fail),
        1 => Just(Act::Panic),
        1 => (0..hooks).prop_map(Act::Disable),
        1 => (0..hooks).prop_map(Act::Remove),
    ]
}

proptest! {
    /// An event reaches every hook that was enabled when it began, once and in order, whichever hooks fail or
    /// are removed.
    #[test]
    fn no_hook_is_skipped_when_others_fail_or_leave(
        most in prop::collection::vec(1..4u32, 5),
        rounds in prop::collection::vec(prop::collection::vec(any_act(5), 5), 1..8),
    ) {
        let mut bench = Bench::new();
        for (number, max_failures) in most.iter().enumerate() {
            let mut script: Vec<_> = rounds.iter().map(|acts| acts[number]).collect();
            script.reverse();
            let policy = Policy { on_error: OnError::Disable, max_failures: *max_failures };
            let actor = bench.actor(&number.to_string()).policy(policy).acting(move |_, run_cx| {
                match script.pop().unwrap_or(Act::Nothing) {
                    Act::Nothing => {}
                    Act::Fail => return Err("made up".into()),
                    // A panic that prints nothing.
                    Act::Panic => std::panic::resume_unwind(Box::new("made up")),
                    Act::Disable(other) => run_cx.hooks().disable(&other.to_string()),
                    Act::Remove(other) => run_cx.hooks().remove(&other.to_string()),
                }
                Ok(Decision::CONTINUE)
            });
            bench.add(actor);
        }
        // A hook acts at the events that it receives.
        let (mut there, mut failures, mut events) = ([true; 5], [0; 5], [0; 5]);
        let mut contained = 0;
        for _ in &rounds {
            let before = there;
            let receivers: Vec<_> = (0..5).filter(|number| before[*number]).map(|number| number.to_string()).collect();
            prop_assert_eq!(bench.receivers(), receivers);
            for number in (0..5).filter(|number| before[*number]) {
                let act = rounds[events[number]][number];
                events[number] += 1;
                failures[number] += u32::from(matches!(act, Act::Fail | Act::Panic));
                match act {
                    Act::Panic => there[number] = false,
                    Act::Fail if failures[number] >= most[number] => there[number] = false,
                    Act::Disable(other) | Act::Remove(other) => there[other] = false,
                    Act::Nothing | Act::Fail => {}
                }
            }
            contained += bench.contained().len();
            prop_assert_eq!(contained, failures.iter().sum::<u32>() as usize);
        }
    }
}
