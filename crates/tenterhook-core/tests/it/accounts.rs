//! Cost accounting of hooks: calls, times of a fake clock, and budgets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenterhook_core::run_context::{Clock, NoModel};
use tenterhook_core::{
    AnyHook, Budget, Controller, Cost, Decision, Event, HookCost, HookExt, HookResult, HookRunner, HookSpec,
    Observer, OverBudget, Phase, Policy, Progress, ReadCounts, Registration, RunContext, RunInfo, RunState,
    Scalar, Stage, Status, StepEnd, TrainEpochEnd, hook, read_counter,
};

/// A fake clock that hooks advance, and that counts how often it was read.
#[derive(Clone, Default)]
struct TestClock {
    now: Arc<AtomicU64>,
    read: Arc<AtomicU64>,
}

impl TestClock {
    fn advance(&self, nanos: u64) {
        self.now.fetch_add(nanos, Ordering::Relaxed);
    }
}

impl Clock for TestClock {
    fn elapsed(&self) -> Duration {
        self.read.fetch_add(1, Ordering::Relaxed);
        Duration::from_nanos(self.now.load(Ordering::Relaxed))
    }
}

type Act = Box<dyn FnMut(&TestClock) -> HookResult + Send>;

/// An observer that runs an action at every step and at the end of an epoch.
struct Timed {
    clock: TestClock,
    act: Act,
}

#[hook]
impl Observer for Timed {
    fn on_step_end(&mut self, _: &StepEnd) -> HookResult {
        (self.act)(&self.clock)
    }
    fn on_train_epoch_end(&mut self, _: &TrainEpochEnd) -> HookResult {
        (self.act)(&self.clock)
    }
}

/// The same as a controller.
struct Steers(Timed);

#[hook]
impl Controller for Steers {
    fn on_step_end(&mut self, _: &StepEnd) -> HookResult<Decision> {
        (self.0.act)(&self.0.clock).map(|()| Decision::CONTINUE)
    }
}

struct Loop {
    runner: HookRunner,
    shared: RunState,
    progress: Progress,
    clock: TestClock,
}

impl Loop {
    fn new() -> Loop {
        let clock = TestClock::default();
        let shared = RunState::new(RunInfo::default(), 0, Box::new(clock.clone()));
        Loop { runner: HookRunner::default(), shared, progress: Progress::default(), clock }
    }

    fn takes(&self, nanos: u64) -> Timed {
        self.acts(move |clock| {
            clock.advance(nanos);
            Ok(())
        })
    }

    fn acts(&self, act: impl FnMut(&TestClock) -> HookResult + Send + 'static) -> Timed {
        Timed { clock: self.clock.clone(), act: Box::new(act) }
    }

    fn add(&mut self, name: &str, hook: impl Into<AnyHook>, mut how: Registration) {
        how.name = Some(name.into());
        self.runner.register(hook, how).unwrap();
    }

    fn steps(&mut self, steps: u64) {
        let Loop { runner, shared, progress, .. } = self;
        for _ in 0..steps {
            let at = (Stage::Fit, Phase::Train, Status::Training);
            let run_cx = RunContext::new(at, *progress, shared, &NoModel, &NoModel);
            let cx = StepEnd::new(run_cx, Scalar::new(&0.5), Scalar::new(&0.5), 0.1, 0.1);
            runner.deliver(&cx).unwrap();
            progress.step += 1;
        }
    }

    fn ends_epoch(&mut self) {
        let Loop { runner, shared, progress, .. } = self;
        let at = (Stage::Fit, Phase::Train, Status::Training);
        let run_cx = RunContext::new(at, *progress, shared, &NoModel, &NoModel);
        runner.deliver(&TrainEpochEnd::new(run_cx)).unwrap();
    }

    fn cost(&self, hook: &str) -> HookCost {
        self.runner.costs().into_iter().find(|cost| cost.hook == hook).unwrap()
    }
}

fn at(cost: &HookCost, event: &str) -> Cost {
    cost.by_event.iter().find(|(name, _)| *name == event).unwrap().1
}

