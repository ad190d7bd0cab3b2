//! The order in which hooks receive an event.

use tenterhook_core::runner::RosterError;
use tenterhook_core::{Event, HookGroup, Registration, Tier};

use crate::bench::Bench;

fn bench_of_all_tiers() -> Bench {
    let mut bench = Bench::new();
    for (name, tier) in [
        ("checkpoint", Tier::Checkpoint),
        ("early stopping", Tier::BuiltInMonitor),
        ("bar", Tier::BuiltIn),
        ("mine", Tier::User),
        ("judge", Tier::Monitor),
        ("lr monitor", Tier::BuiltIn),
        ("mine too", Tier::User),
    ] {
        let actor = bench.actor(name).tier(tier);
        bench.add(actor);
    }
    bench
}

#[test]
fn user_hooks_then_built_ins_then_monitors_then_checkpoints() {
    let expected = ["mine", "mine too", "bar", "lr monitor", "judge", "early stopping", "checkpoint"];
    assert_eq!(bench_of_all_tiers().receivers(), expected);
}

#[test]
fn a_user_hook_registered_late_still_comes_before_the_built_ins() {
    let mut bench = bench_of_all_tiers();
    bench.receivers();
    let late = bench.actor("late");
    bench.add(late);
    assert_eq!(bench.receivers()[..4], ["mine", "mine too", "late", "bar"]);
}

#[test]
fn the_groups_of_hooks_are_complete_and_do_not_overlap() {
    use tenterhook_core::TrainEpochEnd;
    let mut bench = bench_of_all_tiers();
    let all = bench.receivers();
    let mut parts = Vec::new();
    for part in [HookGroup::BeforeModule, HookGroup::Monitors] {
        let cx = TrainEpochEnd::new(crate::bench::run_cx(&bench.shared, bench.progress));
        bench.runner.deliver_to(part, &cx).unwrap();
        parts.push(bench.log.take());
    }
    assert_eq!(parts[1], ["judge", "early stopping", "checkpoint"]);
    assert_eq!(parts.concat(), all);
}

#[test]
fn two_hooks_of_one_name_are_refused() {
    let mut bench = Bench::with(&["a"]);
    let error = bench.runner.add(bench.actor("a")).unwrap_err();
    assert_eq!(error.to_string(), "there is a hook named `a` already; give one of them another name");
    assert_eq!(error, RosterError::Duplicate("a".into()));
    assert_eq!(bench.receivers(), ["a"]);
}

#[test]
fn the_name_identity_is_reserved() {
    let mut bench = Bench::with(&[]);
    assert!(bench.runner.add(bench.actor("identity")).is_err());
}

#[test]
fn a_hook_is_known_by_the_name_it_is_registered_under() {
    let mut bench = Bench::with(&["a"]);
    let how = Registration { name: Some("b".into()), ..Registration::default() };
    bench.runner.register(bench.actor("a"), how).unwrap();
    assert_eq!(bench.names(), ["a", "b"]);
    bench.runner.disable("b").unwrap();
    assert_eq!(bench.receivers(), ["a"]);
}

#[test]
fn a_name_is_free_again_when_its_hook_is_removed() {
    let mut bench = Bench::with(&["a", "b"]);
    bench.runner.remove("a").unwrap();
    let again = bench.actor("a");
    bench.add(again);
    assert_eq!(bench.receivers(), ["b", "a"]);
    assert_eq!(bench.names(), ["b", "a"]);
}

#[test]
fn an_event_without_receivers_is_not_wanted() {
    let bench = Bench::with(&["a"]);
    assert!(bench.runner.wants(Event::TrainEpochStart));
    assert!(!bench.runner.wants(Event::StepEnd));
}
