//! After a failure, all receivers get `on_exception` once and `teardown` once, in order, even after further
//! failures.

use tenterhook::hooks::{Checkpoint, CheckpointOptions};
use tenterhook::module::{Interval, SchedulerPlan};
use tenterhook::toy::Toy;
use tenterhook::{
    Event, Failure, HookResult, LogOptions, Observer, Origin, Outcome, Policy, Registration, Report,
    RunError, RunNotice, Settings, Status, TrainBatchEnd, Trainer, backtraces, closure, hook,
};

use crate::call_log::{CallLog, Recorder, SharedVec};
use crate::lab::{Lab, LabData, LabStrategy, data, epochs, trainer};

const TOLD: [&str; 5] = ["hook:a", "hook:b", "module", "data", "strategy"];
const TORN_DOWN: [&str; 5] = ["strategy", "data", "hook:a", "hook:b", "module"];

#[derive(Clone, Copy, Debug)]
enum Entry {
    Fit,
    Validate,
}

/// Recorded hooks, module, data and strategy, with checkpoints, schedulers and clipping, so that every method
/// is called.
struct Bench {
    call_log: CallLog,
    trainer: Trainer,
    lab: Lab,
    data: LabData,
    _checkpoints: tempfile::TempDir,
}

impl Bench {
    fn new() -> Bench {
        Bench::with_policy(Policy::ABORT)
    }

    fn with_policy(policy: Policy) -> Bench {
        let call_log = CallLog::default();
        let checkpoints = tempfile::tempdir().unwrap();
        let settings = Settings {
            max_epochs: Some(2),
            gradient_clip_val: Some(1.0),
            background_saves: false,
            ..Settings::default()
        };
        let mut trainer = trainer(settings)
            .with_strategy(LabStrategy::new(&call_log))
            .with_checkpoints_in(checkpoints.path());
        trainer.add_hook(Recorder::new("a", &call_log).with_policy(policy)).unwrap();
        trainer.add_hook(Recorder::new("b", &call_log)).unwrap();
        trainer.add_hook(Checkpoint::new(CheckpointOptions::default()).unwrap()).unwrap();
        let toy = Toy::default().with_scheduler(SchedulerPlan::every(Interval::Step));
        let (lab, data) = (Lab::new(toy, &call_log), LabData::new(data(2, 1), &call_log));
        Bench { call_log, trainer, lab, data, _checkpoints: checkpoints }
    }

    fn run(&mut self, entry: Entry) -> Result<Report, RunError> {
        match entry {
            Entry::Fit => self.trainer.fit(&mut self.lab, &mut self.data),
            Entry::Validate => self.trainer.validate(&mut self.lab, &mut self.data),
        }
    }

    fn fails(&mut self, entry: Entry) -> (Failure, Vec<Failure>, Report) {
        match self.run(entry) {
            Err(RunError::Failed { failure, later, report }) => (failure, later, *report),
            other => panic!("it does not fail: {other:?}"),
        }
    }
}

fn origin(source: &str) -> Origin {
    match source {
        "module" => Origin::Module,
        "data" => Origin::Data,
        "strategy" => Origin::Strategy,
        hook => Origin::Hook(hook.trim_start_matches("hook:").to_owned()),
    }
}

/// Every source and place of a run without failures, once.
fn places(entry: Entry) -> Vec<(String, &'static str)> {
    let mut bench = Bench::new();
    bench.run(entry).unwrap();
    let mut places = bench.call_log.rows();
    places.sort();
    places.dedup();
    places
}

