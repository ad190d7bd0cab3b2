//! A verification reports only on exercised hooks, and only confirmed results.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tenterhook::hooks::{ActivationStats, GradientMonitor};
use tenterhook::neutral::{self, ComparePoint, ComparedItem, Finding, NeutralityReport, Verification};
use tenterhook::run::Interrupt;
use tenterhook::toy::{Toy, ToyBatch};
use tenterhook::{Decision, FromOptions, HookExt, StepOutput, closure};

use crate::call_log::CallLog;
use crate::lab::{Lab, data, epochs, trainer};
use crate::verify_neutral::{Engine, causes, innocent, intruder, lab, tested, training};

/// A verification of two neutral observers in which the runs with these numbers differ at step 3.
fn tested_with_odd(odd: &[u64]) -> NeutralityReport {
    let made = AtomicU64::new(0);
    let report = neutral::verify(6, || {
        // Number 0 is only built to list the hooks.
        let is_odd = odd.contains(&made.fetch_add(1, Ordering::Relaxed));
        let lab = Lab::new(Toy::default(), &CallLog::default()).with_step(move |lab, batch, cx| {
            let other = ToyBatch::of(vec![([5.0, 1.0], 1.0)]);
            let goes = is_odd && cx.progress().step == 2;
            Ok(StepOutput::Loss(lab.toy.loss(if goes { &other } else { batch })))
        });
        Ok((trainer(epochs(10)).with_hooks([innocent("a"), innocent("b")])?, lab, data(4, 0)))
    });
    report.unwrap()
}

#[test]
fn a_difference_that_occurs_only_once_is_not_attributed_to_a_hook() {
    let with_all = tested_with_odd(&[2]);
    let text = with_all.to_string();
    assert!(matches!(with_all.finding, Finding::NotDeterministic { .. }), "{text}");
    assert!(
        text.contains("the run with all observers differs when it is repeated, first at step 3"),
        "{text}"
    );
    // The runs with all observers are alike, but only one of the runs with `a` alone differs.
    let with_one = tested_with_odd(&[2, 4, 5]);
    let text = with_one.to_string();
    assert!(text.contains("the run with `a` alone differs when it is repeated"), "{text}");
}

