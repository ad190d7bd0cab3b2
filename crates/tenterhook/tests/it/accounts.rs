//! The cost of hooks, and what happens if they exceed their budget.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenterhook::run::HookCosts;
use tenterhook::toy::Toy;
use tenterhook::{
    AnyHook, Budget, BudgetOverrun, Clock, Controller, Decision, Gradients, HookExt, HookResult, HookSpec,
    OverBudget, Registration, Report, RunNotice, Settings, StepEnd, Trainer, Update, UpdateHook, closure,
    hook,
};

use crate::call_log::SharedVec;
use crate::clock::Hand;
use crate::lab::{data, epochs, trainer};
use crate::line::{Batches, Line, points};
use crate::run_directory::{latest, recorded, run_json};

fn budget(percent: f64, over: OverBudget) -> Registration {
    Registration { budget: Some(Budget { share: percent / 100.0, over }), ..Registration::default() }
}

/// A trainer with nine seconds of work in every batch, and this hook, which takes one second per batch.
fn one_in_ten(mut trainer: Trainer, hand: &Hand, slow: impl Into<AnyHook>, how: Registration) -> Trainer {
    let turned = hand.clone();
    trainer = trainer.with_clock(hand.clone());
    trainer.add_hook(closure::on_after_forward("work", move |_| turned.turn(9))).unwrap();
    trainer.register(slow, how).unwrap();
    trainer
}

fn slow(hand: &Hand, calls: &SharedVec<u64>) -> AnyHook {
    let (hand, calls) = (hand.clone(), calls.clone());
    closure::on_step_end("slow", move |cx| {
        calls.push(cx.step);
        hand.turn(1);
    })
    .into()
}

fn overruns(report: &Report) -> Vec<BudgetOverrun> {
    let overrun = |notice: &RunNotice| match notice {
        RunNotice::OverBudget(overrun) => Some(overrun.clone()),
        _ => None,
    };
    report.notices.iter().filter_map(overrun).collect()
}

/// The budget notices of a hook that takes a tenth of the time, and its number of calls in 300 batches.
fn judged(how: Registration) -> (Vec<BudgetOverrun>, usize) {
    let (hand, calls) = (Hand::at(3600), SharedVec::new());
    let mut trainer = one_in_ten(trainer(epochs(3)), &hand, slow(&hand, &calls), how);
    let report = trainer.fit(&mut Toy::default(), &mut data(100, 0)).unwrap();
    (overruns(&report), calls.take().len())
}

/// The time of a hook at an event, in whole seconds, and its number of calls.
pub fn taken(costs: &HookCosts, hook: &str, event: &str) -> (f64, u64) {
    let of_event = costs.hook(hook).unwrap().by_event.iter().find(|cost| cost.event == event);
    of_event.map_or((0.0, 0), |cost| (cost.calls.total.as_secs_f64().round(), cost.calls.calls))
}

fn is_a_tenth(share: f64) -> bool {
    (share - 0.1).abs() < 1e-9
}

#[test]
fn a_hook_over_its_budget_is_reported_once_and_continues() {
    let (told, calls) = judged(budget(5.0, OverBudget::Warn));
    assert_eq!((told.len(), calls), (1, 300), "{told:?}");
    assert!(told[0].hook == "slow" && is_a_tenth(told[0].share) && !told[0].disabled, "{told:?}");
}

#[test]
fn a_hook_over_its_budget_is_disabled_if_so_configured_and_recorded() {
    let (root, hand, calls) = (tempfile::tempdir().unwrap(), Hand::at(0), SharedVec::new());
    let how = budget(5.0, OverBudget::Disable);
    let mut trainer = one_in_ten(recorded(root.path(), epochs(3)), &hand, slow(&hand, &calls), how);
    let report = trainer.fit(&mut Toy::default(), &mut data(100, 0)).unwrap();
    assert_eq!(calls.take().len(), 100, "it is looked at every hundred batches");
    let told = overruns(&report);
    assert!(told.len() == 1 && told[0].disabled, "{told:?}");
    assert!(!trainer.list_hooks().iter().find(|hook| hook.name == "slow").unwrap().enabled);
    let events = std::fs::read_to_string(latest(root.path()).join("events.jsonl")).unwrap();
    let lines = events.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let lines: Vec<_> =
        lines.filter(|line| line["event"] == "over_budget" || line["event"] == "toggle").collect();
    assert_eq!(lines.len(), 2, "{events}");
    assert_eq!((&lines[0]["hook"], &lines[0]["disabled"]), (&"slow".into(), &true.into()));
    assert!(is_a_tenth(lines[0]["share"].as_f64().unwrap()) && lines[0]["budget"] == 0.05, "{events}");
    assert_eq!((&lines[1]["change"]["disable"], &lines[1]["step"]), (&"slow".into(), &100.into()));
    let said = RunNotice::OverBudget(told[0].clone()).to_string();
    assert_eq!(said, "hook `slow` takes 10 % of the step time, and its budget is 5 %; it is disabled");
}

