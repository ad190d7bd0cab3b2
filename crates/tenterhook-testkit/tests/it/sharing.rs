//! The blackboard, the roster, and other hooks.

use tenterhook_core::{
    Controller, Decision, Event, HookDecision, HookResult, Key, RosterRequest, StepEnd, closure, hook,
};
use tenterhook_testkit::Rig;

const BEST: Key<f64> = Key::new("best");

struct Switch;

#[hook]
impl Controller for Switch {
    fn on_step_end(&mut self, cx: &StepEnd) -> HookResult<Decision> {
        cx.board().put(BEST, cx.board().get(BEST).unwrap_or(0.0) + 1.0);
        match cx.step {
            1 => cx.hooks().disable("other"),
            2 => cx.hooks().enable("other"),
            3 => cx.hooks().add(closure::on_step_end("new", |_| ())),
            4 => cx.hooks().remove("nobody"),
            _ => cx.hooks().disable("switch"),
        }
        Ok(Decision::CONTINUE)
    }
}

#[test]
fn roster_requests_are_recorded_and_carried_out() {
    let mut rig = Rig::new(Switch);
    rig.add_hook(closure::on_step_end("other", |_| Decision::validate_now()));
    for step in 1..=5 {
        rig.step(step).on_step_end();
    }
    assert_eq!(
        rig.requests(),
        [
            RosterRequest::Disable("other".into()),
            RosterRequest::Enable("other".into()),
            RosterRequest::Add("new".into()),
            RosterRequest::Remove("nobody".into()),
            RosterRequest::Disable("switch".into()),
        ]
    );
    let refused: Vec<_> = rig.refused().iter().map(ToString::to_string).collect();
    assert_eq!(refused, ["there is no hook named `nobody`; there are: `switch`, `other`, `new`"]);
    assert!(!rig.is_enabled());
    let validate =
        HookDecision { hook: "other".into(), event: Event::StepEnd, decision: Decision::validate_now() };
    // There is no decision in step 2: the hook was disabled after step 1 and enabled after step 2.
    assert_eq!(rig.other_decisions(), vec![validate; 4]);
    assert!(rig.decisions().is_empty());
}

#[test]
fn the_board_is_written_and_read_by_the_test() {
    let mut rig = Rig::new(Switch);
    rig.board().put(BEST, 40.0);
    rig.step(9).on_step_end();
    assert_eq!(rig.board().get(BEST), Some(41.0));
}

#[test]
#[should_panic(expected = "there is a hook named `switch` already")]
fn two_hooks_of_one_name_are_refused() {
    Rig::new(Switch).add_hook(Switch);
}
