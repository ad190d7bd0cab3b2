//! Hooks on a custom training loop: it emits events and gets a verdict.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenterhook::prelude::*;
use tenterhook::{OwnLoop, RunNotice};

fn step(hooks: &OwnLoop, loss: f64) -> Result<tenterhook::Verdict, tenterhook::Failure> {
    let (loss, norm) = (Scalar::new(&loss), Scalar::new(&f64::NAN));
    hooks.emit(|run_cx| StepEnd::new(run_cx, loss, norm, 0.1, 0.1))
}

#[test]
fn events_count_epochs_batches_and_steps() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    let every = closure::on_step_end("seen", move |cx| {
        noted.lock().unwrap().push((cx.epoch, cx.batches, cx.step));
    });
    let hooks = OwnLoop::new([every.every("2 steps").unwrap()]).unwrap();
    for _ in 0..2 {
        for _ in 0..3 {
            let _ = step(&hooks, 1.0).unwrap();
        }
        let _ = hooks.emit(TrainEpochEnd::new).unwrap();
        let _ = hooks.emit(TrainEpochStart::new).unwrap();
    }
    assert_eq!(*seen.lock().unwrap(), [(0, 2, 2), (1, 1, 4), (1, 3, 6)]);
    assert_eq!(hooks.progress().epochs_done, 2);
}

#[test]
fn a_context_is_built_only_for_an_event_that_a_hook_receives() {
    let hooks = OwnLoop::new([closure::on_train_end("end", |_| ())]).unwrap();
    let verdict = hooks.emit::<StepEnd>(|_| panic!("nothing wants it")).unwrap();
    assert!(verdict.stop().is_none());
    assert_eq!(hooks.progress().step, 1);
}

#[test]
fn the_verdict_contains_the_stop_and_all_decisions() {
    let hooks = OwnLoop::new(hooks![
        closure::on_step_end("slower", |_| Decision::scale_lr(0.5)),
        closure::on_step_end("stops", |cx| {
            if cx.loss.value() < 0.5 { Decision::stop("low") } else { Decision::CONTINUE }
        }),
    ])
    .unwrap();
    let verdict = step(&hooks, 1.0).unwrap();
    assert_eq!((verdict.stop(), verdict.decided().len()), (None, 1));
    let verdict = step(&hooks, 0.1).unwrap();
    assert_eq!((verdict.stop(), verdict.decided().len()), (Some(("stops", "low")), 2));
}

#[test]
fn failures_and_messages_reach_the_reader_and_an_aborting_failure_is_an_error() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let taken = Arc::clone(&told);
    let fails = |_: &StepEnd<'_>| -> HookResult { Err("broken".into()) };
    let hooks = OwnLoop::new(hooks![
        closure::on_step_end("says", |cx| cx.say("hello")),
        closure::on_step_end("fails", fails),
    ])
    .unwrap();
    let hooks = hooks.with_notices(move |notice: &RunNotice| taken.lock().unwrap().push(notice.to_string()));
    let _ = step(&hooks, 1.0).unwrap();
    let told = told.lock().unwrap();
    assert!(told.iter().any(|text| text == "says: hello"), "{told:?}");
    assert!(told.iter().any(|text| text.contains("broken")), "{told:?}");

    let aborts = |_: &StepEnd<'_>| -> HookResult<Decision> { Err("the end".into()) };
    let hooks = OwnLoop::new([closure::on_step_end("aborts", aborts)]).unwrap();
    assert!(step(&hooks, 1.0).unwrap_err().to_string().contains("the end"));
}

#[test]
fn the_clock_runs() {
    let elapsed = Arc::new(Mutex::new(Duration::ZERO));
    let noted = Arc::clone(&elapsed);
    let hooks = OwnLoop::new([closure::on_step_end("time", move |cx| {
        *noted.lock().unwrap() = cx.elapsed();
    })])
    .unwrap();
    let _ = step(&hooks, 1.0).unwrap();
    assert!(*elapsed.lock().unwrap() > Duration::ZERO);
}
