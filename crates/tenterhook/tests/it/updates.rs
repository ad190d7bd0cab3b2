//! Update hooks change the gradients that the optimizer uses.

use tenterhook::toy::Toy;
use tenterhook::{
    AnyHook, Decision, Gradients, HookKind, HookResult, HookSpec, Origin, Policy, RunError, RunNotice,
    Settings, StepOutput, Update, UpdateHook, closure, hook,
};

use crate::call_log::{CallLog, Recorder, SharedVec};
use crate::lab::{Lab, bits, data, epochs, trainer};
use crate::run_directory::{latest, recorded, run_json};

struct Scaled {
    by: f32,
    policy: Policy,
    fails: bool,
    seen: SharedVec<(usize, u64)>,
}

impl Scaled {
    fn by(by: f32) -> Scaled {
        Scaled { by, policy: Policy::ABORT, fails: false, seen: SharedVec::new() }
    }
}

#[hook]
impl UpdateHook for Scaled {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        spec.name("scaled").policy(self.policy)
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
        trainer.add_hook(hook).unwrap();
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
fn trace_updates_without_a_run_directory_is_reported_once() {
    let notices = |trace_updates: bool| {
        let told = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let tell = told.clone();
        let trainer = trainer(Settings { trace_updates, ..epochs(1) });
        let mut trainer = trainer.with_notices(move |notice| tell.lock().unwrap().push(notice.to_string()));
        trainer.add_hook(AnyHook::new(Scaled::by(0.5)).every("2 steps").unwrap()).unwrap();
        trainer.plan_errors(&mut Toy::default(), &mut data(4, 0)).unwrap();
        trainer.fit(&mut Toy::default(), &mut data(4, 0)).unwrap();
        let hook = trainer.hook::<Scaled>("scaled").expect("it can be looked at afterwards");
        assert_eq!(hook.seen.take().len(), 2);
        told.lock().unwrap().clone()
    };
    assert_eq!(notices(false), Vec::<String>::new());
    let told = "trainer: `trace_updates` is on, but without a run directory there is nowhere to write them";
    assert_eq!(notices(true), [told]);
}

#[test]
fn a_condition_on_the_loss_is_evaluated_at_every_step_however_rarely_it_is_logged() {
    for condition in ["loss < 1e9", "train/loss < 1e9"] {
        let hook = Scaled::by(0.5);
        let seen = hook.seen.clone();
        let mut trainer = trainer(Settings { log_every_n_steps: 7, ..epochs(1) });
        let gate = tenterhook::wrap::Conditioned::new(condition.parse().unwrap());
        trainer.add_hook(AnyHook::new(hook).gated(gate)).unwrap();
        trainer.fit(&mut Toy::default(), &mut data(4, 0)).unwrap();
        assert_eq!(seen.take(), [(0, 1), (0, 2), (0, 3)], "all but the first, before which there is none");
    }
}

#[test]
fn it_is_called_for_every_optimizer_in_turn_before_clipping() {
    let hook = Scaled::by(0.5);
    let seen = hook.seen.clone();
    let mut trainer = trainer(Settings { gradient_clip_val: Some(100.0), ..epochs(1) });
    trainer.add_hook(hook).unwrap();
    let norms = SharedVec::new();
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
    trainer.add_hook(Scaled { fails: true, ..Scaled::by(0.0) }).unwrap();
    let mut toy = Toy::default();
    let error = trainer.fit(&mut toy, &mut data(4, 0)).unwrap_err();
    let RunError::Failed { failure, .. } = error else { panic!("{error}") };
    assert_eq!((failure.origin, failure.place), (Origin::Hook("scaled".into()), "update"));
    assert_eq!(bits(&toy), bits(&Toy::default()), "no update was made");
}

/// Records that it was called.
struct Noting(CallLog);

#[hook]
impl UpdateHook for Noting {
    fn update(&mut self, gradients: &mut Gradients, _: &Update) -> HookResult {
        let place = if gradients.contains("weight") { "update of weight" } else { "update of bias" };
        self.0.note("hook:all", place)
    }
}

/// The calls around the updates, in order.
fn around_updates(call_log: &CallLog) -> Vec<&'static str> {
    let of_interest = |place: &&str| {
        let shown = ["on_after_backward", "on_before_optimizer_step", "on_gradient_clip", "clip_gradients"];
        shown.contains(place) || place.starts_with("update of") || *place == "optimizer_step"
    };
    call_log.rows().into_iter().map(|(_, place)| place).filter(of_interest).collect()
}

#[test]
fn update_hooks_run_between_on_before_optimizer_step_and_clipping() {
    let call_log = CallLog::default();
    let settings = Settings { gradient_clip_val: Some(1.0), accumulate_grad_batches: 2, ..epochs(1) };
    let mut trainer = trainer(settings);
    trainer.add_hook(Noting(call_log.clone())).unwrap();
    trainer.add_hook(Recorder::new("all", &call_log)).unwrap();
    let mut lab = Lab::new(Toy::new(2), &call_log);
    trainer.fit(&mut lab, &mut data(2, 0)).unwrap();
    let update = |of: &'static str| {
        let events = ["on_before_optimizer_step", of, "clip_gradients", "on_gradient_clip", "optimizer_step"];
        events.to_vec()
    };
    // Hook and module both have these handlers, one after the other.
    let mut seen = around_updates(&call_log);
    seen.dedup();
    let expected = [vec!["on_after_backward"], update("update of weight"), update("update of bias")].concat();
    assert_eq!(seen, expected, "once per window and optimizer");
}