#[test]
fn the_budgets_of_a_short_run_are_checked_at_its_end() {
    let (hand, calls) = (Hand::at(0), SharedVec::new());
    let how = budget(5.0, OverBudget::Disable);
    let mut trainer = one_in_ten(trainer(epochs(2)), &hand, slow(&hand, &calls), how);
    let report = trainer.fit(&mut Toy::default(), &mut data(10, 0)).unwrap();
    let told = overruns(&report);
    assert!(told.len() == 1 && is_a_tenth(told[0].share) && !told[0].disabled, "{told:?}");
    assert_eq!(calls.take().len(), 20);
    let said = RunNotice::OverBudget(told[0].clone()).to_string();
    assert_eq!(said, "hook `slow` takes 10 % of the step time, and its budget is 5 %");
}

#[test]
fn shares_are_of_training_steps_and_what_hooks_take_at_other_times_is_in_their_total() {
    let (hand, calls) = (Hand::at(0), SharedVec::new());
    let how = budget(11.0, OverBudget::Disable);
    let mut trainer = one_in_ten(trainer(epochs(2)), &hand, slow(&hand, &calls), how);
    let [at_set_up, judging, ending] = [(); 3].map(|()| hand.clone());
    trainer.add_hook(closure::setup("sets_up", move |_| at_set_up.turn(1000))).unwrap();
    trainer.add_hook(closure::on_validation_batch_end("judges", move |_| judging.turn(1000))).unwrap();
    trainer.add_hook(closure::on_train_epoch_end("ends", move |_| ending.turn(1000))).unwrap();
    let report = trainer.fit(&mut Toy::default(), &mut data(100, 3)).unwrap();
    let costs = &report.hook_costs;
    assert!((costs.seconds - 2000.0).abs() < 1e-6, "steps alone: {}", costs.seconds);
    assert!(is_a_tenth(costs.hook("slow").unwrap().share), "{costs:?}");
    for hook in ["sets_up", "judges", "ends"] {
        let cost = costs.hook(hook).unwrap();
        assert!(
            cost.share == 0.0
                && cost.calls.total >= Duration::from_secs(1000)
                && cost.calls.in_steps.is_zero(),
            "{cost:?}"
        );
    }
    assert_eq!(overruns(&report), []);
}

#[test]
fn shares_are_of_the_call_if_it_has_no_steps() {
    let hand = Hand::at(0);
    let mut trainer = trainer(epochs(1)).with_clock(hand.clone());
    let [slow, work] = [(); 2].map(|()| hand.clone());
    trainer.add_hook(closure::on_test_batch_end("slow", move |_| slow.turn(1))).unwrap();
    trainer.add_hook(closure::on_test_batch_start("work", move |_| work.turn(9))).unwrap();
    let costs = trainer.test(&mut Toy::default(), &mut data(0, 4)).unwrap().hook_costs;
    assert!(is_a_tenth(costs.hook("slow").unwrap().share), "{costs:?}");
}

#[test]
fn a_hook_behind_a_gate_is_timed_whenever_it_is_called() {
    let (hand, calls) = (Hand::at(0), SharedVec::new());
    let rare = slow(&hand, &calls).every("700 steps").unwrap();
    let mut trainer = one_in_ten(trainer(epochs(1)), &hand, rare, Registration::default());
    let costs = trainer.fit(&mut Toy::default(), &mut data(4000, 0)).unwrap().hook_costs;
    let cost = costs.hook("slow").unwrap().calls;
    assert_eq!((cost.calls, cost.estimated, calls.take().len()), (5, false, 5), "{cost:?}");
    assert!(cost.total == Duration::from_secs(5) && (cost.p50.as_secs_f64() - 1.0).abs() < 0.13, "{cost:?}");
}

#[test]
fn the_time_and_the_reads_of_a_gate_are_charged_to_its_hook() {
    let hand = Hand::at(0);
    let asks = hand.clone();
    let gated = closure::on_step_end("gated", |_| ()).when(move |run_cx| {
        asks.turn(2);
        run_cx.latest_loss().is_some_and(f64::is_nan)
    });
    let next = closure::on_step_end("next", |_| ());
    let mut trainer =
        trainer(epochs(1)).with_clock(hand).with_hooks([AnyHook::new(gated), next.into()]).unwrap();
    let costs = trainer
        .fit(&mut Line::new(0.25), &mut Batches::of(vec![points(&[(1.0, 1.0)]); 6]))
        .unwrap()
        .hook_costs;
    let [gated, next] = ["gated", "next"].map(|name| costs.hook(name).unwrap().clone());
    assert_eq!((gated.calls.calls, gated.read.scalars), (0, 6), "{gated:?}");
    assert_eq!(gated.calls.total, Duration::from_secs(12), "{gated:?}");
    assert_eq!((next.calls.calls, next.calls.total, next.read.scalars), (6, Duration::ZERO, 0), "{next:?}");
}