/// Checks the clean-up after a failure of this source at this place.
fn check(entry: Entry, source: &str, place: &'static str, panics: bool) {
    let case = format!("{entry:?}: {source} {} in {place}", if panics { "panics" } else { "fails" });
    let mut bench = Bench::new();
    if panics {
        bench.call_log.panics_at(source, place);
    } else {
        bench.call_log.fails_at(source, place);
    }
    let (failure, later, report) = bench.fails(entry);
    // The default snapshot calls both methods.
    let told = if ["weights", "optimizer_state"].contains(&place) { "snapshot" } else { place };
    assert_eq!((&failure.origin, failure.place, failure.panicked), (&origin(source), told, panics), "{case}");
    assert!(failure.to_string().contains(place), "{case}: {failure}");
    assert!(later.is_empty(), "{case}: {later:?}");
    assert_eq!(report.outcome, Outcome::Failed { error: failure.to_string() }, "{case}");

    let call_log = &bench.call_log;
    assert_eq!(call_log.sources("on_exception"), TOLD, "{case}");
    assert_eq!(call_log.sources("teardown"), TORN_DOWN, "{case}");
    let rows = call_log.rows();
    let told = rows.iter().position(|(_, place)| *place == "on_exception").unwrap();
    assert_eq!(rows[told - 1], (source.to_owned(), place), "{case}: nobody got anything after it");
    let after = rows[told..].iter().filter(|(_, place)| !["on_exception", "teardown"].contains(place));
    assert_eq!(after.count(), 0, "{case}: {:?}", &rows[told..]);
}

#[test]
fn an_error_anywhere_in_fit_is_reported_once_and_all_are_torn_down_once() {
    let places = places(Entry::Fit);
    assert!(places.len() > 100, "{}", places.len());
    for (source, place) in places {
        check(Entry::Fit, &source, place, false);
    }
}

#[test]
fn a_panic_anywhere_in_fit_is_reported_once_and_all_are_torn_down_once() {
    for (source, place) in places(Entry::Fit) {
        check(Entry::Fit, &source, place, true);
    }
}

#[test]
fn an_error_or_panic_anywhere_in_validate_is_reported_once_and_all_are_torn_down_once() {
    let places = places(Entry::Validate);
    assert!(places.len() > 30, "{}", places.len());
    for (source, place) in places {
        check(Entry::Validate, &source, place, false);
        check(Entry::Validate, &source, place, true);
    }
}

#[test]
fn a_panic_of_the_module_names_the_step_it_was_in() {
    let mut bench = Bench::new();
    bench.call_log.panics_at("module", "training_step");
    let (failure, ..) = bench.fails(Entry::Fit);
    assert_eq!(
        failure.to_string(),
        "module panicked in training_step (epoch 1, step 0): module panics in training_step"
    );
}

#[test]
fn failures_in_on_exception_and_teardown_follow_the_first() {
    let mut bench = Bench::new();
    bench.call_log.fails_at("module", "backward");
    for (source, place) in [("hook:a", "on_exception"), ("data", "on_exception"), ("hook:b", "teardown")] {
        bench.call_log.fails_at(source, place);
    }
    for (source, place) in [("module", "on_exception"), ("strategy", "teardown"), ("module", "teardown")] {
        bench.call_log.panics_at(source, place);
    }
    let (failure, later, _) = bench.fails(Entry::Fit);
    assert_eq!((failure.origin, failure.place), (Origin::Module, "backward"));
    let later: Vec<_> = later.iter().map(|failure| (failure.origin.clone(), failure.place)).collect();
    let expected = [
        ("hook:a", "on_exception"),
        ("module", "on_exception"),
        ("data", "on_exception"),
        ("strategy", "teardown"),
        ("hook:b", "teardown"),
        ("module", "teardown"),
    ];
    assert_eq!(later, expected.map(|(source, place)| (origin(source), place)));
    assert_eq!(bench.call_log.sources("on_exception"), TOLD);
    assert_eq!(bench.call_log.sources("teardown"), TORN_DOWN);
}

#[test]
fn a_failing_teardown_continues_with_the_rest() {
    let mut bench = Bench::new();
    for source in ["hook:a", "hook:b", "module"] {
        bench.call_log.fails_at(source, "teardown");
    }
    let (failure, later, _) = bench.fails(Entry::Fit);
    assert_eq!((failure.origin, failure.place), (Origin::Hook("a".into()), "teardown"));
    let later: Vec<_> = later.iter().map(|failure| failure.origin.clone()).collect();
    assert_eq!(later, [Origin::Hook("b".into()), Origin::Module]);
    assert_eq!(bench.call_log.sources("teardown"), TORN_DOWN);
}

