//! A repeated failure is reported once, recorded every time and counted at the end. With `debug`, the first
//! of its kind has a backtrace.

use serde_json::Value;
use tenterhook::toy::Toy;
use tenterhook::{
    FailureKind, Failures, HookResult, Observer, OnError, Policy, Registration, RunError, RunNotice,
    Settings, StepEnd, TrainBatchEnd, Trainer, closure, hook,
};

use crate::call_log::{CallLog, Recorder, SharedVec};
use crate::lab::{Lab, data, epochs};
use crate::run_directory::{latest, plan, run_json};

/// Fails at every step, and panics at the end of the first batch.
struct Failing {
    panics: bool,
}

#[hook(name = "failing")]
impl Observer for Failing {
    fn on_step_end(&mut self, cx: &StepEnd) -> HookResult {
        Err(format!("no step {}", cx.step).into())
    }
    fn on_train_batch_end(&mut self, _: &TrainBatchEnd) -> HookResult {
        assert!(!self.panics, "out of the batch");
        Ok(())
    }
}

/// A trainer with that hook, and its notices.
fn failing(
    settings: Settings,
    policy: Policy,
    panics: bool,
) -> (Trainer, SharedVec<String>, tempfile::TempDir) {
    let (root, told) = (tempfile::tempdir().unwrap(), SharedVec::new());
    let tell = told.clone();
    let mut trainer =
        Trainer::new(settings).unwrap().with_run_directory(plan(root.path())).with_notices(move |notice| {
            if !matches!(notice, RunNotice::Started(_)) {
                tell.push(notice.to_string());
            }
        });
    let how = Registration { policy: Some(policy), ..Registration::default() };
    trainer.register(Failing { panics }, how).unwrap();
    (trainer, told, root)
}

fn failure_lines(root: &std::path::Path) -> Vec<Value> {
    let text = std::fs::read_to_string(latest(root).join("events.jsonl")).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["event"] == "failure").collect()
}

#[test]
fn a_failure_in_every_step_is_reported_once_and_recorded_and_counted_every_time() {
    let (mut trainer, told, root) = failing(epochs(3), Policy::WARN, false);
    let report = trainer.fit(&mut Toy::default(), &mut data(50, 0)).unwrap();
    let once = "hook `failing` failed in on_step_end (epoch 1, step 1): no step 1; the run continues, and further \
                failures of this kind are only counted";
    assert_eq!(told.take(), [once]);
    let Failures { kinds, left_out: 0 } = &report.failures else { panic!("{:?}", report.failures) };
    let [FailureKind { by, at, count: 150, step: 1, error, panicked: false, disabled: false, .. }] =
        &kinds[..]
    else {
        panic!("{kinds:?}")
    };
    assert_eq!((by.as_str(), at.as_str(), error.as_str()), ("hook `failing`", "on_step_end", "no step 1"));
    let lines = failure_lines(root.path());
    assert_eq!(lines.len(), 150);
    assert!(lines.iter().all(|line| line["backtrace"].is_null()), "nobody asked for one");
    let listed = &run_json(&latest(root.path()))["failures"];
    assert_eq!((&listed[0]["count"], &listed[0]["error"]), (&150.into(), &"no step 1".into()), "{listed}");
    assert_eq!(listed.as_array().map(Vec::len), Some(1));
}

#[test]
fn disabling_a_hook_is_reported_even_if_its_kind_of_failure_was_reported() {
    let (mut trainer, told, _root) = failing(epochs(1), Policy::DISABLE, false);
    trainer.fit(&mut Toy::default(), &mut data(5, 0)).unwrap();
    let told = told.take();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[1].contains("(failure number 3); the hook is disabled"), "{told:?}");
}

#[test]
fn a_panic_is_another_kind_than_an_error() {
    let (mut trainer, told, _root) = failing(epochs(1), Policy::WARN, true);
    let report = trainer.fit(&mut Toy::default(), &mut data(5, 0)).unwrap();
    assert_eq!(told.take().len(), 2);
    let kinds: Vec<_> =
        report.failures.kinds.iter().map(|kind| (kind.at.as_str(), kind.panicked, kind.disabled)).collect();
    assert_eq!(kinds, [("on_step_end", false, false), ("on_train_batch_end", true, true)]);
}

