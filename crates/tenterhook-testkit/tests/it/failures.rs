//! Failures of a hook and their effects.

use tenterhook_core::{
    BoxError, Controller, Decision, HookResult, Observer, Policy, Registration, StepEnd, TrainEnd, hook,
};
use tenterhook_testkit::{FailureEffect, Rig};

struct Clumsy {
    falls: u32,
}

#[hook]
impl Observer for Clumsy {
    fn on_step_end(&mut self, _: &StepEnd) -> HookResult {
        self.falls += 1;
        Err(BoxError::from(format!("fall {}", self.falls)))
    }
    fn on_train_end(&mut self, _: &TrainEnd) -> HookResult {
        panic!("fell over")
    }
}

fn effects<H>(rig: &Rig<H>) -> Vec<FailureEffect> {
    rig.failures().iter().map(|failed| failed.effect).collect()
}

#[test]
fn an_observer_is_disabled_after_its_third_failure() {
    let mut rig = Rig::new(Clumsy { falls: 0 });
    let reply = rig.epoch(1).step(4).on_step_end().clone();
    assert_eq!(
        reply.failure.as_deref(),
        Some("hook `clumsy` failed in on_step_end (epoch 2, step 4): fall 1")
    );
    rig.on_step_end();
    assert!(rig.is_enabled());
    rig.on_step_end();
    assert!(!rig.is_enabled());
    assert_eq!(effects(&rig), [FailureEffect::Warned, FailureEffect::Warned, FailureEffect::Disabled]);
    assert!(!rig.on_step_end().delivered);
    assert_eq!(rig.hook().falls, 3);
}

#[test]
fn a_hook_disabled_by_a_panic_can_still_be_inspected() {
    let mut rig = Rig::new(Clumsy { falls: 7 });
    let reply = rig.on_train_end().clone();
    assert_eq!(
        reply.failure.as_deref(),
        Some("hook `clumsy` panicked in on_train_end (epoch 1, step 0): fell over")
    );
    assert!(rig.failures()[0].failure.panicked);
    assert_eq!(effects(&rig), [FailureEffect::Disabled]);
    assert_eq!(rig.hook().falls, 7);
}

#[test]
fn the_policy_of_the_registration_is_applied() {
    let how =
        Registration { policy: Some(Policy::ABORT), name: Some("other".into()), ..Registration::default() };
    let mut rig = Rig::registered(Clumsy { falls: 0 }, how);
    let text = rig.on_step_end().failure.clone().expect("it fails");
    assert!(text.starts_with("hook `other` failed"), "{text}");
    assert_eq!(effects(&rig), [FailureEffect::Aborted]);
    assert!(rig.is_enabled(), "an aborted run disables no hook");
}

#[test]
fn a_hook_registered_as_disabled_receives_nothing() {
    let how = Registration { disabled: true, ..Registration::default() };
    let mut rig = Rig::registered(Clumsy { falls: 0 }, how);
    assert!(!rig.on_step_end().delivered);
    assert!(rig.failures().is_empty());
}

#[test]
fn the_reason_of_a_stop_is_available() {
    struct Stop;
    #[hook]
    impl Controller for Stop {
        fn on_step_end(&mut self, cx: &StepEnd) -> HookResult<Decision> {
            Ok(if cx.step > 2 { Decision::stop("enough") } else { Decision::CONTINUE })
        }
    }
    let mut rig = Rig::new(Stop);
    rig.step(2).on_step_end();
    assert_eq!(rig.stop_reason(), None);
    rig.step(3).on_step_end();
    assert_eq!(rig.stop_reason(), Some("enough"));
}
