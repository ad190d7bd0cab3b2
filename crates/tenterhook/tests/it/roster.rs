//! Hooks that are added, removed, enabled and disabled during training.

use tenterhook::toy::Toy;
use tenterhook::{
    Decision, Gradients, HookInfo, HookKind, HookResult, HookSpec, Observer, OnError, Registration,
    RunNotice, State, StepEnd, Tier, Trainer, Update, UpdateHook, closure, hook,
};

use crate::call_log::{CallLog, Recorder, SharedVec};
use crate::lab::{bits, data, epochs, trainer};

/// Adds a controller that does this at the end of one step.
fn at_step(trainer: &mut Trainer, step: u64, act: impl Fn(&StepEnd<'_>) + Send + 'static) {
    trainer
        .add_hook(closure::on_step_end(format!("at_{step}"), move |cx| {
            if cx.step == step {
                act(cx);
            }
            Decision::CONTINUE
        }))
        .unwrap();
}

/// Counts steps, and keeps the count.
struct Counting {
    count: u64,
    seen: SharedVec<(u64, u64)>,
}

#[hook]
impl Observer for Counting {
    fn on_step_end(&mut self, cx: &StepEnd) -> HookResult {
        self.count += 1;
        self.seen.push((cx.step, self.count));
        Ok(())
    }
    fn state_dict(&self) -> HookResult<State> {
        Ok(State::of(1, &self.count)?)
    }
}

fn counting(trainer: &mut Trainer) -> SharedVec<(u64, u64)> {
    let seen = SharedVec::new();
    trainer.add_hook(Counting { count: 0, seen: seen.clone() }).unwrap();
    seen
}

fn fit(trainer: &mut Trainer, steps: u64) -> Vec<RunNotice> {
    trainer.fit(&mut Toy::default(), &mut data(steps, 0)).unwrap().notices
}

fn names(hooks: &[HookInfo]) -> Vec<&str> {
    hooks.iter().map(|hook| hook.name.as_str()).collect()
}

#[test]
fn a_hook_that_is_disabled_still_gets_that_event_and_keeps_its_state() {
    let mut trainer = trainer(epochs(1));
    at_step(&mut trainer, 2, |cx| cx.hooks().disable("counting"));
    at_step(&mut trainer, 4, |cx| cx.hooks().enable("counting"));
    let seen = counting(&mut trainer);
    fit(&mut trainer, 6);
    assert_eq!(seen.take(), [(1, 1), (2, 2), (5, 3), (6, 4)]);
}

#[test]
fn the_state_of_a_disabled_hook_is_saved() {
    let directory = tempfile::tempdir().unwrap();
    let mut trainer = trainer(epochs(1)).with_checkpoints_in(directory.path());
    at_step(&mut trainer, 2, |cx| cx.hooks().disable("counting"));
    counting(&mut trainer);
    trainer
        .add_hook(closure::on_step_end("save", |cx| {
            if cx.step == 4 { Decision::save_now() } else { Decision::CONTINUE }
        }))
        .unwrap();
    fit(&mut trainer, 4);
    let contents = tenterhook::checkpoint::read(&directory.path().join("epoch=0-step=4")).unwrap();
    assert_eq!(contents.hooks["counting"].read::<u64>(1).unwrap(), 2);
}

#[test]
fn a_hook_can_disable_itself_and_others_can_see_it() {
    let mut trainer = trainer(epochs(1));
    let seen = SharedVec::new();
    let listed = seen.clone();
    trainer.add_hook(closure::on_step_end("shy", |cx| cx.hooks().disable("shy"))).unwrap();
    trainer
        .add_hook(closure::on_step_end("list", move |cx| {
            listed.push(cx.hooks().list().iter().map(|hook| hook.enabled).collect::<Vec<_>>());
        }))
        .unwrap();
    fit(&mut trainer, 2);
    assert_eq!(seen.take(), [[true, true], [false, true]]);
    assert!(!trainer.list_hooks()[0].enabled);
}

#[test]
fn a_removed_hook_is_gone_and_its_name_is_free_again() {
    let mut trainer = trainer(epochs(1));
    at_step(&mut trainer, 2, |cx| cx.hooks().remove("counting"));
    let seen = counting(&mut trainer);
    fit(&mut trainer, 4);
    assert_eq!(seen.take(), [(1, 1), (2, 2)]);
    assert_eq!(names(&trainer.list_hooks()), ["at_2", "identity"]);
    counting(&mut trainer);
}

#[test]
fn a_hook_that_is_added_gets_events_from_the_next_one_on() {
    let call_log = CallLog::default();
    let mut trainer = trainer(epochs(1));
    let added = call_log.clone();
    at_step(&mut trainer, 2, move |cx| cx.hooks().add(Recorder::new("late", &added)));
    fit(&mut trainer, 3);
    let places = call_log.places("hook:late");
    assert_eq!(places[..2], ["on_train_batch_end", "on_train_batch_start"]);
    assert_eq!(places.iter().filter(|place| **place == "on_step_end").count(), 1);
    assert_eq!(places.last(), Some(&"teardown"));
}

#[test]
fn a_late_user_hook_still_comes_before_the_built_in_ones() {
    let call_log = CallLog::default();
    let mut trainer = trainer(epochs(1));
    trainer.add_hook(Recorder::new("built_in", &call_log).with_tier(Tier::BuiltIn)).unwrap();
    let added = call_log.clone();
    at_step(&mut trainer, 1, move |cx| cx.hooks().add(Recorder::new("late", &added)));
    fit(&mut trainer, 1);
    assert_eq!(call_log.sources("on_train_end"), ["hook:late", "hook:built_in"]);
}

#[test]
fn a_refused_change_of_the_hooks_is_noted_and_the_run_continues() {
    let mut trainer = trainer(epochs(1));
    counting(&mut trainer);
    at_step(&mut trainer, 1, |cx| {
        cx.hooks().disable("nobody");
        cx.hooks().add(Counting { count: 0, seen: SharedVec::new() });
    });
    let refused: Vec<_> = fit(&mut trainer, 2)
        .iter()
        .filter(|notice| matches!(notice, RunNotice::Refused(_)))
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        refused,
        [
            "there is no hook named `nobody`; there are: `counting`, `at_1`",
            "there is a hook named `counting` already; give one of them another name",
        ]
    );
}

