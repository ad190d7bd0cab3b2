//! Unusual failures: each is reported, and none prevents the clean-up of other parts.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use tenterhook::data::{Batches, DataLoaders, Dataset, Sample};
use tenterhook::hooks::{Checkpoint, CheckpointOptions};
use tenterhook::run::{JournalEvent, Run};
use tenterhook::toy::{Toy, ToyBatch};
use tenterhook::{
    BoxError, Decision, DeliveryStats, Gradients, HookResult, HookSpec, Observer, Origin, Outcome, Policy,
    Registration, RunError, RunNotice, Settings, StepOutput, Teardown, TrainBatchEnd, Update, UpdateHook,
    closure, hook,
};

use crate::call_log::{CallLog, Recorder, SharedVec};
use crate::lab::{Lab, LabData, data, epochs, trainer};
use crate::run_directory::{latest, recorded};

fn policy(policy: Policy) -> Registration {
    Registration { policy: Some(policy), ..Registration::default() }
}

/// The third sample takes a minute. It follows the one that is fetched ahead to detect the last batch.
struct Stuck {
    never: Mutex<Receiver<()>>,
    came: &'static AtomicBool,
}

impl Dataset for Stuck {
    type Item = ();
    fn len(&self) -> usize {
        4
    }
    fn load(&self, sample: Sample) -> Result<(), BoxError> {
        if sample.index == 2 {
            let _ = self.never.lock().unwrap().recv_timeout(Duration::from_mins(1));
            self.came.store(true, Ordering::SeqCst);
        }
        Ok(())
    }
}

#[test]
fn a_run_that_fails_or_ends_does_not_wait_for_a_blocked_sample() {
    static CAME: AtomicBool = AtomicBool::new(false);
    let mut closed = Vec::new();
    for fails in [true, false] {
        let (open, never) = channel();
        closed.push(open);
        let stuck = Stuck { never: Mutex::new(never), came: &CAME };
        let batches = Batches::new("stuck", stuck, |_| Ok(ToyBatch::of(vec![([0.1, 0.2], 0.3)])))
            .size(1)
            .threads(2)
            .prefetch(4);
        let mut trainer = trainer(Settings { max_steps: 1, ..epochs(-1) });
        trainer
            .register(
                closure::on_step_end("fails", move |_| assert!(!fails, "enough")),
                policy(Policy::ABORT),
            )
            .unwrap();
        let ended = trainer.fit(&mut Toy::default(), &mut DataLoaders::new().train(batches));
        assert_eq!(ended.is_err(), fails);
        assert!(!CAME.load(Ordering::SeqCst), "it was waited for");
    }
}

#[test]
fn contained_failures_in_the_event_that_ends_the_run_are_recorded_before_its_end() {
    let root = tempfile::tempdir().unwrap();
    let call_log = CallLog::default();
    let mut trainer = recorded(root.path(), epochs(1));
    trainer.add_hook(Recorder::new("first", &call_log).with_policy(Policy::WARN)).unwrap();
    trainer.add_hook(Recorder::new("panics", &call_log).with_policy(Policy::WARN)).unwrap();
    trainer.add_hook(Recorder::new("last", &call_log)).unwrap();
    call_log.fails_at("hook:first", "on_step_end");
    call_log.panics_at("hook:panics", "on_step_end");
    call_log.fails_at("hook:last", "on_step_end");
    let error = trainer.fit(&mut Toy::default(), &mut data(2, 0)).unwrap_err();
    let RunError::Failed { failure, report, .. } = error else { panic!("{error}") };
    assert_eq!(failure.origin, Origin::Hook("last".into()));
    let kinds = report.failures.kinds.iter().map(|kind| (kind.by.as_str(), kind.aborted, kind.afterwards));
    let expected =
        [("hook `first`", false, false), ("hook `panics`", false, false), ("hook `last`", true, false)];
    assert_eq!(kinds.collect::<Vec<_>>(), expected);
    let happened = Run::read(latest(root.path())).unwrap().event_log().unwrap();
    let by = happened.entries.iter().filter_map(|entry| match &entry.what {
        JournalEvent::Failure { by, .. } => Some(by.as_str()),
        _ => None,
    });
    assert_eq!(by.collect::<Vec<_>>(), ["hook `first`", "hook `panics`", "hook `last`"]);
    assert_eq!(call_log.sources("on_exception"), ["hook:first", "hook:last"], "who panicked is disabled");
    assert_eq!(call_log.sources("teardown"), ["hook:first", "hook:panics", "hook:last"]);
}

