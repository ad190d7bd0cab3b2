//! Update and forward hooks, and the checkpoint tier.

use tenterhook_core::{
    Activation, Controller, Decision, Event, Gradients, HookResult, HookSpec, Observer, Policy, Request,
    SaveRequest, State, Tier, TrainEpochEnd, Update, UpdateHook, hook,
};
use tenterhook_testkit::{FailureEffect, Rig};

/// Doubles one gradient; from the second step on it fails afterwards.
struct Doubles {
    calls: u32,
    panics: bool,
}

#[hook]
impl UpdateHook for Doubles {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        spec.name("doubles").policy(Policy::WARN)
    }
    fn update(&mut self, gradients: &mut Gradients<'_>, cx: &Update<'_>) -> HookResult {
        self.calls += 1;
        gradients.edit("w", |values| values.iter_mut().for_each(|value| *value *= 2.0))?;
        assert!(!self.panics, "no more");
        if cx.step > 0 { Err("not again".into()) } else { Ok(()) }
    }
    fn state_dict(&self) -> HookResult<State> {
        Ok(State::of(1, &self.calls)?)
    }
    fn load_state_dict(&mut self, state: &State) -> HookResult {
        self.calls = state.read(1)?;
        Ok(())
    }
}

#[test]
fn an_update_hook_changes_the_given_gradients_and_a_failing_one_does_not() {
    let mut rig = Rig::new(Doubles { calls: 0, panics: false });
    rig.gradients([("w", [1.0, 2.0]), ("b", [5.0, 6.0])]);
    assert_eq!(rig.update().get("w"), Some(&[2.0, 4.0][..]));
    assert_eq!(rig.step(1).update().get("w"), Some(&[2.0, 4.0][..]));
    assert_eq!(rig.failures().len(), 1);
    rig.hook().panics = true;
    assert_eq!(rig.step(0).update().get("w"), Some(&[2.0, 4.0][..]));
    assert_eq!(rig.failures()[1].effect, FailureEffect::Disabled);
    assert!(!rig.is_enabled());
    assert_eq!(rig.hook().calls, 3);
}

#[test]
fn an_update_hook_resumes_with_its_state() {
    let mut rig = Rig::new(Doubles { calls: 0, panics: false });
    rig.update();
    let resumed = rig.resumed(Doubles { calls: 0, panics: false });
    assert_eq!(resumed.hook().calls, 1);
}

struct Sees(Vec<(String, Vec<usize>)>);

#[hook]
impl Observer for Sees {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        spec.name("sees").policy(Policy::ABORT)
    }
    fn wants_point(&self, point: &str) -> bool {
        point.starts_with("blocks.")
    }
    fn on_activation(&mut self, activation: &Activation) -> HookResult {
        let shape = activation.values.by_name(activation.point).expect("under its own name").shape().to_vec();
        self.0.push((activation.point.to_owned(), shape));
        activation.log("seen", self.0.len() as f64);
        if activation.progress.step > 0 { Err("blind".into()) } else { Ok(()) }
    }
}

#[test]
fn a_forward_hook_sees_the_points_it_wants() {
    let mut rig = Rig::new(Sees(Vec::new()));
    rig.activation("blocks.0", [1.0]).activation("head", [1.0]).shaped_activation(
        "blocks.1",
        [2, 1],
        [0.0; 2],
    );
    assert_eq!(rig.hook().0, [("blocks.0".to_owned(), vec![1]), ("blocks.1".to_owned(), vec![2, 1])]);
    assert_eq!(rig.metrics().get("seen"), Some(2.0));
    rig.step(1).activation("blocks.0", [1.0]);
    assert_eq!(rig.failures()[0].effect, FailureEffect::Aborted);
}

#[test]
fn save_requests_of_a_checkpoint_hook_are_part_of_its_decision() {
    struct Saves;
    #[hook]
    impl Controller for Saves {
        fn declare(&self, spec: HookSpec) -> HookSpec {
            spec.tier(Tier::Checkpoint)
        }
        fn on_train_epoch_end(&mut self, _: &TrainEpochEnd) -> HookResult<Decision> {
            Ok(Decision::save_now())
        }
    }
    let mut rig = Rig::new(Saves);
    rig.on_train_epoch_end();
    let save = Request::Save(SaveRequest::default());
    assert_eq!(rig.decisions_at(Event::TrainEpochEnd), [Decision::CONTINUE.request(save)]);
}