struct Zero;

#[hook]
impl UpdateHook for Zero {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        spec.name("zero")
    }
    fn update(&mut self, gradients: &mut Gradients<'_>, _: &Update<'_>) -> HookResult {
        gradients.scale(0.0);
        Ok(())
    }
}

#[test]
fn an_update_hook_can_be_switched_from_inside_too() {
    let mut trainer = trainer(epochs(1));
    trainer.add_hook(Zero).unwrap();
    let seen = SharedVec::new();
    let params = seen.clone();
    trainer
        .add_hook(closure::on_step_end("params", move |cx| {
            params.push(cx.params().norm() > 0.0);
        }))
        .unwrap();
    at_step(&mut trainer, 2, |cx| cx.hooks().disable("zero"));
    let mut toy = Toy::default();
    trainer.fit(&mut toy, &mut data(3, 0)).unwrap();
    assert_eq!(seen.take(), [false, false, true]);
    assert_ne!(bits(&toy), bits(&Toy::default()));
}

#[test]
fn an_observer_cannot_change_training_through_another_hook() {
    let mut trainer = trainer(epochs(1));
    trainer.add_hook(Zero).unwrap();
    trainer.add_hook(closure::on_step_end("sly", |cx| cx.hooks().disable("zero"))).unwrap();
    let mut toy = Toy::default();
    let report = trainer.fit(&mut toy, &mut data(2, 0)).unwrap();
    assert_eq!(bits(&toy), bits(&Toy::default()));
    let refused = report.notices.iter().filter(|notice| matches!(notice, RunNotice::Refused(_)));
    let refused: Vec<_> = refused.map(ToString::to_string).collect();
    assert_eq!(refused.len(), 2);
    assert!(refused[0].starts_with("observer `sly` requested a change of update hook `zero`"), "{refused:?}");
}

#[test]
fn hooks_are_listed_with_their_current_status() {
    let mut trainer = trainer(epochs(1));
    trainer.add_hook(Recorder::new("b", &CallLog::default()).with_tier(Tier::Monitor)).unwrap();
    let how = Registration { name: Some("a".into()), disabled: true, ..Registration::default() };
    trainer.register(Counting { count: 0, seen: SharedVec::new() }, how).unwrap();
    let shown: Vec<_> = trainer
        .list_hooks()
        .into_iter()
        .map(|hook| (hook.name, hook.kind, hook.tier, hook.enabled, hook.on_error))
        .collect();
    assert_eq!(
        shown,
        [
            ("b".to_owned(), HookKind::Controller, Tier::Monitor, true, OnError::Abort),
            ("a".to_owned(), HookKind::Observer, Tier::User, false, OnError::Disable),
            ("identity".to_owned(), HookKind::Update, Tier::User, true, OnError::Abort),
        ]
    );
    trainer.add_hook(Zero).unwrap();
    assert_eq!(names(&trainer.list_hooks()), ["b", "a", "zero"]);
    assert!(trainer.enable_hook("c").unwrap_err().to_string().contains("`b`, `a`, `zero`"));
}