#[test]
fn a_hook_within_its_budget_is_left_alone() {
    assert_eq!(judged(budget(20.0, OverBudget::Disable)), (Vec::new(), 300));
    assert_eq!(judged(Registration::default()), (Vec::new(), 300));
}

struct Steers(Hand);

#[hook]
impl Controller for Steers {
    fn on_step_end(&mut self, _: &StepEnd) -> HookResult<Decision> {
        self.0.turn(1);
        Ok(Decision::CONTINUE)
    }
}

#[test]
fn a_controller_over_its_budget_is_only_reported() {
    let hand = Hand::at(0);
    let how = budget(5.0, OverBudget::Disable);
    let mut trainer = one_in_ten(trainer(epochs(3)), &hand, Steers(hand.clone()), how);
    let report = trainer.fit(&mut Toy::default(), &mut data(100, 0)).unwrap();
    let told = overruns(&report);
    assert!(told.len() == 1 && !told[0].disabled, "{told:?}");
    assert_eq!(report.hook_costs.hook(&told[0].hook).unwrap().calls.calls, 300);
}

#[test]
fn a_second_call_adds_to_the_costs_and_the_time() {
    let (hand, calls) = (Hand::at(0), SharedVec::new());
    let mut trainer = one_in_ten(trainer(epochs(1)), &hand, slow(&hand, &calls), Registration::default());
    for fits in 1..=2 {
        hand.turn(1000);
        let report = trainer.fit(&mut Toy::default(), &mut data(10, 0)).unwrap();
        let cost = report.hook_costs.hook("slow").unwrap();
        assert_eq!(cost.calls.calls, 10 * fits);
        assert!(is_a_tenth(cost.share), "what lies between calls is nobody's time: {cost:?}");
    }
}

#[test]
fn a_hook_with_a_cadence_is_timed_whenever_it_fires() {
    let hand = Hand::at(0);
    let works = hand.clone();
    let paced = closure::on_step_end("paced", move |cx| {
        if cx.count_call_if(cx.step.is_multiple_of(700)) {
            works.turn(1);
        }
    });
    let mut trainer = one_in_ten(trainer(epochs(1)), &hand, paced, Registration::default());
    let costs = trainer.fit(&mut Toy::default(), &mut data(4000, 0)).unwrap().hook_costs;
    let cost = costs.hook("paced").unwrap().calls;
    assert_eq!((cost.calls, cost.estimated), (5, false), "{cost:?}");
    assert_eq!(cost.total, Duration::from_secs(5), "{cost:?}");
}

#[test]
fn an_estimate_disables_no_hook_that_may_be_within_its_budget() {
    for every in [100, 150, 200, 250, 300, 350, 400, 450, 500] {
        let hand = Hand::at(0);
        let works = hand.clone();
        // The hook declares no cadence, so after a thousand steps its time is estimated from the few timed calls.
        let rare = closure::on_step_end("rare", move |cx| {
            works.turn(if cx.step.is_multiple_of(every) { every } else { 0 });
        });
        let mut trainer = one_in_ten(trainer(epochs(1)), &hand, rare, budget(13.0, OverBudget::Disable));
        let report = trainer.fit(&mut Toy::default(), &mut data(10_000, 0)).unwrap();
        let cost = report.hook_costs.hook("rare").unwrap().calls;
        assert_eq!(overruns(&report), [], "it takes a tenth, whatever was seen of it: {cost:?}");
        assert_eq!(cost.calls, 10_000);
    }
}

#[test]
fn budgets_of_a_resumed_run_are_not_checked_in_its_first_batches() {
    let root = tempfile::tempdir().unwrap();
    let fit = |resumes: bool| {
        let hand = Hand::at(0);
        let settings = Settings { max_steps: if resumes { 260 } else { 199 }, ..epochs(-1) };
        let mut trainer = trainer(settings).with_checkpoints_in(root.path());
        if resumes {
            trainer = trainer.restoring(root.path().join("epoch=0-step=199"));
        }
        // Slow at its first call only: ten times the budget after one batch, and within the budget after sixty.
        let (starts, started) = (hand.clone(), std::sync::atomic::AtomicBool::new(false));
        let slow = closure::on_step_end("slow", move |_| {
            if !started.swap(true, Ordering::Relaxed) {
                starts.turn(9);
            }
        });
        let mut trainer = one_in_ten(trainer, &hand, slow, budget(5.0, OverBudget::Disable));
        trainer
            .add_hook(closure::on_train_batch_end("saves", |cx| {
                if cx.step == 199 { Decision::save_now() } else { Decision::CONTINUE }
            }))
            .unwrap();
        overruns(&trainer.fit(&mut Toy::default(), &mut data(1000, 0)).unwrap())
    };
    assert_eq!(fit(false), []);
    assert_eq!(fit(true), []);
}

