//! Update hooks change what the optimizer uses; forward hooks see what the module names.

use tenterhook::toy::Toy;
use tenterhook::{
    Activation, Gradients, HookResult, Observer, Origin, Phase, Policy, RunError, Settings, Update,
    UpdateHook, closure, hook,
};

use crate::lab::{Lab, bits, data, epochs, trainer};
use crate::line::{Batches, Line, points};
use crate::tape::{Seen, Tape};

struct Scaled {
    by: f32,
    policy: Policy,
    fails: bool,
    seen: Seen<(usize, u64)>,
}

impl Scaled {
    fn by(by: f32) -> Scaled {
        Scaled { by, policy: Policy::ABORT, fails: false, seen: Seen::new() }
    }
}

impl UpdateHook for Scaled {
    fn name(&self) -> String {
        "scaled".into()
    }
    fn policy(&self) -> Policy {
        self.policy
    }
    fn update(&mut self, gradients: &mut Gradients<'_>, cx: &Update<'_>) -> HookResult {
        self.seen.push((cx.optimizer, cx.step));
        gradients.scale(self.by);
        if self.fails { Err("after the damage was done".into()) } else { Ok(()) }
    }
}

fn fitted(optimizers: usize, hook: Option<Scaled>) -> Vec<u32> {
    let mut trainer = trainer(epochs(1));
    if let Some(hook) = hook {
        trainer.add_update_hook(hook).unwrap();
    }
    let mut toy = Toy::new(optimizers);
    trainer.fit(&mut toy, &mut data(4, 0)).unwrap();
    bits(&toy)
}

#[test]
fn an_update_hook_changes_what_the_optimizer_uses() {
    for optimizers in [1, 2] {
        assert_eq!(fitted(optimizers, Some(Scaled::by(0.0))), bits(&Toy::default()), "nothing is learned");
        assert_ne!(fitted(optimizers, Some(Scaled::by(0.5))), fitted(optimizers, None));
        assert_eq!(fitted(optimizers, Some(Scaled::by(1.0))), fitted(optimizers, None));
    }
}

#[test]
fn it_is_called_for_every_optimizer_in_turn_before_clipping() {
    let hook = Scaled::by(0.5);
    let seen = hook.seen.clone();
    let mut trainer = trainer(Settings { gradient_clip_val: Some(100.0), ..epochs(1) });
    trainer.add_update_hook(hook).unwrap();
    let norms = Seen::new();
    let (raw, updated) = (norms.clone(), norms.clone());
    trainer
        .add_hook(closure::on_before_optimizer_step("raw", move |cx| raw.push(cx.gradients.norm())))
        .unwrap();
    trainer
        .add_hook(closure::on_gradient_clip("clip", move |cx| updated.push(cx.norm_before.value())))
        .unwrap();
    trainer.fit(&mut Toy::new(2), &mut data(2, 0)).unwrap();
    assert_eq!(seen.take(), [(0, 0), (1, 0), (0, 1), (1, 1)]);
    for norms in norms.take().chunks(2) {
        assert!((norms[0] * 0.5 - norms[1]).abs() < 1e-6, "{norms:?}");
    }
}

#[test]
fn a_failing_update_hook_leaves_the_gradients_as_they_were() {
    for policy in [Policy::WARN, Policy::DISABLE] {
        let hook = Scaled { policy, fails: true, ..Scaled::by(0.0) };
        assert_eq!(fitted(1, Some(hook)), fitted(1, None));
    }
}

#[test]
fn a_failing_update_hook_ends_the_run_unless_it_says_otherwise() {
    let mut trainer = trainer(epochs(1));
    trainer.add_update_hook(Scaled { fails: true, ..Scaled::by(0.0) }).unwrap();
    let mut toy = Toy::default();
    let error = trainer.fit(&mut toy, &mut data(4, 0)).unwrap_err();
    let RunError::Failed { failure, .. } = error else { panic!("{error}") };
    assert_eq!((failure.origin, failure.place), (Origin::Hook("scaled".into()), "update"));
    assert_eq!(bits(&toy), bits(&Toy::default()), "no update was made");
}

struct Points {
    seen: Seen<(Phase, u64, Vec<f32>)>,
    pattern: &'static str,
    error: Option<&'static str>,
    policy: Policy,
}

