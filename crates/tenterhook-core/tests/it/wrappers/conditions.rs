//! A hook behind a condition receives an event exactly if the condition holds.

use std::cell::Cell;

use tenterhook_core::wrap::Conditioned;
use tenterhook_core::{AnyHook, Event, Phase, Progress, Stage, closure};
use tenterhook_testkit::{Rig, ScriptEntry};

use super::{Passed, Recorder, script, scripted};

fn when(condition: &str, recorder: &Recorder) -> AnyHook {
    AnyHook::new(recorder.clone()).gated(Conditioned::new(condition.parse().unwrap()))
}

fn rig(hook: AnyHook) -> Rig<impl tenterhook_core::Hook> {
    let mut rig = Rig::new(closure::on_fit_end("other", |_| ()));
    rig.add_hook(hook);
    rig
}

fn passed_when(condition: &str) -> Vec<Passed> {
    let recorder = Recorder::default();
    rig(when(condition, &recorder)).play(&script());
    recorder.take()
}

#[track_caller]
fn passes_where(condition: &str, keep: impl Fn(&ScriptEntry) -> bool) {
    // The decision at the start of a batch or a validation applies until its end.
    let (batch, validation) = (Cell::new(None), Cell::new(None));
    let expected = scripted(|entry| {
        if !entry.event.is_within_epoch() {
            return true;
        }
        let held = if entry.event.is_within_train_batch() {
            batch.get().filter(|(at, _)| *at == entry.progress.total_batches).map(|(_, open)| open)
        } else if is_validation(entry.event) && entry.event != Event::ValidationStart {
            validation.get()
        } else {
            None
        };
        let open = held.unwrap_or_else(|| keep(entry));
        batch.set(Some((entry.progress.total_batches, open)).filter(|_| entry.event.is_within_train_batch()));
        validation.set(Some(open).filter(|_| is_validation(entry.event)));
        open
    });
    assert_eq!(passed_when(condition), expected, "{condition}");
    let all = scripted(|_| true).len();
    assert!((1..all).contains(&expected.len()), "{condition} distinguishes");
}

#[test]
fn a_condition_reads_the_progress_of_the_run() {
    passes_where("epoch == 1", |entry| entry.progress.epoch == 1);
    let step = |entry: &ScriptEntry| {
        let within = entry.event.is_within_train_batch();
        if within { entry.progress.current_step() } else { entry.progress.step }
    };
    passes_where("step % 2 == 0", |entry| step(entry) % 2 == 0);
    passes_where("batch >= 2", |entry| entry.progress.batches >= 3);
    passes_where("samples > 5", |entry| entry.progress.samples > 5);
    passes_where("elapsed < 6.5", |entry| entry.elapsed.as_secs_f64() < 6.5);
    passes_where("phase == train", |entry| !is_validation(entry.event));
    passes_where("phase == validate and stage == fit", |entry| is_validation(entry.event));
    passes_where("tokens > 0", |_| false);
}

fn is_validation(event: Event) -> bool {
    event.handler().starts_with("on_validation")
}

#[test]
fn a_condition_reads_metrics_by_name_and_is_false_before_they_exist() {
    let recorder = Recorder::default();
    let mut rig = rig(when("val/loss < 0.5", &recorder));
    rig.on_train_epoch_end();
    assert!(recorder.take().is_empty());
    rig.metric("val/loss", 0.6).on_train_epoch_end();
    assert!(recorder.take().is_empty());
    rig.metric("val/loss", 0.4).on_train_epoch_end();
    assert_eq!(recorder.take().len(), 1);
}

#[test]
fn a_condition_uses_the_logged_loss_and_reads_none_from_the_engine() {
    let recorder = Recorder::default();
    let mut rig = rig(when("loss > 1", &recorder));
    rig.loss(3.0).on_train_batch_end();
    assert!(recorder.take().is_empty(), "a loss that was not logged");
    rig.metric("train/loss", 2.0).on_train_batch_end();
    assert!(recorder.take().is_empty(), "the decision for this batch stays");
    rig.progress(Progress { batches: 2, total_batches: 2, ..Progress::default() }).on_train_batch_end();
    assert_eq!(recorder.take().len(), 1);
}

#[test]
fn outside_of_fit_a_condition_lets_everything_pass() {
    let recorder = Recorder::default();
    let mut rig = rig(when("epoch > 99", &recorder));
    rig.stage(Stage::Test).phase(Phase::Test).on_test_epoch_end();
    assert_eq!(recorder.take().len(), 1);
}

#[test]
fn a_name_that_was_not_logged_in_the_first_epoch_is_reported_once_with_a_suggestion() {
    let recorder = Recorder::default();
    let mut rig = rig(when("val/los < 0.5 and status == completed", &recorder));
    rig.metric("val/loss", 0.4).on_train_epoch_end();
    assert!(rig.said().is_empty(), "the metric may still be logged");
    rig.progress(Progress { epoch: 1, epochs_done: 1, ..Progress::default() });
    rig.on_train_epoch_end();
    rig.on_train_epoch_end();
    let said: Vec<_> = rig.said().iter().map(|(who, what)| format!("{who}: {what}")).collect();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(
        said[0].starts_with("recorder: `when = \"val/los < 0.5 and status == completed\"` reads `val/los`")
    );
    assert!(said[0].ends_with("did you mean `val/loss`?"), "{said:?}");
}
