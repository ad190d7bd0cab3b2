//! Closures as hooks.

use std::sync::{Arc, Mutex};

use tenterhook_core::{
    Context, Decision, Event, Events, Hook, HookInfo, HookKind, HookResult, OnError, StepEnd, closure,
};
use tenterhook_testkit::{FailureEffect, Rig};

fn info<H: Hook>(rig: &Rig<H>) -> HookInfo {
    rig.hooks()[0].clone()
}

#[test]
fn a_closure_that_returns_nothing_is_an_observer_under_the_given_name() {
    let rig = Rig::new(closure::on_train_epoch_end("mine", |_| ()));
    let info = info(&rig);
    assert_eq!(
        (info.name.as_str(), info.kind, info.on_error),
        ("mine", HookKind::Observer, OnError::Disable)
    );
}

#[test]
fn a_closure_that_returns_a_decision_is_a_controller() {
    let mut rig = Rig::new(closure::on_step_end("stop", |cx| {
        if cx.step >= 3 { Decision::stop("three is enough") } else { Decision::CONTINUE }
    }));
    assert_eq!((info(&rig).kind, info(&rig).on_error), (HookKind::Controller, OnError::Abort));
    assert!(rig.step(2).on_step_end().decision.is_continue());
    assert_eq!(rig.step(3).on_step_end().decision, Decision::stop("three is enough"));
}

#[test]
fn the_kind_of_a_fallible_closure_follows_from_its_value() {
    let mut observer = Rig::new(closure::on_before_backward("loss", |cx| -> HookResult {
        if cx.loss.value().is_nan() { Err("not a number".into()) } else { Ok(()) }
    }));
    assert_eq!(info(&observer).kind, HookKind::Observer);
    observer.loss(1.0).on_before_backward();
    observer.loss(f64::NAN).on_before_backward();
    assert_eq!(observer.failures()[0].effect, FailureEffect::Warned);

    let mut controller = Rig::new(closure::on_after_backward("loss", |cx| -> HookResult<Decision> {
        if cx.gradients.is_empty() { Err("no gradients".into()) } else { Ok(Decision::skip_update()) }
    }));
    assert_eq!(controller.gradients([("w", [1.0])]).on_after_backward().decision, Decision::skip_update());
    let none: [(&str, [f32; 0]); 0] = [];
    controller.gradients(none).on_after_backward();
    assert_eq!(controller.failures()[0].effect, FailureEffect::Aborted);
}

#[test]
fn a_closure_gets_its_own_event_and_no_other() {
    let seen = Arc::new(Mutex::new(0));
    let count = Arc::clone(&seen);
    let hook = closure::on_checkpoint_saved("saved", move |_| *count.lock().unwrap() += 1);
    assert_eq!(hook.spec().events, Events::of(&[Event::CheckpointSaved]));
    let mut rig = Rig::new(hook);
    for event in Event::ALL {
        assert_eq!(rig.deliver(*event).delivered, *event == Event::CheckpointSaved);
    }
    assert_eq!(*seen.lock().unwrap(), 1);
}

#[test]
fn a_named_function_is_a_closure_too() {
    fn watch(cx: &StepEnd<'_>) {
        cx.log("watched", cx.run_cx().step as f64);
    }
    let mut rig = Rig::new(closure::on_step_end("watch", watch));
    rig.step(4).on_step_end();
    assert_eq!(rig.metrics().get("watched"), Some(4.0));
}