#[test]
fn no_hook_is_skipped_when_another_is_removed_in_a_failing_teardown() {
    let mut bench = Bench::with_policy(Policy::WARN);
    bench.trainer.add_hook(Recorder::new("c", &bench.call_log)).unwrap();
    // The panic disables the first hook, which takes effect only after the teardown of all receivers.
    bench.call_log.panics_at("hook:a", "teardown");
    bench.call_log.fails_at("hook:b", "teardown");
    let (failure, later, _) = bench.fails(Entry::Fit);
    assert_eq!((failure.origin, later.len()), (Origin::Hook("b".into()), 0));
    assert_eq!(
        bench.call_log.sources("teardown"),
        ["strategy", "data", "hook:a", "hook:b", "hook:c", "module"]
    );
    assert!(!bench.trainer.list_hooks()[0].enabled);
}

#[test]
fn the_status_of_a_failed_run_is_error() {
    let mut bench = Bench::new();
    let seen = SharedVec::new();
    let (told, torn) = (seen.clone(), seen.clone());
    bench
        .trainer
        .add_hook(closure::on_exception("told", move |cx| {
            told.push((cx.status, cx.failure.to_string()));
        }))
        .unwrap();
    bench
        .trainer
        .add_hook(closure::teardown("torn", move |cx| {
            let Outcome::Failed { error } = cx.outcome else { panic!("{:?}", cx.outcome) };
            torn.push((cx.status, error.clone()));
        }))
        .unwrap();
    bench.call_log.fails_at("data", "next");
    let (failure, ..) = bench.fails(Entry::Validate);
    assert_eq!(seen.take(), vec![(Status::Error, failure.to_string()); 2]);
}

#[test]
fn a_status_goes_from_starting_over_training_to_completed() {
    for entry in [Entry::Fit, Entry::Validate] {
        let mut bench = Bench::new();
        let seen = SharedVec::new();
        let (setup, batch, teardown) = (seen.clone(), seen.clone(), seen.clone());
        bench.trainer.add_hook(closure::setup("setup", move |cx| setup.push(cx.status))).unwrap();
        bench
            .trainer
            .add_hook(closure::on_validation_end("batch", move |cx| {
                if cx.phase != tenterhook::Phase::SanityCheck {
                    batch.push(cx.status);
                }
            }))
            .unwrap();
        bench.trainer.add_hook(closure::teardown("teardown", move |cx| teardown.push(cx.status))).unwrap();
        bench.run(entry).unwrap();
        let mut seen = seen.take();
        seen.dedup();
        assert_eq!(seen, [Status::Starting, Status::Training, Status::Completed], "{entry:?}");
    }
}

/// For each notice of a contained failure, whether it disabled the hook, and the number of `on_step_end`
/// calls of hook `a`.
fn contained(policy: Policy, panics: bool) -> (Vec<bool>, usize) {
    let mut bench = Bench::with_policy(policy);
    if panics {
        bench.call_log.panics_at("hook:a", "on_step_end");
    } else {
        bench.call_log.fails_at("hook:a", "on_step_end");
    }
    let report = bench.run(Entry::Fit).unwrap();
    assert_eq!(report.outcome, Outcome::Completed);
    assert!(bench.call_log.sources("on_exception").is_empty());
    let count = |source| bench.call_log.sources("on_step_end").iter().filter(|of| *of == source).count();
    assert_eq!(count("hook:b"), 4, "the others get everything");
    let disabled = report.notices.iter().filter_map(|notice| match notice {
        RunNotice::Contained(contained) => Some(contained.disabled),
        _ => None,
    });
    (disabled.collect(), count("hook:a"))
}

#[test]
fn a_failure_under_warn_or_disable_is_contained_and_noted() {
    assert_eq!(contained(Policy::WARN, false), (vec![false; 4], 4));
    assert_eq!(contained(Policy::DISABLE, false), (vec![false, false, true], 3));
    let once = Policy { max_failures: 1, ..Policy::DISABLE };
    assert_eq!(contained(once, false), (vec![true], 1));
}

#[test]
fn a_panic_disables_at_once_under_either() {
    assert_eq!(contained(Policy::WARN, true), (vec![true], 1));
    assert_eq!(contained(Policy::DISABLE, true), (vec![true], 1));
}