/// An error that panics when it is formatted.
struct Unspeakable;

impl fmt::Display for Unspeakable {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("no words")
    }
}

impl fmt::Debug for Unspeakable {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("no words for debugging")
    }
}

impl std::error::Error for Unspeakable {}

#[test]
fn an_error_that_panics_when_formatted_is_handled_like_others() {
    for debug in [false, true] {
        for (at, aborts) in [(Policy::WARN, false), (Policy::ABORT, true)] {
            let call_log = CallLog::default();
            let mut trainer = trainer(Settings { debug, ..epochs(1) });
            let fails = closure::on_step_end("fails", |_| -> HookResult { Err(Box::new(Unspeakable)) });
            trainer.register(fails, policy(at)).unwrap();
            trainer.add_hook(Recorder::new("other", &call_log)).unwrap();
            let ended = trainer.fit(&mut Toy::default(), &mut data(2, 0));
            let report = match ended {
                Ok(report) => report,
                Err(RunError::Failed { failure, report, .. }) => {
                    assert_eq!(failure.origin, Origin::Hook("fails".into()));
                    *report
                }
                Err(other) => panic!("{other}"),
            };
            let kind = &report.failures.kinds[0];
            assert_eq!((kind.aborted, kind.panicked, kind.at.as_str()), (aborts, false, "on_step_end"));
            assert_eq!(kind.error, "an error whose `Display` panics: no words");
            assert_eq!(call_log.sources("teardown"), ["hook:other"]);
        }
        let mut lab =
            Lab::new(Toy::default(), &CallLog::default()).with_step(|_, _, _| Err(Box::new(Unspeakable)));
        let error = trainer(Settings { debug, ..epochs(1) }).fit(&mut lab, &mut data(2, 0)).unwrap_err();
        assert!(error.to_string().contains("an error whose `Display` panics"), "{error}");
    }
}

/// A hook that panics at one of several places at its end.
struct Leaves {
    seen: SharedVec<&'static str>,
    at: &'static str,
}

impl Leaves {
    fn comes_to(&self, place: &'static str) {
        self.seen.push(place);
        assert!(self.at != place, "it goes wrong in {place}");
    }
}

#[hook]
impl Observer for Leaves {
    fn on_train_batch_end(&mut self, cx: &TrainBatchEnd) -> HookResult {
        if cx.step == 1 {
            cx.hooks().remove("leaves");
        }
        self.comes_to("batch");
        Ok(())
    }
    fn teardown(&mut self, _: &Teardown) -> HookResult {
        self.comes_to("teardown");
        Ok(())
    }
    fn finish(&mut self) -> HookResult {
        self.comes_to("finish");
        Ok(())
    }
    fn delivery_stats(&self) -> Option<DeliveryStats> {
        self.comes_to("sent");
        Some(DeliveryStats { sent: 3, ..DeliveryStats::default() })
    }
}

impl Drop for Leaves {
    fn drop(&mut self) {
        self.comes_to("drop");
    }
}

#[test]
fn a_removed_hook_is_torn_down_and_finished_and_its_failures_are_reported() {
    for at in ["nowhere", "teardown", "finish", "sent", "drop"] {
        let (seen, call_log) = (SharedVec::new(), CallLog::default());
        let mut trainer = trainer(epochs(1));
        trainer.add_hook(Leaves { seen: seen.clone(), at }).unwrap();
        trainer.add_hook(Recorder::new("other", &call_log)).unwrap();
        let report = trainer.fit(&mut Toy::default(), &mut data(3, 0)).unwrap();
        assert_eq!(seen.take(), ["batch", "teardown", "finish", "sent", "drop"], "{at}");
        let failed: Vec<_> =
            report.failures.kinds.iter().map(|kind| (kind.at.as_str(), kind.panicked)).collect();
        let place = if at == "teardown" { "teardown" } else { "finish" };
        assert_eq!(failed, if at == "nowhere" { Vec::new() } else { vec![(place, true)] }, "{at}");
        let sent: Vec<_> = report.sinks.iter().map(|sink| (sink.hook.as_str(), sink.stats.sent)).collect();
        assert_eq!(sent, if at == "sent" { Vec::new() } else { vec![("leaves", 3)] }, "{at}");
        assert_eq!(call_log.sources("teardown"), ["hook:other"]);
        trainer.add_hook(closure::on_fit_end("leaves", |_| ())).expect("its name is free");
        trainer.fit(&mut Toy::default(), &mut data(1, 0)).unwrap();
        assert!(seen.take().is_empty(), "it is gone");
    }
}

