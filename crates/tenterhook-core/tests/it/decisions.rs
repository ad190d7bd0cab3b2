//! Decisions are recorded in the order of delivery.

use tenterhook_core::hook::{EventResult, event_result};
use tenterhook_core::{
    Decision, Event, EventRef, Flow, Hook, HookDecision, HookSpec, Request, SaveRequest, Tier, TrainEpochEnd,
};
use tenterhook_testkit::Rig;

use crate::bench::{Bench, run_cx};

#[test]
fn every_decision_is_recorded_in_the_order_of_delivery() {
    let mut bench = Bench::new();
    for (name, decision) in [
        ("a", Decision::stop("enough")),
        ("b", Decision::CONTINUE),
        ("c", Decision::skip_update()),
        ("d", Decision::scale_lr(0.5).and(Flow::EndEpoch)),
    ] {
        let actor = bench.actor(name).acting(move |_, _| Ok(decision.clone()));
        bench.add(actor);
    }
    bench.start().unwrap();
    assert!(bench.runner.has_decisions());
    let event = Event::TrainEpochStart;
    let decided = |hook: &str, decision| HookDecision { hook: hook.to_owned(), event, decision };
    assert_eq!(
        bench.runner.take_decisions(),
        [
            decided("a", Decision::stop("enough")),
            decided("c", Decision::skip_update()),
            decided("d", Decision::scale_lr(0.5).and(Flow::EndEpoch)),
        ]
    );
    assert!(!bench.runner.has_decisions());
}

#[test]
fn decisions_before_a_failure_stay_recorded() {
    let mut bench = Bench::new();
    let stops = bench.actor("stops").acting(|_, _| Ok(Decision::stop("enough")));
    let fails = bench.actor("fails").acting(|_, _| Err("broken".into()));
    bench.add(stops);
    bench.add(fails);
    assert!(bench.start().is_err());
    assert_eq!(bench.decided().len(), 1);
}

fn save(path: &str) -> SaveRequest {
    SaveRequest { path: Some(path.into()), ..SaveRequest::default() }
}

#[test]
fn saves_are_decisions_like_any_other_and_wait_for_all_hooks() {
    let mut bench = Bench::with(&["a"]);
    let twice =
        Decision::stop("saved").request(Request::Save(save("one"))).request(Request::Save(save("two")));
    let (first, second) = (twice.clone(), Decision::CONTINUE.request(Request::Save(save("three"))));
    for (name, decision) in [("first", first), ("second", second.clone())] {
        let actor = bench.actor(name).tier(Tier::Checkpoint).acting(move |_, _| Ok(decision.clone()));
        bench.add(actor);
    }
    bench.start().unwrap();
    assert_eq!(bench.log.take(), ["a", "first", "second"]);
    let decided: Vec<_> =
        bench.runner.take_decisions().into_iter().map(|decided| (decided.hook, decided.decision)).collect();
    assert_eq!(decided, [("first".to_owned(), twice), ("second".to_owned(), second)]);
}

#[test]
fn a_hook_disabled_while_saving_its_state_receives_no_more_events() {
    use crate::states::Stateful;
    use tenterhook_core::Policy;

    let mut bench = Bench::with(&["a"]);
    let mut bad = Stateful::new("bad", &bench.log);
    (bad.policy, bad.panics) = (Policy::WARN, true);
    bench.runner.add(bad).unwrap();
    bench.runner.states(&bench.progress).unwrap();
    assert_eq!(bench.log.take(), ["bad asked"]);

    let cx = TrainEpochEnd::new(run_cx(&bench.shared, bench.progress));
    bench.runner.deliver(&cx).unwrap();
    assert_eq!(bench.log.take(), ["a"]);
}

/// A handwritten observer that returns a decision.
struct Handwritten(HookSpec);

impl Hook for Handwritten {
    fn spec(&self) -> HookSpec {
        self.0.clone().wants(Event::TrainEpochEnd).wants(Event::FitEnd)
    }
    fn deliver(&mut self, _: EventRef<'_>) -> EventResult {
        event_result(Ok(Decision::stop("enough")))
    }
}

#[test]
fn a_decision_of_an_observer_is_refused_even_with_a_handwritten_hook() {
    let observer = Rig::new(Handwritten(HookSpec::observer("handwritten"))).on_train_epoch_end().clone();
    assert!(observer.decision.is_continue());
    assert!(observer.failure.is_some());
    let mut rig = Rig::new(Handwritten(HookSpec::controller("handwritten")));
    assert!(!rig.on_train_epoch_end().decision.is_continue());
    let watching = rig.on_fit_end();
    assert!(
        watching.decision.is_continue() && watching.failure.is_some(),
        "no decision is possible at this event"
    );
}