#[test]
fn a_hook_that_did_nothing_is_not_called_neutral() {
    let report = neutral::verify(8, || {
        let mut training = training(&epochs(10), |_| Vec::new())?;
        let trainer = &mut training.0;
        trainer.add_hook(GradientMonitor::from_options(serde_json::from_str("{}")?)?)?;
        let validate = serde_json::from_str(r#"{ "stages": ["validate"] }"#)?;
        trainer.add_hook(ActivationStats::from_options(validate)?)?;
        trainer.add_hook(closure::on_test_end("tests", |_| ()))?;
        trainer.add_hook(closure::on_step_end("waits", |_| ()).when(|_| false))?;
        training.2 = data(4, 0);
        Ok(training)
    });
    let report = report.unwrap();
    assert_eq!(report.finding, Finding::NothingExercised, "{report}");
    assert!(!report.is_neutral());
    let why: Vec<_> = report.not_exercised.iter().map(|idle| idle.why.as_str()).collect();
    assert_eq!(why[0], "it fires every 100 steps, and the run was shorter; 100 steps would do");
    assert!(why[1].starts_with("it received none of the events that it waits for (on_activation"), "{why:?}");
    assert_eq!(why[2], "it received none of the events that it waits for (on_test_end)");
    assert_eq!(why[3], "it received none of the events that it waits for (on_step_end)");
    assert!(report.to_string().starts_with("nothing was proved: no observer was exercised in 8 steps"));
}

#[test]
fn looking_at_validations_alone_is_enough_where_there_are_some() {
    let report = neutral::verify(8, || {
        let mut training = training(&epochs(10), |_| Vec::new())?;
        let looks = |cx: &tenterhook::Activation<'_>| assert!(cx.values.norm() >= 0.0);
        training.0.add_hook(closure::on_activation("trains", looks))?;
        training.0.add_hook(closure::on_validation_end("validates", |_| ()))?;
        training.0.add_hook(closure::on_train_end("ends", |_| ()))?;
        Ok(training)
    });
    let report = report.unwrap();
    assert!(report.is_neutral() && report.not_exercised.is_empty(), "{report}");
}

#[test]
fn in_the_usual_number_of_steps_all_hooks_fire_that_are_not_too_rare() {
    let steps = |cadences: &[&str]| {
        let mut trainer = trainer(epochs(1));
        for cadence in cadences {
            trainer.add_hook(closure::on_step_end(*cadence, |_| ()).every(cadence).unwrap()).unwrap();
        }
        neutral::usual_steps(&trainer)
    };
    assert_eq!(steps(&[]), 50);
    assert_eq!(steps(&["10 steps"]), 50);
    assert_eq!(steps(&["10 steps", "120 steps", "1000 steps", "2 epochs"]), 120);
}

#[test]
fn the_metrics_of_validations_are_compared() {
    let report = neutral::verify(8, || {
        let engine = Engine::default();
        let draws = engine.clone();
        let lab = lab(&engine).with_handler(move |place, cx| {
            if place == "validation_step" {
                cx.log("val/drawn", f64::from(draws.draw()));
            }
        });
        let spy = closure::on_validation_start("spy", move |cx| {
            cx.log("val/of_its_own", 1.0);
            engine.draw();
        });
        Ok((trainer(epochs(10)).with_hooks([innocent("a"), spy.into()])?, lab, data(3, 1)))
    });
    let report = report.unwrap();
    assert_eq!(causes(&report), [["spy"]]);
    let Finding::Differs { difference, .. } = &report.finding else { panic!("{report}") };
    assert_eq!((difference.step, difference.place), (3, ComparePoint::Validation));
    let changed: Vec<_> = difference.tensors.iter().map(|changed| &changed.what).collect();
    assert_eq!(changed, [&ComparedItem::Metric { name: "val/drawn".into() }]);
    assert!(difference.tensors[0].largest.is_some_and(|size| size > 0.0), "{difference:?}");
    assert!(report.to_string().contains("first at the validation after step 3\n"), "{report}");
}

#[test]
fn changes_after_the_last_step_are_compared() {
    let report = neutral::verify(50, || {
        let flag = Arc::new(AtomicU64::new(0));
        let raise = Arc::clone(&flag);
        let raises = closure::on_step_end("raises", move |cx| raise.store(cx.step, Ordering::Relaxed));
        let halves = closure::on_train_epoch_end("halves", move |_| {
            let last = flag.load(Ordering::Relaxed) == 8;
            if last { Decision::scale_lr(0.5) } else { Decision::CONTINUE }
        });
        let hooks: [tenterhook::AnyHook; 2] = [raises.into(), halves.into()];
        Ok((trainer(epochs(2)).with_hooks(hooks)?, Toy::default(), data(4, 0)))
    });
    let report = report.unwrap();
    assert_eq!(causes(&report), [["raises"]]);
    let text = report.to_string();
    assert!(text.contains("first at the end of training after step 8\n"), "{text}");
    assert!(text.contains("weight decay of group `all` of sgd, by at most 5.000e-2\n"), "{text}");
}

#[test]
fn an_interruption_ends_a_validation_too() {
    let (interrupt, validated) = (Interrupt::new(), Arc::new(AtomicU64::new(0)));
    let (asked, seen) = (interrupt.clone(), Arc::clone(&validated));
    let verification = Verification::of(30).with_interrupt(interrupt);
    let ended = verification.run(|| {
        let (asked, seen) = (asked.clone(), Arc::clone(&seen));
        let lab = lab(&Engine::default()).with_handler(move |place, _| {
            if place == "validation_step" {
                seen.fetch_add(1, Ordering::Relaxed);
                asked.request("SIGINT");
            }
        });
        Ok((trainer(epochs(10)).with_hooks([innocent("a")])?, lab, data(4, 20)))
    });
    assert_eq!(ended.unwrap_err().to_string(), "interrupted by SIGINT: nothing was compared");
    assert_eq!(validated.load(Ordering::Relaxed), 1);
}

#[test]
fn a_hook_may_have_the_name_of_the_recorder() {
    let report = tested(4, |engine| {
        vec![innocent("neutrality_recorder"), innocent("neutrality_recorder_"), intruder("spy", engine, 2)]
    });
    assert_eq!(causes(&report), [["spy"]]);
}
