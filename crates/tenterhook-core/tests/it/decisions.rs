//! Decisions are recorded in order; the checkpoint tier saves within its own turn.

use tenterhook_core::hook::{Reply, reply};
use tenterhook_core::{
    Decided, Decision, Delivered, Event, EventRef, Flow, Hook, HookSpec, Part, Request, SaveCheckpoint,
    SaveRequest, Tier, TrainEpochEnd,
};
use tenterhook_testkit::Rig;

use crate::bench::{Bench, moment};

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
    let decided = |hook: &str, decision| Decided { hook: hook.to_owned(), event, decision };
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
fn what_was_decided_before_a_failure_stays_recorded() {
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

/// `a`, a checkpoint hook that saves twice and stops, a checkpoint hook that saves once.
fn checkpoint_bench() -> Bench {
    let mut bench = Bench::with(&["a"]);
    let both =
        Decision::stop("saved").request(Request::Save(save("one"))).request(Request::Save(save("two")));
    let first = bench.actor("first").tier(Tier::Checkpoint).acting(move |event, _| {
        Ok(if event == Event::TrainEpochEnd { both.clone() } else { Decision::CONTINUE })
    });
    let second = bench.actor("second").tier(Tier::Checkpoint).acting(|event, _| {
        let save = Decision::CONTINUE.request(Request::Save(save("three")));
        Ok(if event == Event::TrainEpochEnd { save } else { Decision::CONTINUE })
    });
    bench.add(first);
    bench.add(second);
    bench
}

#[test]
fn the_checkpoint_hook_pauses_the_delivery_which_goes_on_where_it_stood() {
    let mut bench = checkpoint_bench();
    let cx = TrainEpochEnd::new(moment(&bench.shared, bench.progress));
    let mut cursor = bench.runner.cursor(Event::TrainEpochEnd, Part::All);
    let paused = bench.runner.deliver(&cx, &mut cursor).unwrap();
    assert_eq!(paused, Delivered::Paused(vec![save("one"), save("two")]));
    assert_eq!(bench.log.take(), ["a", "first"]);
    let paused = bench.runner.deliver(&cx, &mut cursor).unwrap();
    assert_eq!(paused, Delivered::Paused(vec![save("three")]));
    assert_eq!(bench.runner.deliver(&cx, &mut cursor).unwrap(), Delivered::Done);
    assert_eq!(bench.log.take(), ["second"]);
    // The saves are carried out within the turn; what else was decided is recorded.
    assert_eq!(bench.decided(), [("first".to_owned(), Flow::Stop { reason: "saved".into() })]);
}

#[test]
fn a_save_that_another_hook_asks_for_is_a_decision_like_any_other() {
    let mut bench = Bench::new();
    let saver = bench.actor("saver").tier(Tier::Monitor).acting(|_, _| Ok(Decision::save_now()));
    bench.add(saver);
    bench.start().unwrap();
    assert_eq!(bench.runner.take_decisions()[0].decision, Decision::save_now());
}

#[test]
fn toggles_requested_during_a_pause_wait_for_the_paused_event() {
    let mut bench = Bench::new();
    let saver = bench.actor("saver").tier(Tier::Checkpoint).acting(|event, _| {
        Ok(if event == Event::TrainEpochEnd { Decision::save_now() } else { Decision::CONTINUE })
    });
    let switcher = bench.actor("switcher").tier(Tier::Checkpoint).acting(|event, moment| {
        if event == Event::SaveCheckpoint {
            moment.hooks().remove("last");
            moment.hooks().disable("saver");
        }
        Ok(Decision::CONTINUE)
    });
    let last = bench.actor("last").tier(Tier::Checkpoint);
    for actor in [saver, switcher, last] {
        bench.add(actor);
    }

    let cx = TrainEpochEnd::new(moment(&bench.shared, bench.progress));
    let mut cursor = bench.runner.cursor(Event::TrainEpochEnd, Part::All);
    assert!(matches!(bench.runner.deliver(&cx, &mut cursor), Ok(Delivered::Paused(_))));
    bench.log.take();

    bench.runner.pause();
    let entries = tenterhook_core::context::Entries::default();
    let inner = SaveCheckpoint::new(moment(&bench.shared, bench.progress), &entries);
    let mut inner_cursor = bench.runner.cursor(Event::SaveCheckpoint, Part::All);
    bench.runner.deliver(&inner, &mut inner_cursor).unwrap();
    bench.runner.resume();
    assert_eq!(bench.log.take(), ["saver", "switcher", "last"]);
    assert_eq!(bench.names(), ["saver", "switcher", "last"], "nothing has changed yet");

    assert_eq!(bench.runner.deliver(&cx, &mut cursor).unwrap(), Delivered::Done);
    assert_eq!(bench.log.take(), ["switcher", "last"], "the paused event still reaches everyone");
    assert_eq!(bench.receivers(), ["switcher"]);
}

#[test]
fn a_hook_disabled_while_its_state_was_taken_in_a_pause_gets_nothing_more() {
    use crate::states::Stateful;
    use tenterhook_core::Policy;

    let mut bench = Bench::new();
    let saver = bench.actor("saver").tier(Tier::Checkpoint).acting(|_, _| Ok(Decision::save_now()));
    bench.add(saver);
    let mut bad = Stateful::new("bad", &bench.log);
    (bad.tier, bad.policy, bad.panics) = (Tier::Checkpoint, Policy::WARN, true);
    bench.runner.add(bad).unwrap();

    let cx = TrainEpochEnd::new(moment(&bench.shared, bench.progress));
    let mut cursor = bench.runner.cursor(Event::TrainEpochEnd, Part::All);
    assert!(matches!(bench.runner.deliver(&cx, &mut cursor), Ok(Delivered::Paused(_))));
    bench.runner.pause();
    bench.runner.states(&bench.progress).unwrap();
    bench.runner.resume();
    assert_eq!(bench.runner.deliver(&cx, &mut cursor).unwrap(), Delivered::Done);
    assert_eq!(bench.log.take(), ["saver", "bad asked"], "not even the rest of the paused event");

    let mut cursor = bench.runner.cursor(Event::TrainEpochEnd, Part::All);
    let cx = TrainEpochEnd::new(moment(&bench.shared, bench.progress));
    bench.runner.deliver(&cx, &mut cursor).unwrap();
    bench.runner.deliver(&cx, &mut cursor).unwrap();
    assert_eq!(bench.log.take(), ["saver"], "nor what comes after it");
}

/// Written by hand, it could say anything.
struct Lies(HookSpec);

impl Hook for Lies {
    fn spec(&self) -> HookSpec {
        self.0.clone().wants(Event::TrainEpochEnd).wants(Event::FitEnd)
    }
    fn deliver(&mut self, _: EventRef<'_>) -> Reply {
        reply(Ok(Decision::stop("enough")))
    }
}

#[test]
fn a_decision_of_an_observer_is_refused_also_where_hook_is_written_by_hand() {
    let observer = Rig::new(Lies(HookSpec::observer("lies"))).on_train_epoch_end().clone();
    assert!(observer.decision.is_continue());
    assert!(observer.failure.is_some());
    let mut rig = Rig::new(Lies(HookSpec::controller("lies")));
    assert!(!rig.on_train_epoch_end().decision.is_continue());
    let watching = rig.on_fit_end();
    assert!(watching.decision.is_continue() && watching.failure.is_some(), "nothing can be decided there");
}