impl Points {
    fn named(pattern: &'static str) -> Points {
        Points { seen: Seen::new(), pattern, error: None, policy: Policy::DISABLE }
    }
}

#[hook]
impl Observer for Points {
    fn name(&self) -> String {
        "points".into()
    }
    fn policy(&self) -> Policy {
        self.policy
    }
    fn wants_point(&self, point: &str) -> bool {
        point == self.pattern
    }
    fn on_activation(&mut self, activation: &Activation) -> HookResult {
        let values = activation.values.iter().next().unwrap().to_vec();
        self.seen.push((activation.phase, activation.progress.batches, values));
        self.error.map_or(Ok(()), |error| Err(error.into()))
    }
}

fn lines() -> Batches {
    let train = vec![points(&[(1.0, 1.0)]); 2];
    Batches { validate: train[..1].to_vec(), train }
}

#[test]
fn a_forward_hook_sees_its_points_in_training_and_validation() {
    let mut trainer = trainer(Settings { num_sanity_val_steps: 1, ..epochs(1) });
    let hook = Points::named("line");
    let seen = hook.seen.clone();
    trainer.add_hook(hook).unwrap();
    trainer.fit(&mut Line::new(0.25), &mut lines()).unwrap();
    let expected = [
        (Phase::SanityCheck, 0, vec![0.0]),
        (Phase::Train, 1, vec![0.0]),
        (Phase::Train, 2, vec![0.5]),
        (Phase::Validate, 2, vec![0.75]),
    ];
    assert_eq!(seen.take(), expected);
    trainer.validate(&mut Line::new(0.25), &mut lines()).unwrap();
    assert_eq!(seen.take(), [(Phase::Validate, 0, vec![0.0])]);
}

#[test]
fn a_forward_hook_is_shown_nothing_it_did_not_want() {
    let mut trainer = trainer(epochs(1));
    let hook = Points::named("another point");
    let seen = hook.seen.clone();
    trainer.add_hook(hook).unwrap();
    trainer.fit(&mut Line::new(0.25), &mut lines()).unwrap();
    assert!(seen.take().is_empty());
}

#[test]
fn a_failing_forward_hook_is_judged_by_its_policy() {
    let run = |policy| {
        let mut trainer = trainer(epochs(1));
        let hook = Points { error: Some("too bright"), policy, ..Points::named("line") };
        let seen = hook.seen.clone();
        trainer.add_hook(hook).unwrap();
        let ran = trainer.fit(&mut Line::new(0.25), &mut lines());
        (ran.map(|report| report.notices.len()), seen.take().len())
    };
    let (ran, calls) = run(Policy::WARN);
    assert_eq!((ran.unwrap(), calls), (3, 3), "noticed every time");
    let (ran, calls) = run(Policy { max_failures: 2, ..Policy::DISABLE });
    assert_eq!((ran.unwrap(), calls), (3, 2), "disabled after two, which is noticed too");
    let (ran, calls) = run(Policy::ABORT);
    let Err(RunError::Failed { failure, .. }) = ran else { panic!("it goes on") };
    assert_eq!((failure.origin, failure.place), (Origin::Hook("points".into()), "on_activation"));
    assert_eq!(calls, 1);
}

#[test]
fn when_hook_and_module_fail_in_one_step_the_first_of_them_is_reported() {
    for panics in [false, true] {
        let tape = Tape::default();
        let mut trainer = trainer(epochs(1));
        let hook = Points { error: Some("too bright"), policy: Policy::ABORT, ..Points::named("lab") };
        trainer.add_hook(hook).unwrap();
        let mut lab = Lab::new(Toy::default(), &tape).with_step(move |lab, _, cx| {
            cx.show("lab", |_| tenterhook::ModelView::params(&lab.toy));
            assert!(!panics, "the module panics after the hook has failed");
            Err("the module fails after the hook has".into())
        });
        let error = trainer.fit(&mut lab, &mut data(2, 0)).unwrap_err();
        let RunError::Failed { failure, later, .. } = error else { panic!("{error}") };
        assert_eq!(failure.origin, Origin::Hook("points".into()));
        assert_eq!(later.len(), 1, "{later:?}");
        assert_eq!((later[0].origin.clone(), later[0].place), (Origin::Module, "training_step"));

        trainer.remove_hook("points").unwrap();
        trainer.fit(&mut Toy::default(), &mut data(1, 0)).expect("nothing of it is left in the next run");
    }
}
