//! Effects of errors and panics under each policy.

use tenterhook_core::{BoxError, Decision, OnError, Policy};

use crate::bench::{Actor, Bench};

fn failing(actor: Actor) -> Actor {
    actor.acting(|_, _| Err(BoxError::from("broken")))
}

fn panicking(actor: Actor) -> Actor {
    actor.acting(|_, _| panic!("fell over"))
}

/// A bench with the hook `bad` between `before` and `after`, at epoch 2 and step 40.
fn bench(policy: Policy, make: fn(Actor) -> Actor) -> Bench {
    let mut bench = Bench::with(&["before"]);
    let bad = make(bench.actor("bad").policy(policy));
    bench.add(bad);
    let after = bench.actor("after");
    bench.add(after);
    (bench.progress.epoch, bench.progress.step) = (2, 40);
    bench
}

#[test]
fn an_aborting_error_stops_the_delivery() {
    let mut bench = bench(Policy::ABORT, failing);
    let failure = bench.start().unwrap_err();
    assert_eq!(failure.to_string(), "hook `bad` failed in on_train_epoch_start (epoch 3, step 40): broken");
    assert_eq!(bench.log.take(), ["before", "bad"], "later hooks do not receive the event");
    assert!(bench.is_enabled("bad"));
    assert!(bench.contained().is_empty());
}

#[test]
fn an_aborting_panic_stops_the_delivery() {
    let mut bench = bench(Policy::ABORT, panicking);
    let failure = bench.start().unwrap_err();
    assert_eq!(
        failure.to_string(),
        "hook `bad` panicked in on_train_epoch_start (epoch 3, step 40): fell over"
    );
    assert_eq!(bench.log.take(), ["before", "bad"]);
    assert!(bench.is_enabled("bad"));
}

#[test]
fn policy_warn_never_disables_and_counts_failures() {
    let mut bench = bench(Policy::WARN, failing);
    for _ in 0..10 {
        assert_eq!(bench.receivers(), ["before", "bad", "after"]);
    }
    let line = "hook `bad` failed in on_train_epoch_start (epoch 3, step 40): broken";
    assert_eq!(bench.contained(), vec![line; 10]);
    assert_eq!(bench.runner.list()[1].failures, 10);
    assert_eq!(bench.runner.list()[1].on_error, OnError::Warn);
}

#[test]
fn a_hook_is_disabled_after_max_failures() {
    for max_failures in [1, 2, 5] {
        let mut bench = bench(Policy { max_failures, ..Policy::DISABLE }, failing);
        for _ in 0..max_failures {
            assert_eq!(bench.receivers(), ["before", "bad", "after"], "the failing event reaches all hooks");
        }
        assert_eq!(bench.receivers(), ["before", "after"]);
        let contained = bench.contained();
        assert_eq!(contained.len(), max_failures as usize);
        let disabled = contained.iter().filter(|line| line.ends_with("; disabled")).count();
        assert_eq!(disabled, 1, "{contained:?}");
        assert!(contained.last().unwrap().ends_with("; disabled"));
    }
}

#[test]
fn a_panic_disables_immediately_even_under_policy_warn() {
    for policy in [Policy::WARN, Policy::DISABLE] {
        let mut bench = bench(policy, panicking);
        assert_eq!(bench.receivers(), ["before", "bad", "after"]);
        assert_eq!(bench.receivers(), ["before", "after"]);
        assert_eq!(
            bench.contained(),
            ["hook `bad` panicked in on_train_epoch_start (epoch 3, step 40): fell over; disabled"]
        );
    }
}

#[test]
fn a_disabled_hook_that_is_enabled_again_keeps_its_count() {
    let mut bench = bench(Policy { max_failures: 2, ..Policy::DISABLE }, failing);
    bench.receivers();
    bench.receivers();
    bench.runner.enable("bad").unwrap();
    assert_eq!(bench.receivers(), ["before", "bad", "after"]);
    assert_eq!(bench.receivers(), ["before", "after"], "one more failure is enough");
}

#[test]
fn on_exception_reaches_all_hooks_even_if_some_fail() {
    let mut bench = Bench::with(&["a"]);
    let failing = failing(bench.actor("fails"));
    let panicking = panicking(bench.actor("panics"));
    let warned = bench.actor("warns").policy(Policy::WARN).acting(|_, _| Err("hm".into()));
    for actor in [failing, panicking, warned] {
        bench.add(actor);
    }
    let last = bench.actor("z");
    bench.add(last);
    let failures: Vec<_> = bench.exception().iter().map(ToString::to_string).collect();
    assert_eq!(bench.log.take(), ["a", "fails", "panics", "warns", "z"]);
    assert_eq!(
        failures,
        [
            "hook `fails` failed in on_exception (epoch 1, step 0): broken",
            "hook `panics` panicked in on_exception (epoch 1, step 0): fell over",
        ]
    );
    assert_eq!(bench.contained(), ["hook `warns` failed in on_exception (epoch 1, step 0): hm"]);
}

#[test]
fn the_source_of_a_failure_is_kept() {
    use std::error::Error;
    let mut bench = Bench::new();
    let hook = bench.actor("a").acting(|_, _| {
        "x".parse::<u8>()?;
        Ok(Decision::CONTINUE)
    });
    bench.add(hook);
    let failure = bench.start().unwrap_err();
    let source = failure.source().expect("it is kept");
    assert!(source.is::<std::num::ParseIntError>());
}