#[test]
fn a_hook_that_fails_everywhere_under_warn_changes_nothing_for_the_others() {
    let undisturbed = {
        let mut bench = Bench::new();
        bench.run(Entry::Fit).unwrap();
        (bench.call_log.places("hook:b"), bench.call_log.places("module"))
    };
    let mut bench = Bench::with_policy(Policy::WARN);
    for event in Event::ALL {
        bench.call_log.fails_at("hook:a", event.handler());
    }
    bench.call_log.fails_at("hook:a", "state_dict");
    bench.run(Entry::Fit).unwrap();
    assert_eq!((bench.call_log.places("hook:b"), bench.call_log.places("module")), undisturbed);
}

#[test]
fn a_save_that_panics_after_a_failure_does_not_prevent_the_teardown() {
    let mut bench = Bench::new();
    let options = CheckpointOptions {
        save_on_exception: true,
        every_n_epochs: Some(0),
        ..CheckpointOptions::default()
    };
    bench.trainer.remove_hook("checkpoint").unwrap();
    bench.trainer.add_hook(Checkpoint::new(options).unwrap()).unwrap();
    bench.call_log.fails_at("module", "on_step_end");
    bench.call_log.panics_at("module", "weights");
    let (failure, later, _) = bench.fails(Entry::Fit);
    assert_eq!((failure.origin, failure.place), (Origin::Module, "on_step_end"));
    let later: Vec<_> = later.iter().map(|failure| (failure.origin.clone(), failure.place)).collect();
    assert_eq!(later, [(Origin::Module, "snapshot")]);
    assert_eq!(bench.call_log.sources("teardown"), TORN_DOWN);
}

#[test]
fn a_trainer_can_be_used_again_after_a_failure() {
    for (source, place) in [
        ("module", "validation_step"),
        ("module", "on_save_checkpoint"),
        ("hook:b", "on_train_batch_end"),
        ("data", "next"),
    ] {
        let mut bench = Bench::new();
        bench.call_log.panics_at(source, place);
        bench.fails(Entry::Fit);
        let again = CallLog::default();
        let mut lab = Lab::new(Toy::default(), &again).with_handler(|place, cx| {
            if place == "training_step" {
                cx.log_with("epoch", cx.epoch() as f64, LogOptions::EPOCH);
            }
        });
        bench.trainer.remove_hook("a").unwrap();
        bench.trainer.remove_hook("b").unwrap();
        let late = Recorder::new("late", &again);
        let late = std::sync::Mutex::new(Some(late));
        bench
            .trainer
            .add_hook(closure::on_train_start("add", move |cx| {
                cx.hooks().add(late.lock().unwrap().take().unwrap());
                tenterhook::Decision::CONTINUE
            }))
            .unwrap();
        let report = bench.trainer.fit(&mut lab, &mut data(2, 0)).unwrap();
        assert_eq!(report.progress.step, 4, "{source} {place}");
        assert!(
            (report.metrics["epoch"] - 1.0).abs() < f64::EPSILON,
            "{source} {place}: {:?}",
            report.metrics
        );
        assert!(again.places("hook:late").contains(&"teardown"), "{source} {place}");
    }
}

#[test]
fn decisions_of_an_event_that_failed_do_not_outlive_the_run() {
    let mut trainer = trainer(epochs(1));
    let stop = std::sync::atomic::AtomicBool::new(true);
    trainer
        .add_hook(closure::on_train_batch_start("stop", move |_| {
            if stop.swap(false, std::sync::atomic::Ordering::Relaxed) {
                tenterhook::Decision::stop("at once")
            } else {
                tenterhook::Decision::CONTINUE
            }
        }))
        .unwrap();
    let call_log = CallLog::default();
    call_log.fails_at("hook:bad", "on_train_batch_start");
    trainer.add_hook(Recorder::new("bad", &call_log)).unwrap();
    trainer.fit(&mut Toy::default(), &mut data(3, 0)).unwrap_err();
    trainer.remove_hook("bad").unwrap();
    let report = trainer.fit(&mut Toy::default(), &mut data(3, 0)).unwrap();
    assert_eq!((report.outcome, report.progress.step), (Outcome::Completed, 3));
}

