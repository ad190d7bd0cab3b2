//! Forward hooks receive the activations that the module names, as soon as they are computed.

use std::fmt::Display;

use tenterhook::toy::Toy;
use tenterhook::{
    Activation, HookKind, HookResult, HookSpec, NamedTensors, Observer, Origin, Pattern, Phase, Policy,
    RunError, RunNotice, Settings, Stage, StepOutput, closure, hook,
};

use crate::call_log::{CallLog, SharedVec};
use crate::lab::{Lab, bits, data, epochs, trainer};
use crate::line::{Batches, Line, points};

/// A forward hook for the points of a pattern, which may fail.
pub struct Points {
    seen: SharedVec<(Phase, u64, Vec<f32>)>,
    pub names: SharedVec<String>,
    pattern: Pattern,
    error: Option<&'static str>,
    panics: bool,
    policy: Policy,
}

impl Points {
    pub fn named(pattern: &str) -> Points {
        Points {
            seen: SharedVec::new(),
            names: SharedVec::new(),
            pattern: pattern.parse().unwrap(),
            error: None,
            panics: false,
            policy: Policy::DISABLE,
        }
    }
}

#[hook]
impl Observer for Points {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        spec.name("points").policy(self.policy)
    }
    fn wants_point(&self, point: &str) -> bool {
        self.pattern.matches(point)
    }
    fn on_activation(&mut self, activation: &Activation) -> HookResult {
        assert_eq!(activation.tensor().name(), activation.values.iter().next().unwrap().name());
        self.seen.push((activation.phase, activation.progress.batches, activation.tensor().to_vec()));
        self.names.push(activation.point.to_owned());
        assert!(!self.panics, "blinded");
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
fn a_forward_hook_receives_only_the_points_that_it_selects() {
    let mut trainer = trainer(epochs(1));
    let hook = Points::named("another.point");
    let seen = hook.seen.clone();
    trainer.add_hook(hook).unwrap();
    trainer.fit(&mut Line::new(0.25), &mut lines()).unwrap();
    assert!(seen.take().is_empty());
}

#[test]
fn a_failure_of_a_forward_hook_follows_its_policy() {
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
        let call_log = CallLog::default();
        let mut trainer = trainer(epochs(1));
        let hook = Points { error: Some("too bright"), policy: Policy::ABORT, ..Points::named("lab") };
        trainer.add_hook(hook).unwrap();
        let mut lab = Lab::new(Toy::default(), &call_log).with_step(move |lab, _, cx| {
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

/// Shows the toy's weights at a point of this name.
pub fn shows(lab: &Lab, name: impl Display, cx: &mut tenterhook::Cx<'_, Lab>) {
    cx.show(name, |name| NamedTensors::from([(name, lab.toy.param("weight"))]));
}

#[test]
fn a_point_is_shown_once_its_values_exist_and_before_the_loss() {
    let order = SharedVec::new();
    let mut trainer = trainer(epochs(1));
    let note = |text: &'static str| {
        let order = order.clone();
        move || order.push(text)
    };
    let (before, shown, after, backward) =
        (note("before forward"), note("shown"), note("after forward"), note("before backward"));
    trainer.add_hook(closure::on_after_forward("after", move |_| after())).unwrap();
    trainer.add_hook(closure::on_before_backward("backward", move |_| backward())).unwrap();
    trainer.add_hook(closure::on_activation("shown", move |_| shown())).unwrap();
    trainer.add_hook(closure::on_before_forward("before", move |_| before())).unwrap();
    let (made, loss) = (note("values"), note("loss"));
    let mut lab = Lab::new(Toy::default(), &CallLog::default()).with_step(move |lab, batch, cx| {
        made();
        shows(lab, "values", cx);
        loss();
        Ok(StepOutput::Loss(lab.toy.loss(batch)))
    });
    trainer.fit(&mut lab, &mut data(1, 0)).unwrap();
    assert_eq!(
        order.take(),
        ["before forward", "values", "shown", "loss", "after forward", "before backward"]
    );
}

#[test]
fn points_are_shown_in_all_four_stages() {
    let mut trainer = trainer(Settings { num_sanity_val_steps: 1, ..epochs(1) });
    let seen = SharedVec::new();
    let see = seen.clone();
    let hook = closure::on_activation("all", move |cx| {
        assert_eq!(cx.tensor().shape(), [4]);
        see.push((cx.stage, cx.phase, cx.point.to_owned()));
    });
    trainer.add_hook(hook).unwrap();
    assert_eq!(trainer.list_hooks()[0].kind, HookKind::Forward);
    let (mut toy, mut data) = (Toy::default(), data(1, 1));
    trainer.fit(&mut toy, &mut data).unwrap();
    trainer.validate(&mut toy, &mut data).unwrap();
    (data.test, data.predict) = (vec![1], vec![1]);
    trainer.test(&mut toy, &mut data).unwrap();
    trainer.predict(&mut toy, &mut data).unwrap();
    let expected = [
        (Stage::Fit, Phase::SanityCheck),
        (Stage::Fit, Phase::Train),
        (Stage::Fit, Phase::Validate),
        (Stage::Validate, Phase::Validate),
        (Stage::Test, Phase::Test),
        (Stage::Predict, Phase::Predict),
    ];
    let points =
        |(stage, phase)| ["linear.product", "prediction"].map(|point| (stage, phase, point.to_owned()));
    assert_eq!(seen.take(), expected.map(points).concat());
}

/// Two blocks with an attention and a perceptron of two layers each, and a head.
fn nested() -> Lab {
    Lab::new(Toy::default(), &CallLog::default()).with_step(|lab, batch, cx| {
        for block in 0..2 {
            cx.scope(format_args!("blocks.{block}"), |cx| {
                shows(lab, "attn", cx);
                cx.scope("mlp", |cx| (1..=2).for_each(|layer| shows(lab, format_args!("fc{layer}"), cx)));
                shows(lab, "out", cx);
            });
        }
        shows(lab, "head", cx);
        Ok(StepOutput::Loss(lab.toy.loss(batch)))
    })
}

#[test]
fn scopes_nest_and_patterns_select() {
    let chosen = |pattern: &str| {
        let mut trainer = trainer(epochs(1));
        let hook = Points::named(pattern);
        let names = hook.names.clone();
        trainer.add_hook(hook).unwrap();
        trainer.fit(&mut nested(), &mut data(1, 0)).unwrap();
        names.take()
    };
    assert_eq!(
        chosen("**"),
        [
            "blocks.0.attn",
            "blocks.0.mlp.fc1",
            "blocks.0.mlp.fc2",
            "blocks.0.out",
            "blocks.1.attn",
            "blocks.1.mlp.fc1",
            "blocks.1.mlp.fc2",
            "blocks.1.out",
            "head",
        ]
    );
    assert_eq!(chosen("blocks.*.attn"), ["blocks.0.attn", "blocks.1.attn"]);
    assert_eq!(chosen("blocks.1.**.fc2"), ["blocks.1.mlp.fc2"]);
    assert_eq!(chosen("*"), ["head"]);
    assert!(chosen("blocks.*").is_empty(), "a star is one part");
}

#[test]
fn a_panicking_forward_hook_is_contained_and_does_not_change_training() {
    let mut alone = Toy::default();
    trainer(epochs(1)).fit(&mut alone, &mut data(3, 1)).unwrap();

    let mut trainer = trainer(epochs(1));
    let hook = Points { panics: true, ..Points::named("linear.*") };
    let names = hook.names.clone();
    trainer.add_hook(hook).unwrap();
    let mut watched = Toy::default();
    let report = trainer.fit(&mut watched, &mut data(3, 1)).unwrap();
    assert_eq!(bits(&watched), bits(&alone));
    assert_eq!(names.take(), ["linear.product"], "it is not asked again");
    let contained = report.notices.iter().find_map(|notice| match notice {
        RunNotice::Contained(contained) => Some(contained),
        _ => None,
    });
    let contained = contained.expect("it is told");
    assert!(contained.failure.panicked && contained.disabled);
    assert_eq!(contained.failure.place, "on_activation");
    assert!(!trainer.list_hooks()[0].enabled);
}