#[test]
fn a_hook_that_is_removed_between_two_calls_leaves_at_once() {
    let seen = SharedVec::new();
    let mut trainer = trainer(epochs(1));
    trainer.add_hook(Leaves { seen: seen.clone(), at: "nowhere" }).unwrap();
    trainer.remove_hook("leaves").unwrap();
    assert_eq!(seen.take(), ["drop"]);
}

struct Drops;

#[hook]
impl UpdateHook for Drops {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        spec.name("drops")
    }
    fn update(&mut self, _: &mut Gradients<'_>, _: &Update<'_>) -> HookResult {
        Ok(())
    }
}

impl Drop for Drops {
    fn drop(&mut self) {
        panic!("it does not want to go");
    }
}

#[test]
fn an_update_hook_that_panics_when_it_is_removed_affects_no_other_hook() {
    let mut trainer = trainer(epochs(1));
    trainer.add_hook(Drops).unwrap();
    trainer
        .add_hook(closure::on_step_end("removes", |cx| {
            if cx.step == 1 {
                cx.hooks().remove("drops");
            }
            Decision::CONTINUE
        }))
        .unwrap();
    let error = trainer.fit(&mut Toy::default(), &mut data(3, 0)).unwrap_err();
    let RunError::Failed { failure, report, .. } = error else { panic!("{error}") };
    assert_eq!(
        (failure.origin, failure.place),
        (Origin::Hook("drops".into()), "finish"),
        "it aborts by its policy"
    );
    assert_eq!(report.progress.step, 3);
}

#[test]
fn a_hooks_failure_outside_of_a_step_also_ends_the_run() {
    let call_log = CallLog::default();
    let mut lab = Lab::new(Toy::default(), &call_log).with_handler(|place, cx| {
        if place == "on_train_epoch_end" {
            cx.show("late", |name| tenterhook::NamedTensors::from([(name, &[1.0_f32][..])]));
        }
    });
    let mut trainer = trainer(epochs(1));
    let fails = closure::on_activation("fails", |cx| assert!(cx.point != "late", "too late"));
    trainer.register(fails, policy(Policy::ABORT)).unwrap();
    let error = trainer.fit(&mut lab, &mut data(1, 0)).unwrap_err();
    let RunError::Failed { failure, .. } = error else { panic!("{error}") };
    assert_eq!((failure.origin, failure.place), (Origin::Hook("fails".into()), "on_activation"));
    assert!(!call_log.places("module").contains(&"on_train_end"));
}

#[test]
fn a_module_that_steps_its_optimizers_cannot_ignore_a_fatal_failure() {
    for (how, later) in [("swallows", 0), ("passes on", 0), ("says it in its own words", 1)] {
        let call_log = CallLog::default();
        let step = move |lab: &mut Lab, batch: &ToyBatch, cx: &mut tenterhook::Cx<'_, Lab>| {
            let loss = lab.toy.loss(batch);
            let backward = cx.backward(lab, &loss);
            let stepped = cx.optimizer_step(lab, 0);
            match how {
                "swallows" => {}
                "passes on" => backward.and(stepped)?,
                _ => backward.map_err(|error| format!("cannot go back: {error}"))?,
            }
            Ok(StepOutput::Loss(loss))
        };
        let mut lab = Lab::new(Toy::default(), &call_log).manual().with_step(step);
        let mut trainer = trainer(epochs(1));
        trainer.add_hook(Recorder::new("fails", &call_log)).unwrap();
        call_log.fails_at("hook:fails", "on_after_backward");
        let error = trainer.fit(&mut lab, &mut LabData::new(data(2, 0), &call_log)).unwrap_err();
        let RunError::Failed { failure, later: others, .. } = error else { panic!("{error}") };
        assert_eq!(
            (&failure.origin, failure.place),
            (&Origin::Hook("fails".into()), "on_after_backward"),
            "{how}"
        );
        assert_eq!(others.len(), later, "{how}: {others:?}");
        assert!(call_log.sources("on_before_optimizer_step").is_empty(), "{how}: it went on");
    }
}