/// Panics after the call, or on another thread during training.
struct Ends {
    elsewhere: bool,
    seen: SharedVec<u64>,
}

#[hook]
impl Observer for Ends {
    fn on_train_batch_end(&mut self, cx: &TrainBatchEnd) -> HookResult {
        self.seen.push(cx.step);
        if !self.elsewhere {
            return Ok(());
        }
        let keep = backtraces::inherit();
        let work = move || {
            let _keeping = keep();
            backtraces::catch_panic("its worker panicked: ", || panic!("half broken"))
        };
        std::thread::spawn(work).join().unwrap()
    }
    fn finish(&mut self) -> HookResult {
        assert!(self.elsewhere, "no end is in sight");
        Ok(())
    }
}

#[test]
fn a_hook_that_panics_after_a_call_is_disabled_for_the_next_call() {
    let seen = SharedVec::new();
    let mut trainer = trainer(epochs(1));
    trainer.add_hook(Ends { elsewhere: false, seen: seen.clone() }).unwrap();
    let report = trainer.fit(&mut Toy::default(), &mut data(2, 0)).unwrap();
    let kind = &report.failures.kinds[0];
    assert_eq!((kind.at.as_str(), kind.panicked, kind.disabled), ("finish", true, true));
    assert!(!trainer.list_hooks()[0].enabled);
    trainer.fit(&mut Toy::default(), &mut data(2, 0)).unwrap();
    assert_eq!(seen.take(), [1, 2], "nothing of the second call");
}

#[test]
fn a_panic_on_a_thread_of_a_hook_is_the_hooks_failure_with_a_backtrace() {
    for (policy, debug) in [(Policy::WARN, false), (Policy::ABORT, true)] {
        let seen = SharedVec::new();
        let mut trainer = trainer(Settings { debug, ..epochs(1) });
        let how = Registration { policy: Some(policy), ..Registration::default() };
        trainer.register(Ends { elsewhere: true, seen: seen.clone() }, how).unwrap();
        let fitted = trainer.fit(&mut Toy::default(), &mut data(3, 0));
        assert_eq!(seen.take(), [1], "it is disabled at once, or aborts");
        let text = match fitted {
            Ok(report) => {
                assert!(!debug && report.failures.kinds[0].disabled, "{:?}", report.failures);
                continue;
            }
            Err(RunError::Failed { failure, .. }) => {
                assert!(failure.panicked, "{failure}");
                assert!(failure.to_string().contains("its worker panicked: half broken"), "{failure}");
                failure.trace.unwrap().to_string()
            }
            Err(other) => panic!("{other}"),
        };
        assert!(text.contains("Ends") && text.contains("catch_panic"), "the way on its own thread: {text}");
    }
}

#[test]
fn a_failure_during_the_clean_up_is_marked_whatever_its_policy() {
    let told = SharedVec::new();
    let tell = told.clone();
    let mut trainer = trainer(epochs(1)).with_notices(move |notice| tell.push(notice.to_string()));
    let fails = closure::on_exception("watches", |cx| assert!(cx.step > 9, "cannot say so"));
    trainer.add_hook(fails).unwrap();
    let how = Registration { policy: Some(Policy::ABORT), ..Registration::default() };
    trainer.register(closure::on_step_end("ends", |cx| assert!(cx.step > 9, "enough")), how).unwrap();
    let error = trainer.fit(&mut Toy::default(), &mut data(2, 0)).unwrap_err();
    let RunError::Failed { report, later, .. } = error else { panic!("{error}") };
    assert!(later.is_empty(), "it was contained: {later:?}");
    let kind = report.failures.kinds.iter().find(|kind| kind.at == "on_exception").unwrap();
    assert_eq!((kind.afterwards, kind.disabled, kind.aborted), (true, true, false));
    let told = told.take();
    let said = told.iter().find(|said| said.contains("cannot say so")).unwrap();
    assert!(said.ends_with("the run is already ending, and the clean-up continues"), "{said}");
}