#[test]
fn a_thousand_failing_hooks_give_a_readable_list() {
    let mut trainer = Trainer::new(epochs(1)).unwrap().with_notices(|_| {});
    for number in 0..1000 {
        let failing = closure::on_train_start(format!("hook {number}"), |_| -> () { panic_quietly() });
        trainer.add_hook(failing).unwrap();
    }
    let call_log = CallLog::default();
    trainer.add_hook(Recorder::new("last", &call_log)).unwrap();
    let report = trainer.fit(&mut Toy::default(), &mut data(2, 0)).unwrap();
    assert_eq!((report.failures.kinds.len(), report.failures.left_out), (100, 900));
    assert_eq!(trainer.list_hooks().iter().filter(|hook| !hook.enabled).count(), 1000);
    assert!(call_log.places("hook:last").contains(&"on_train_start"), "nobody is skipped");
    assert_eq!(report.progress.step, 2);
}

fn panic_quietly() {
    std::panic::resume_unwind(Box::new("a panic that prints nothing"));
}

#[test]
fn in_debug_the_first_failure_of_a_kind_has_a_backtrace() {
    let debug = Settings { debug: true, ..epochs(1) };
    let (mut trainer, told, root) = failing(debug, Policy::WARN, true);
    trainer.fit(&mut Toy::default(), &mut data(3, 0)).unwrap();
    let lines = failure_lines(root.path());
    let traces: Vec<_> =
        lines.iter().map(|line| (line["panicked"] == true, line["backtrace"].as_str())).collect();
    let [(false, Some(error)), (true, Some(panic))] = traces[..] else { panic!("{traces:?}") };
    assert!(error.contains("tenterhook"), "{error}");
    assert!(panic.contains("failing_often::Failing") && panic.contains("on_train_batch_end"), "{panic}");
    assert!(told.take().iter().all(|told| !told.contains("failing_often::")), "the console is for people");
}

#[test]
fn in_debug_only_the_first_failure_of_a_kind_has_a_backtrace() {
    let debug = Settings { debug: true, ..epochs(1) };
    let (mut trainer, _, root) = failing(debug, Policy::WARN, false);
    trainer.fit(&mut Toy::default(), &mut data(3, 0)).unwrap();
    let has: Vec<_> = failure_lines(root.path()).iter().map(|line| line["backtrace"].is_string()).collect();
    assert_eq!(has, [true, false, false]);
}

#[test]
fn in_debug_a_panic_of_the_module_has_a_backtrace() {
    let (root, call_log) = (tempfile::tempdir().unwrap(), CallLog::default());
    let settings = Settings { debug: true, ..epochs(1) };
    let mut trainer =
        Trainer::new(settings).unwrap().with_run_directory(plan(root.path())).with_notices(|_| {});
    let mut lab = Lab::new(Toy::default(), &call_log).with_step(|_, _, _| panic!("in its step"));
    let Err(RunError::Failed { failure, .. }) = trainer.fit(&mut lab, &mut data(1, 0)) else {
        panic!("it fails")
    };
    let trace = failure.trace.expect("it is kept").to_string();
    assert!(trace.contains("in_debug_a_panic_of_the_module_has_a_backtrace"), "{trace}");
    let lines = failure_lines(root.path());
    assert_eq!((lines.len(), &lines[0]["aborted"], &lines[0]["by"]), (1, &true.into(), &"module".into()));
    assert_eq!(lines[0]["backtrace"].as_str(), Some(trace.as_str()));
}

#[test]
fn the_costs_of_an_evaluation_are_added_to_those_of_training() {
    let (mut trainer, _, root) =
        failing(epochs(1), Policy { on_error: OnError::Warn, max_failures: 3 }, false);
    trainer
        .register(closure::on_test_end("tests", |_| -> () { panic_quietly() }), Registration::default())
        .unwrap();
    let mut toy = Toy::default();
    trainer.fit(&mut toy, &mut data(2, 0)).unwrap();
    let tested = trainer.test(&mut toy, &mut data(2, 0)).unwrap();
    assert_eq!(tested.failures.kinds.len(), 1, "a report is of its own call");
    let listed = run_json(&latest(root.path()))["failures"].clone();
    let listed: Vec<_> = listed.as_array().unwrap().iter().map(|kind| kind["at"].clone()).collect();
    assert_eq!(listed, ["on_step_end", "on_test_end"]);
}