struct Doubles(Hand);

#[hook]
impl UpdateHook for Doubles {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        spec.name("doubles")
    }
    fn update(&mut self, gradients: &mut Gradients<'_>, _: &Update<'_>) -> HookResult {
        self.0.turn(1);
        gradients.scale(2.0);
        Ok(())
    }
}

#[test]
fn an_update_hook_over_its_budget_is_only_reported() {
    let hand = Hand::at(0);
    let how = budget(5.0, OverBudget::Disable);
    let mut trainer = one_in_ten(trainer(epochs(3)), &hand, AnyHook::new(Doubles(hand.clone())), how);
    let report = trainer.fit(&mut Toy::default(), &mut data(100, 0)).unwrap();
    let told = overruns(&report);
    assert!(told.len() == 1 && !told[0].disabled && told[0].hook == "doubles", "{told:?}");
    assert_eq!(taken(&report.hook_costs, "doubles", "update"), (300.0, 300));
    assert!(is_a_tenth(report.hook_costs.hook("doubles").unwrap().share), "{:?}", report.hook_costs);
}

#[test]
fn run_json_says_what_hooks_cost_also_of_a_run_that_fails() {
    for fails in [false, true] {
        let (root, hand, calls) = (tempfile::tempdir().unwrap(), Hand::at(0), SharedVec::new());
        let trainer = recorded(root.path(), epochs(1));
        let mut trainer = one_in_ten(trainer, &hand, slow(&hand, &calls), Registration::default());
        trainer
            .add_hook(closure::on_train_batch_end("fails", move |cx| {
                assert!(!fails || cx.step < 10, "enough");
            }))
            .unwrap();
        let abort = Registration { policy: Some(tenterhook::Policy::ABORT), ..Registration::default() };
        let stop = closure::on_train_batch_end("aborts", move |cx| assert!(!fails || cx.step < 10, "enough"));
        trainer.register(stop, abort).unwrap();
        assert_eq!(trainer.fit(&mut Toy::default(), &mut data(10, 0)).is_err(), fails);
        let costs: HookCosts =
            serde_json::from_value(run_json(&latest(root.path()))["hook_costs"].clone()).unwrap();
        let slow = costs.hook("slow").unwrap();
        assert_eq!((slow.calls.calls, slow.failures, slow.calls.estimated), (10, 0, false));
        assert!((costs.seconds - 100.0).abs() < 1e-6 && is_a_tenth(slow.share), "{costs:?}");
        assert_eq!((slow.by_event.len(), slow.by_event[0].event.as_str()), (1, "on_step_end"));
        assert_eq!(slow.by_event[0].calls, slow.calls);
        assert_eq!(costs.hook("fails").unwrap().failures, u32::from(fails));
    }
}

/// A clock that counts how often it was read to time hooks.
#[derive(Clone, Default)]
struct Asked(Arc<AtomicU64>);

impl Clock for Asked {
    fn elapsed(&self) -> Duration {
        Duration::ZERO
    }
    fn nanos(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

#[test]
fn without_accounts_no_hook_is_timed_and_unused_budgets_are_reported() {
    let run = |account_hooks| {
        let asked = Asked::default();
        let settings = Settings { account_hooks, ..epochs(1) };
        let mut trainer = trainer(settings).with_clock(asked.clone());
        trainer.register(closure::on_step_end("hook", |_| ()), budget(1.0, OverBudget::Warn)).unwrap();
        let report = trainer.fit(&mut Toy::default(), &mut data(10, 0)).unwrap();
        let said = report.notices.iter().any(|notice| notice.to_string().contains("`account_hooks` is off"));
        (asked.0.load(Ordering::Relaxed), report.hook_costs.hooks.len(), said)
    };
    assert_eq!(run(false), (0, 0, true));
    assert_eq!(run(true), (23, 1, false), "before and after each call, at teardown, and around its end");
}

#[test]
fn after_a_thousand_deliveries_times_are_estimates_and_calls_are_counted_all_the_same() {
    let (hand, calls) = (Hand::at(0), SharedVec::new());
    let mut trainer = one_in_ten(trainer(epochs(1)), &hand, slow(&hand, &calls), Registration::default());
    let costs = trainer.fit(&mut Toy::default(), &mut data(3000, 0)).unwrap().hook_costs;
    let slow = costs.hook("slow").unwrap().calls;
    assert!((slow.calls, slow.estimated) == (3000, true), "{slow:?}");
    assert!((slow.total.as_secs_f64() / 3000.0 - 1.0).abs() < 0.02, "every call takes as long: {slow:?}");
}