#[test]
fn every_hook_has_its_own_time_by_event() {
    let mut test_loop = Loop::new();
    test_loop.add("quick", test_loop.takes(100), Registration::default());
    test_loop.add("slow", test_loop.takes(5000), Registration::default());
    test_loop.steps(100);
    test_loop.ends_epoch();
    let (quick, slow) = (test_loop.cost("quick"), test_loop.cost("slow"));
    assert_eq!((quick.cost.calls, quick.cost.total), (101, Duration::from_nanos(10_100)));
    assert_eq!((slow.cost.calls, slow.cost.total), (101, Duration::from_micros(505)));
    let names: Vec<_> = slow.by_event.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["on_train_epoch_end", "on_step_end"], "in the order of the table of events");
    assert_eq!((at(&slow, "on_step_end").calls, at(&slow, "on_train_epoch_end").calls), (100, 1));
    assert_eq!(at(&slow, "on_train_epoch_end").longest, Duration::from_micros(5));
    assert!(slow.cost.p50.abs_diff(Duration::from_micros(5)) < Duration::from_nanos(700), "{slow:?}");
}

#[test]
fn after_a_thousand_deliveries_one_in_sixteen_is_timed() {
    let mut test_loop = Loop::new();
    test_loop.add("even", test_loop.takes(1000), Registration::default());
    let mut calls = 0;
    // Every sixteenth call is slow: sampling at a fixed interval would time all of these calls or none.
    let rare = test_loop.acts(move |clock| {
        calls += 1;
        clock.advance(if calls % 16 == 0 { 16_000 } else { 0 });
        Ok(())
    });
    test_loop.add("rare", rare, Registration::default());
    test_loop.steps(1000);
    let clock_reads = test_loop.clock.read.load(Ordering::Relaxed);
    assert_eq!(clock_reads, 3 * 1000, "before the first hook and after each");
    test_loop.steps(64_000);
    let clock_reads = test_loop.clock.read.load(Ordering::Relaxed) - clock_reads;
    assert!(
        (3 * 3500..3 * 4500).contains(&clock_reads),
        "{clock_reads} readings of the clock for 64000 steps"
    );
    for hook in ["even", "rare"] {
        let cost = test_loop.cost(hook);
        assert_eq!(cost.cost.calls, 65_000);
        let share = cost.cost.total.as_secs_f64() / 65e-3;
        assert!((share - 1.0).abs() < 0.15, "{hook}: {cost:?}");
    }
}

#[test]
fn a_withheld_event_is_no_call() {
    let mut test_loop = Loop::new();
    test_loop.add("gated", test_loop.takes(10).every("10 steps").unwrap(), Registration::default());
    test_loop.steps(2000);
    assert_eq!(test_loop.cost("gated").cost.calls, 200);
    assert!(test_loop.cost("gated").cost.p50 > Duration::ZERO, "withheld events are not timed as calls");
}

#[test]
fn errors_and_panics_are_calls_too() {
    let mut test_loop = Loop::new();
    let mut calls = 0;
    let bad = test_loop.acts(move |clock| {
        clock.advance(50);
        calls += 1;
        assert!(calls < 3, "made up");
        Err("broken".into())
    });
    test_loop.add("bad", bad, Registration { policy: Some(Policy::WARN), ..Registration::default() });
    test_loop.add("after", test_loop.takes(7), Registration::default());
    test_loop.steps(5);
    let bad = test_loop.cost("bad");
    assert_eq!((bad.cost.calls, bad.failures, bad.enabled), (3, 3, false));
    assert_eq!(bad.cost.total, Duration::from_nanos(150));
    assert_eq!(test_loop.cost("after").cost.total, Duration::from_nanos(35));
}

#[test]
fn reads_from_the_engine_are_charged_to_the_reading_hook() {
    let mut test_loop = Loop::new();
    let reads = test_loop.acts(|_| {
        read_counter::count_scalar();
        read_counter::count_tensor();
        read_counter::count_tensor();
        Ok(())
    });
    test_loop.add("looks on", test_loop.takes(1), Registration::default());
    test_loop.add("reads", reads, Registration::default());
    read_counter::count_scalar(); // of another hook
    test_loop.steps(1500);
    assert_eq!(test_loop.cost("looks on").read, ReadCounts::default());
    assert_eq!(test_loop.cost("reads").read, ReadCounts { scalars: 1500, tensors: 3000 });
}