#[test]
fn plan_errors_reports_the_first_failure_and_always_tears_down() {
    for panics in [false, true] {
        let call_log = CallLog::default();
        call_log.fails_at("data", "setup");
        if panics {
            call_log.panics_at("data", "teardown");
        } else {
            call_log.fails_at("data", "teardown");
        }
        let mut data = LabData::new(data(2, 0), &call_log);
        let error = trainer(epochs(1)).plan_errors(&mut Toy::default(), &mut data).unwrap_err();
        let RunError::Failed { failure, later, .. } = error else { panic!("{error}") };
        assert_eq!((failure.place, later.len(), later[0].place), ("setup", 1, "teardown"));
        assert_eq!(later[0].panicked, panics);
    }
}

#[test]
fn a_hook_that_panicked_in_an_event_takes_no_part_in_its_save_and_is_disabled_once() {
    for at in ["on_train_epoch_end", "state_dict"] {
        let (root, call_log) = (tempfile::tempdir().unwrap(), CallLog::default());
        let mut trainer = trainer(epochs(2)).with_checkpoints_in(root.path());
        trainer.add_hook(Recorder::new("panics", &call_log).with_policy(Policy::WARN)).unwrap();
        trainer.add_hook(Recorder::new("other", &call_log)).unwrap();
        trainer.add_hook(Checkpoint::new(CheckpointOptions::default()).unwrap()).unwrap();
        for place in [at, "on_save_checkpoint", "on_checkpoint_saved"] {
            call_log.panics_at("hook:panics", place);
        }
        let report = trainer.fit(&mut Toy::default(), &mut data(1, 0)).unwrap();
        assert_eq!(report.outcome, Outcome::Completed);
        assert_eq!(call_log.sources("on_save_checkpoint"), ["hook:other", "hook:other"], "{at}");
        assert_eq!(call_log.sources("on_hook_disabled"), ["hook:other"], "{at}");
        let disabled = report
            .notices
            .iter()
            .filter(|notice| matches!(notice, RunNotice::Contained(contained) if contained.disabled));
        assert_eq!(disabled.count(), 1, "{at}");
    }
}

#[test]
fn a_hook_that_fails_to_give_its_state_for_a_save_receives_nothing_more() {
    let (root, call_log) = (tempfile::tempdir().unwrap(), CallLog::default());
    let mut trainer = trainer(epochs(1)).with_checkpoints_in(root.path());
    trainer.add_hook(Recorder::new("panics", &call_log).with_policy(Policy::WARN)).unwrap();
    let asks = closure::on_train_batch_end("asks", |cx| {
        if cx.step == 1 { Decision::save_now() } else { Decision::CONTINUE }
    });
    trainer.add_hook(asks).unwrap();
    call_log.panics_at("hook:panics", "state_dict");
    trainer.fit(&mut Toy::default(), &mut data(2, 0)).unwrap();
    let places = call_log.places("hook:panics");
    let asked = places.iter().position(|place| *place == "state_dict").unwrap();
    assert_eq!(places[asked + 1..], ["teardown"]);
}

#[test]
fn every_kind_of_failure_is_reported() {
    let told = SharedVec::new();
    let tell = told.clone();
    let mut trainer = trainer(epochs(1)).with_notices(move |notice| tell.push(notice.to_string()));
    for hook in 0..150 {
        let fails = closure::on_step_end(format!("hook_{hook}"), |_| -> HookResult { Err("no".into()) });
        trainer.register(fails, policy(Policy::WARN)).unwrap();
    }
    let report = trainer.fit(&mut Toy::default(), &mut data(3, 0)).unwrap();
    assert_eq!(told.take().iter().filter(|said| said.contains("failed in")).count(), 150);
    let counted: u64 = report.failures.kinds.iter().map(|kind| kind.count).sum();
    assert_eq!(counted + report.failures.left_out, 450);
}

#[test]
fn a_modules_changes_of_the_list_of_hooks_are_applied_after_it_has_run() {
    let call_log = CallLog::default();
    let late = Mutex::new(Some(Recorder::new("late", &call_log)));
    let mut lab = Lab::new(Toy::default(), &CallLog::default()).with_handler(move |place, cx| {
        if place == "on_train_start"
            && let Some(late) = late.lock().unwrap().take()
        {
            cx.hooks().add(late);
        }
    });
    trainer(epochs(1)).fit(&mut lab, &mut data(1, 0)).unwrap();
    assert_eq!(call_log.places("hook:late")[..2], ["on_train_epoch_start", "on_train_batch_start"]);
}