#[test]
fn it_is_not_called_for_an_update_that_is_skipped() {
    let hook = Scaled::by(0.5);
    let seen = hook.seen.clone();
    let mut trainer = trainer(epochs(1));
    trainer.add_hook(hook).unwrap();
    let skip = |skipped: u64| {
        move |batch: u64| if batch == skipped { Decision::skip_update() } else { Decision::CONTINUE }
    };
    let (early, late) = (skip(1), skip(3));
    trainer.add_hook(closure::on_after_backward("early", move |cx| early(cx.batches))).unwrap();
    trainer.add_hook(closure::on_before_optimizer_step("late", move |cx| late(cx.batches))).unwrap();
    let report = trainer.fit(&mut Toy::default(), &mut data(4, 0)).unwrap();
    assert_eq!(report.progress.step, 2);
    assert_eq!(seen.take(), [(0, 0), (0, 1)]);
}

#[test]
fn a_module_that_steps_its_optimizers_itself_has_them_too() {
    let fitted = |hook: Option<Scaled>| {
        let mut trainer = trainer(epochs(1));
        let seen = hook.as_ref().map(|hook| hook.seen.clone());
        if let Some(hook) = hook {
            trainer.add_hook(hook).unwrap();
        }
        let mut lab = Lab::new(Toy::new(2), &CallLog::default()).manual().with_step(|lab, batch, cx| {
            let loss = lab.toy.loss(batch);
            cx.zero_grad(lab, 1)?;
            cx.backward(lab, &loss)?;
            cx.optimizer_step(lab, 1)?;
            Ok(StepOutput::NoLoss)
        });
        trainer.fit(&mut lab, &mut data(2, 0)).unwrap();
        (bits(&lab.toy), seen.map(|seen| seen.take()))
    };
    let (unchanged, _) = fitted(None);
    assert_ne!(unchanged, bits(&Toy::default()));
    let (nothing_learned, seen) = fitted(Some(Scaled::by(0.0)));
    assert_eq!(nothing_learned, bits(&Toy::default()));
    assert_eq!(seen.unwrap(), [(1, 0), (1, 1)], "of the optimizer that stepped");
}

/// Sets the gradients to NaN and panics.
struct Panicking;

#[hook]
impl UpdateHook for Panicking {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        spec.policy(Policy::DISABLE)
    }
    fn update(&mut self, gradients: &mut Gradients, _: &Update) -> HookResult {
        gradients.scale(f32::NAN);
        panic!("with the gradients half changed")
    }
}

#[test]
fn a_panicking_update_hook_leaves_the_gradients_as_they_were() {
    let mut trainer = trainer(epochs(1));
    trainer.add_hook(Panicking).unwrap();
    let mut toy = Toy::default();
    let report = trainer.fit(&mut toy, &mut data(4, 0)).unwrap();
    assert_eq!(bits(&toy), fitted(1, None));
    let told =
        |notice: &RunNotice| matches!(notice, RunNotice::Contained(contained) if contained.failure.panicked);
    assert_eq!(report.notices.iter().filter(|notice| told(notice)).count(), 1);
}

#[test]
fn several_update_hooks_each_change_the_result_of_the_previous_one() {
    let learned = |hooks: [(&str, f32); 2]| {
        let mut trainer = trainer(epochs(1));
        for (name, by) in hooks {
            let how = tenterhook::Registration { name: Some(name.into()), ..Default::default() };
            trainer.register(AnyHook::new(Scaled::by(by)), how).unwrap();
        }
        let mut toy = Toy::default();
        trainer.fit(&mut toy, &mut data(4, 0)).unwrap();
        bits(&toy)
    };
    assert_eq!(learned([("half", 0.5), ("double", 2.0)]), fitted(1, None));
    assert_eq!(learned([("half", 0.5), ("none", 0.0)]), bits(&Toy::default()));
}

#[test]
fn identity_is_listed_in_the_run_and_the_bits_are_those_of_no_update_hook() {
    let root = tempfile::tempdir().unwrap();
    let mut trainer = recorded(root.path(), epochs(1));
    trainer.add_hook(tenterhook::update::Identity).unwrap();
    let listed = trainer.list_hooks();
    assert_eq!((listed.len(), listed[0].name.as_str(), listed[0].kind), (1, "identity", HookKind::Update));
    let mut toy = Toy::default();
    trainer.fit(&mut toy, &mut data(4, 0)).unwrap();
    assert_eq!(bits(&toy), fitted(1, None));
    let hooks = &run_json(&latest(root.path()))["hooks"];
    let named = (&hooks[0]["name"], &hooks[0]["kind"], &hooks[0]["enabled"]);
    assert_eq!(named, (&"identity".into(), &"update".into(), &true.into()), "{hooks}");
}