#[test]
fn earlier_engine_work_for_a_tensor_is_charged_to_its_reader() {
    let mut test_loop = Loop::new();
    let reads = test_loop.acts(|clock| {
        clock.advance(100);
        read_counter::count_tensor();
        read_counter::add_engine_time(Duration::from_nanos(900));
        Ok(())
    });
    test_loop.add("looks on", test_loop.takes(1), Registration::default());
    test_loop.add("reads", reads, Registration::default());
    test_loop.steps(10);
    let cost = test_loop.cost("reads").cost;
    assert_eq!((cost.calls, cost.total), (10, Duration::from_micros(10)));
    assert_eq!(cost.longest, Duration::from_nanos(100), "of the call itself");
    assert_eq!(test_loop.cost("looks on").cost.total, Duration::from_nanos(10));
}

#[test]
fn work_of_the_loop_for_a_hook_is_charged_to_it() {
    let mut test_loop = Loop::new();
    test_loop.add("saves", test_loop.takes(10), Registration::default());
    test_loop.steps(1);
    test_loop.runner.charge("saves", Event::StepEnd, Duration::from_nanos(990));
    let cost = test_loop.cost("saves").cost;
    assert_eq!(
        (cost.calls, cost.total, cost.longest),
        (1, Duration::from_micros(1), Duration::from_micros(1))
    );
}

#[test]
fn without_accounting_no_clock_is_read_and_nothing_is_counted() {
    let mut test_loop = Loop::new();
    test_loop.runner.set_accounting(false);
    test_loop.add("quick", test_loop.takes(100), Registration::default());
    test_loop.steps(10);
    test_loop.runner.charge("quick", Event::StepEnd, Duration::from_secs(1));
    assert_eq!(test_loop.clock.read.load(Ordering::Relaxed), 0);
    assert_eq!(test_loop.cost("quick").cost, Cost::default());
}

fn budget(share: f64, over: OverBudget) -> Registration {
    Registration { budget: Some(Budget { share, over }), ..Registration::default() }
}

#[test]
fn a_budget_overrun_is_reported_once() {
    let mut test_loop = Loop::new();
    assert!(!test_loop.runner.has_budgets());
    test_loop.add("expensive", test_loop.takes(30), budget(0.02, OverBudget::Warn));
    test_loop.add("cheap", test_loop.takes(10), budget(0.02, OverBudget::Disable));
    assert!(test_loop.runner.has_budgets());
    test_loop.steps(100);
    let over = test_loop.runner.check_budgets(Duration::from_micros(100), false);
    let reported: Vec<_> = over.iter().map(|over| (over.hook.as_str(), over.budget, over.disabled)).collect();
    assert_eq!(reported, [("expensive", 0.02, false)]);
    assert!((over[0].share - 0.03).abs() < 1e-9, "{over:?}");
    assert_eq!(test_loop.runner.check_budgets(Duration::from_micros(100), false), []);
    assert!(test_loop.cost("expensive").enabled && test_loop.cost("cheap").enabled);
}

/// Reads what the observer `writes` writes.
struct Reads;

#[hook]
impl Controller for Reads {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        spec.reads("made/by_writes")
    }
    fn on_step_end(&mut self, _: &StepEnd) -> HookResult<Decision> {
        Ok(Decision::CONTINUE)
    }
}

#[test]
fn only_an_observer_that_no_steering_hook_reads_is_disabled() {
    let mut test_loop = Loop::new();
    test_loop.add("observer", test_loop.takes(50), budget(0.02, OverBudget::Disable));
    test_loop.add("steers", Steers(test_loop.takes(50)), budget(0.02, OverBudget::Disable));
    test_loop.add(
        "writes",
        AnyHook::new(test_loop.takes(50)).writes("made/by_writes"),
        budget(0.02, OverBudget::Disable),
    );
    test_loop.add("reads", Reads, Registration::default());
    test_loop.steps(100);
    let over = test_loop.runner.check_budgets(Duration::from_micros(100), false);
    let reported: Vec<_> = over.iter().map(|over| (over.hook.as_str(), over.disabled)).collect();
    assert_eq!(reported, [("observer", true), ("steers", false), ("writes", false)]);
    assert_eq!(test_loop.runner.take_roster_changes().len(), 1);
    test_loop.steps(1);
    assert_eq!((test_loop.cost("observer").cost.calls, test_loop.cost("steers").cost.calls), (100, 101));
    assert!(!test_loop.cost("observer").enabled);
}
