//! Delivery of activations to the hooks that want them.

use tenterhook_core::run_context::NoModel;
use tenterhook_core::{
    Activation, Event, Events, HookExt, HookResult, HookSpec, Observer, Phase, Policy, ReceivedEvents,
    RunContext, Stage, Status, hook,
};
use tenterhook_testkit::NamedTensors;

use crate::bench::{Bench, Log};

struct Watches {
    name: &'static str,
    pattern: &'static str,
    policy: Policy,
    /// The activation at which it fails, and whether by a panic.
    fails_at: Option<(&'static str, bool)>,
    log: Log,
}

#[hook]
impl Observer for Watches {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        spec.name(self.name).policy(self.policy)
    }
    fn wants_point(&self, point: &str) -> bool {
        assert!(!(self.pattern == "!" && point == "head"), "cannot decide");
        point.contains(self.pattern)
    }
    fn on_activation(&mut self, activation: &Activation) -> HookResult {
        self.log.note(format!("{} {} {}", self.name, activation.point, activation.values.norm()));
        match self.fails_at {
            Some((point, panics)) if point == activation.point => {
                assert!(!panics, "blinded");
                Err("blind".into())
            }
            _ => Ok(()),
        }
    }
}

fn watcher(bench: &Bench, name: &'static str, pattern: &'static str) -> Watches {
    Watches { name, pattern, policy: Policy::DISABLE, fails_at: None, log: bench.log.clone() }
}

fn show(bench: &mut Bench, points: &[&str]) -> Vec<String> {
    for point in points {
        let values = NamedTensors::from([(*point, [3.0, 4.0])]);
        let status = (Stage::Fit, Phase::Train, Status::Training);
        let run_cx = RunContext::new(status, bench.progress, &bench.shared, &NoModel, &NoModel);
        bench.runner.deliver_activation(point, &values, run_cx);
    }
    bench.log.take()
}

#[test]
fn only_wanted_activations_are_delivered_in_registration_order() {
    let mut bench = Bench::new();
    assert!(!bench.runner.wants_activations(Phase::Train, &bench.progress));
    for (name, pattern) in [("mlps", ".mlp"), ("first", "blocks.0"), ("nothing", "nowhere")] {
        bench.runner.add(watcher(&bench, name, pattern)).unwrap();
    }
    assert!(bench.runner.wants_activations(Phase::Train, &bench.progress));
    let seen = show(&mut bench, &["blocks.0.mlp", "blocks.0.attention", "blocks.1.mlp", "head"]);
    assert_eq!(
        seen,
        ["mlps blocks.0.mlp 5", "first blocks.0.mlp 5", "first blocks.0.attention 5", "mlps blocks.1.mlp 5"]
    );
}

#[test]
fn the_hooks_that_want_an_activation_are_known_before_its_delivery() {
    let mut bench = Bench::new();
    for (name, pattern) in [("mlps", ".mlp"), ("first", "blocks.0"), ("bad", "!")] {
        bench.runner.add(watcher(&bench, name, pattern)).unwrap();
    }
    assert_eq!(bench.runner.hooks_wanting("blocks.0.mlp"), ["mlps", "first"]);
    assert!(bench.runner.hooks_wanting("head").is_empty(), "a hook that panics is left out");
    bench.runner.disable("mlps").unwrap();
    assert_eq!(bench.runner.hooks_wanting("blocks.0.mlp"), ["first"]);
}

#[test]
fn received_events_are_recorded_on_request() {
    let mut bench = Bench::new();
    bench.runner.add(watcher(&bench, "sees", "x")).unwrap();
    bench.runner.add(watcher(&bench, "chooses_nothing", "nowhere")).unwrap();
    bench.runner.add(watcher(&bench, "held_back", "x").when(|_| false)).unwrap();
    show(&mut bench, &["x"]);
    assert_eq!(bench.runner.received("sees"), None, "not recorded yet");
    bench.runner.record_received();
    let wanted = Events::of(&[Event::Activation]);
    let nothing = ReceivedEvents { wanted, ..ReceivedEvents::default() };
    assert_eq!(bench.runner.received("sees"), Some(nothing));
    assert_eq!(show(&mut bench, &["x", "y"]), ["sees x 5"]);
    assert_eq!(bench.runner.received("sees"), Some(ReceivedEvents { in_training: wanted, ..nothing }));
    for hook in ["chooses_nothing", "held_back"] {
        assert_eq!(bench.runner.received(hook), Some(nothing), "{hook}");
    }
}

#[test]
fn no_activation_is_wanted_when_all_hooks_are_disabled_or_removed() {
    let mut bench = Bench::new();
    bench.runner.add(watcher(&bench, "a", "")).unwrap();
    bench.runner.disable("a").unwrap();
    assert!(!bench.runner.wants_activations(Phase::Train, &bench.progress));
    assert!(show(&mut bench, &["head"]).is_empty());
    bench.runner.enable("a").unwrap();
    assert!(bench.runner.wants_activations(Phase::Train, &bench.progress));
    bench.runner.remove("a").unwrap();
    assert!(!bench.runner.wants_activations(Phase::Train, &bench.progress));
}

#[test]
fn a_panicking_forward_hook_is_disabled_and_the_others_continue() {
    let mut bench = Bench::new();
    let bad = Watches { fails_at: Some(("x", true)), ..watcher(&bench, "bad", "") };
    bench.runner.add(bad).unwrap();
    bench.runner.add(watcher(&bench, "good", "")).unwrap();
    assert_eq!(show(&mut bench, &["x", "y"]), ["bad x 5", "good x 5", "good y 5"]);
    assert_eq!(
        bench.contained(),
        ["hook `bad` panicked in on_activation (epoch 1, step 0): blinded; disabled"]
    );
    assert!(bench.runner.wants_activations(Phase::Train, &bench.progress));
}

#[test]
fn a_panic_in_wants_point_is_contained() {
    let mut bench = Bench::new();
    bench.runner.add(watcher(&bench, "bad", "!")).unwrap();
    let asked = bench.runner.wants_point("head", Phase::Train, &bench.progress);
    assert!(asked, "the activation must be delivered, so the policy applies to the panic");
    assert!(show(&mut bench, &["head"]).is_empty());
    assert_eq!(bench.contained().len(), 1);
    assert!(!bench.runner.wants_activations(Phase::Train, &bench.progress));
}

#[test]
fn a_forward_hook_is_disabled_after_three_failures() {
    let mut bench = Bench::new();
    bench.runner.add(Watches { fails_at: Some(("x", false)), ..watcher(&bench, "bad", "") }).unwrap();
    show(&mut bench, &["x", "x"]);
    assert!(bench.runner.wants_activations(Phase::Train, &bench.progress));
    show(&mut bench, &["x"]);
    assert!(!bench.runner.wants_activations(Phase::Train, &bench.progress));
    assert!(bench.runner.take_aborted().is_none());
}

#[test]
fn the_first_aborting_failure_waits_until_the_step_is_over() {
    let mut bench = Bench::new();
    (bench.progress.epoch, bench.progress.step) = (1, 8);
    for name in ["a", "b"] {
        let bad =
            Watches { policy: Policy::ABORT, fails_at: Some(("x", false)), ..watcher(&bench, name, "") };
        bench.runner.add(bad).unwrap();
    }
    assert_eq!(show(&mut bench, &["x", "y"]), ["a x 5"], "no activation is delivered after it");
    let failure = bench.runner.take_aborted().expect("it waits");
    assert_eq!(failure.to_string(), "hook `a` failed in on_activation (epoch 2, step 8): blind");
    assert!(bench.runner.take_aborted().is_none());
}
