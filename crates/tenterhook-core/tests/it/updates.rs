//! Update hooks that change gradients.

use tenterhook_core::update::{GradientChange, Identity};
use tenterhook_core::{
    AnyHook, Cadence, ClipRule, Event, Failure, Gradients, HookKind, HookResult, HookSpec, Policy,
    Registration, RosterChange, RosterError, RosterRequest, Update, UpdateHook, hook,
};
use tenterhook_testkit::NamedTensors;

use crate::bench::{Bench, run_cx};

type Change = fn(&mut Gradients<'_>) -> HookResult;

struct Changes {
    name: &'static str,
    policy: Policy,
    change: Change,
}

#[hook]
impl UpdateHook for Changes {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        spec.name(self.name).policy(self.policy)
    }
    fn update(&mut self, gradients: &mut Gradients<'_>, _: &Update<'_>) -> HookResult {
        (self.change)(gradients)
    }
}

fn add_one(gradients: &mut Gradients<'_>) -> HookResult {
    gradients.each(|gradient| {
        gradient.edit(|values| values.iter_mut().for_each(|value| *value += 1.0));
        Ok(())
    })
}

fn double(gradients: &mut Gradients<'_>) -> HookResult {
    gradients.scale(2.0);
    Ok(())
}

fn spoil_and_fail(gradients: &mut Gradients<'_>) -> HookResult {
    gradients.scale(f32::NAN);
    gradients.edit("w", |values| values.fill(3.0))?;
    gradients.get("b")?.remove();
    Err("spoilt".into())
}

fn spoil_and_panic(gradients: &mut Gradients<'_>) -> HookResult {
    gradients.edit("b", |values| {
        values[0] = f32::NAN;
        panic!("in the middle of an edit");
    })?;
    Ok(())
}

fn bench(hooks: &[(&'static str, Policy, Change)]) -> Bench {
    let mut bench = Bench::new();
    for (name, policy, change) in hooks {
        bench.runner.add(Changes { name, policy: *policy, change: *change }).unwrap();
    }
    bench
}

fn update(bench: &mut Bench) -> (NamedTensors, Result<(), Failure>) {
    let mut gradients = given();
    let cx = Update { run_cx: run_cx(&bench.shared, bench.progress), optimizer: 1 };
    let result = bench.runner.update(&mut gradients, &cx);
    (gradients, result)
}

fn given() -> NamedTensors {
    [("w", [1.0, 2.0]), ("b", [3.0, 4.0])].into()
}

#[test]
fn update_hooks_run_in_registration_order_on_the_result_of_the_previous_one() {
    let abort = Policy::ABORT;
    let (gradients, _) = update(&mut bench(&[("add", abort, add_one), ("double", abort, double)]));
    assert_eq!(gradients, [("w", [4.0, 6.0]), ("b", [8.0, 10.0])].into());
    let (gradients, _) = update(&mut bench(&[("double", abort, double), ("add", abort, add_one)]));
    assert_eq!(gradients, [("w", [3.0, 5.0]), ("b", [7.0, 9.0])].into());
}

#[test]
fn a_failing_update_hook_leaves_the_gradients_as_before_it() {
    for spoil in [spoil_and_fail as Change, spoil_and_panic] {
        let hooks = [
            ("add", Policy::ABORT, add_one as Change),
            ("bad", Policy::WARN, spoil),
            ("double", Policy::ABORT, double),
        ];
        let (gradients, result) = update(&mut bench(&hooks));
        assert!(result.is_ok());
        assert_eq!(gradients, [("w", [4.0, 6.0]), ("b", [8.0, 10.0])].into());
    }
}

#[test]
fn a_failing_update_hook_with_policy_abort_ends_the_run_and_leaves_the_gradients_unchanged() {
    let mut bench = bench(&[
        ("add", Policy::ABORT, add_one),
        ("bad", Policy::ABORT, spoil_and_fail),
        ("double", Policy::ABORT, double),
    ]);
    (bench.progress.epoch, bench.progress.step) = (1, 5);
    let (gradients, result) = update(&mut bench);
    assert_eq!(result.unwrap_err().to_string(), "hook `bad` failed in update (epoch 2, step 5): spoilt");
    assert_eq!(gradients, [("w", [2.0, 3.0]), ("b", [4.0, 5.0])].into());
}

#[test]
fn an_update_hook_is_disabled_by_its_policy_or_a_panic() {
    let mut failing = bench(&[("bad", Policy::DISABLE, spoil_and_fail)]);
    for _ in 0..2 {
        update(&mut failing).1.unwrap();
        assert!(failing.runner.updates_gradients());
    }
    assert!(failing.runner.take_roster_changes().is_empty());
    update(&mut failing).1.unwrap();
    assert!(!failing.runner.updates_gradients());
    assert_eq!(failing.contained().len(), 3);
    let change = RosterRequest::Disable("bad".into());
    assert_eq!(failing.runner.take_roster_changes(), [RosterChange { by: None, change }]);

    let mut panicking = bench(&[("bad", Policy::WARN, spoil_and_panic)]);
    update(&mut panicking).1.unwrap();
    assert!(!panicking.runner.updates_gradients());
    assert_eq!(
        panicking.contained(),
        ["hook `bad` panicked in update (epoch 1, step 0): in the middle of an edit; disabled"]
    );
}

#[test]
fn without_an_update_hook_there_is_identity_and_nothing_runs() {
    let mut bench = Bench::new();
    assert!(!bench.runner.updates_gradients());
    assert_eq!(bench.runner.list().iter().map(|hook| hook.name.as_str()).collect::<Vec<_>>(), ["identity"]);
    assert_eq!(update(&mut bench).0, given());
    assert!(!bench.runner.wants(Event::BeforeOptimizerStep));
}

/// The reported failure of a hook that makes this change and ignores the error.
fn refusal(change: Change) -> String {
    let (gradients, result) =
        update(&mut bench(&[("double", Policy::ABORT, double), ("bad", Policy::ABORT, change)]));
    assert_eq!(gradients, [("w", [2.0, 4.0]), ("b", [6.0, 8.0])].into(), "unchanged by the hook");
    result.unwrap_err().error.to_string()
}

#[test]
fn a_refused_change_is_reported_even_if_the_hook_ignores_the_error() {
    let unknown = refusal(|gradients| {
        gradients.scale(3.0);
        let _ = gradients.edit("ww", |_| ());
        Ok(())
    });
    assert_eq!(unknown, "there is no parameter `ww` among those of this optimizer; did you mean `w`?");
    let shape = refusal(|gradients| {
        let _ = gradients.get("b")?.replace(&[1.0; 3]);
        Ok(())
    });
    assert_eq!(shape, "the gradient of `b` has the shape [2], and cannot become one of 3 values");
    let dropped = refusal(|gradients| {
        gradients.get("w")?.remove();
        let _ = gradients.edit("w", |values| values.fill(1.0));
        Ok(())
    });
    assert_eq!(dropped, "`w` has no gradient in this step; ask `contains` first");
    let native = refusal(|gradients| {
        let _ = gradients.get("w")?.set_native(Box::new("no tensor"));
        Ok(())
    });
    assert_eq!(native, "the gradient of `w` is not a tensor of this engine");
}

#[test]
fn a_gradient_can_be_replaced_and_dropped() {
    fn change(gradients: &mut Gradients<'_>) -> HookResult {
        assert_eq!(gradients.names().collect::<Vec<_>>(), ["w", "b"]);
        gradients.get("w")?.replace(&[7.0, 8.0])?;
        gradients.get("b")?.remove();
        assert!(gradients.contains("w") && !gradients.contains("b") && !gradients.contains("x"));
        assert_eq!(gradients.names().collect::<Vec<_>>(), ["w"]);
        assert_eq!(gradients.get("w")?.to_vec(), [7.0, 8.0]);
        Ok(())
    }
    let (gradients, result) = update(&mut bench(&[("a", Policy::ABORT, change)]));
    result.unwrap();
    assert_eq!((gradients.get("w"), gradients.get("b")), (Some(&[7.0, 8.0][..]), None));
}

#[test]
fn clipping_uses_the_common_norm_of_the_chosen_gradients() {
    let clip = |rule| {
        let (mut gradients, mut before) = (given(), given());
        let mut clipped = Gradients::new(&mut gradients);
        clipped.clip(|name| name == "b", rule).unwrap();
        clipped.undo();
        drop(clipped);
        assert_eq!(gradients, before);
        Gradients::new(&mut before).clip(|name| name == "b", rule).unwrap();
        before
    };
    assert_eq!(clip(ClipRule::Norm(2.5)), [("w", [1.0, 2.0]), ("b", [1.5, 2.0])].into());
    assert_eq!(clip(ClipRule::Norm(6.0)), given());
    assert_eq!(clip(ClipRule::Value(3.5)), [("w", [1.0, 2.0]), ("b", [3.0, 3.5])].into());
}

#[test]
fn a_norm_of_nan_makes_all_its_gradients_nan() {
    let mut gradients: NamedTensors = [("w", [f32::NAN, 2.0]), ("b", [3.0, 4.0])].into();
    let mut clipped = Gradients::new(&mut gradients);
    clipped.get("b").unwrap().clip(ClipRule::Norm(2.5)).unwrap();
    assert_eq!(clipped.get("b").unwrap().to_vec(), [1.5, 2.0], "by its own");
    clipped.clip(|_| true, ClipRule::Norm(2.5)).unwrap();
    for name in ["w", "b"] {
        assert!(clipped.get(name).unwrap().to_vec().iter().all(|value| value.is_nan()), "{name}");
    }
}

#[test]
fn an_invalid_clipping_limit_is_refused() {
    let refused = |change: Change| {
        assert_eq!(
            refusal(change),
            "gradients cannot be clipped at NaN; the limit must be a number of 0 or more"
        );
    };
    refused(|gradients| {
        let _ = gradients.clip(|_| true, ClipRule::Value(f64::NAN));
        Ok(())
    });
    refused(|gradients| {
        let _ = gradients.get("w")?.clip(ClipRule::Norm(f64::NAN));
        Ok(())
    });
    let mut gradients = given();
    assert!(Gradients::new(&mut gradients).clip(|_| true, ClipRule::Value(-1.0)).is_err());
}

#[test]
fn check_finite_fails_the_hook_that_left_a_non_finite_gradient() {
    let spoils: Change = |gradients| Ok(gradients.edit("b", |values| values[0] = f32::INFINITY)?);
    let run = |check: bool| {
        let mut bench = Bench::new();
        let how = Registration { check_finite: Some(check), ..Registration::default() };
        let hook = Changes { name: "bad", policy: Policy::WARN, change: spoils };
        bench.runner.register(AnyHook::new(hook), how).unwrap();
        let (gradients, result) = update(&mut bench);
        result.unwrap();
        (gradients.get("b").unwrap()[0].is_finite(), bench.contained())
    };
    assert_eq!(run(false), (false, Vec::new()));
    let (finite, said) = run(true);
    assert!(finite, "the gradients are unchanged");
    let expected = "the gradient of `b` is not finite after the hook (1 of 2 values), it was finite before";
    assert!(said[0].contains(expected), "{said:?}");
}

#[test]
fn a_trace_lists_hook_parameter_and_norms_of_each_change() {
    let drops: Change = |gradients| {
        gradients.get("b")?.remove();
        Ok(())
    };
    let leaves: Change = |gradients| {
        gradients.scale(1.0);
        Ok(())
    };
    let mut bench = bench(&[
        ("double", Policy::ABORT, double),
        ("bad", Policy::WARN, spoil_and_fail),
        ("leaves", Policy::ABORT, leaves),
        ("drops", Policy::ABORT, drops),
    ]);
    update(&mut bench).1.unwrap();
    assert!(bench.runner.take_gradient_changes().is_empty(), "tracing is off");
    bench.runner.trace_gradient_changes(true);
    update(&mut bench).1.unwrap();
    let told = |touched: &GradientChange| {
        let GradientChange { hook, parameter, norm_before, norm_after, change, .. } = touched;
        format!("{hook} {parameter} {norm_before:.3?} {norm_after:.3?} {change:.3}")
    };
    let traced = bench.runner.take_gradient_changes();
    assert_eq!(
        traced.iter().map(told).collect::<Vec<_>>(),
        [
            "double w Some(2.236) Some(4.472) 2.236",
            "double b Some(5.000) Some(10.000) 5.000",
            "drops b Some(10.000) None 10.000",
        ]
    );
    assert_eq!((traced[0].step, traced[0].optimizer), (1, 1));
}

#[test]
fn a_gate_before_an_update_hook_lets_it_fire_less_often() {
    let mut bench = Bench::new();
    let hook = AnyHook::new(Changes { name: "double", policy: Policy::ABORT, change: double });
    let gated = hook.every("2 steps").unwrap();
    assert_eq!((gated.name(), gated.kind()), ("double", HookKind::Update));
    bench.runner.add(gated).unwrap();
    assert_eq!(bench.runner.declared()[0].every, [Cadence::Steps(2)]);
    let mut changed = Vec::new();
    for step in 0..4 {
        bench.progress.step = step;
        changed.push(update(&mut bench).0 != given());
    }
    assert_eq!(changed, [false, true, false, true]);
}

#[test]
fn update_hooks_have_all_wrappers_and_are_found_behind_them() {
    let hook = || AnyHook::new(Changes { name: "double", policy: Policy::ABORT, change: double });
    let changed = |hook: AnyHook| {
        let mut bench = Bench::new();
        bench.runner.add(hook).unwrap();
        let found = bench.runner.hook::<Changes>("double").expect("it is there");
        assert_eq!(found.name, "double");
        assert!(bench.runner.hook::<Identity>("double").is_none(), "of another type");
        assert!(bench.runner.hook::<Changes>("other").is_none());
        let steps = (0..4).map(|step| {
            (bench.progress.step, bench.progress.total_batches) = (step, step + 1);
            update(&mut bench).0 != given()
        });
        steps.collect::<Vec<_>>()
    };
    assert_eq!(changed(hook()), [true; 4]);
    assert_eq!(changed(hook().after("2 steps").unwrap()), [false, false, true, true]);
    assert_eq!(changed(hook().once()), [true, false, false, false]);
    assert_eq!(changed(hook().when(|run_cx| run_cx.step == 2)), [false, false, true, false]);
    assert_eq!(changed(hook().sampled(0.0)), [false; 4]);
    assert_eq!(changed(hook().once().every("2 steps").unwrap()), [false, true, false, false]);
    assert!(hook().every("2 fortnights").is_err());
}

#[test]
fn identity_can_be_registered_and_is_never_called() {
    let mut bench = Bench::new();
    bench.runner.add(Identity).unwrap();
    assert!(!bench.runner.updates_gradients());
    assert_eq!(bench.runner.list().iter().map(|hook| hook.name.as_str()).collect::<Vec<_>>(), ["identity"]);
    let how = Registration { name: Some("identity".into()), ..Registration::default() };
    let double = AnyHook::new(Changes { name: "double", policy: Policy::ABORT, change: double });
    let mut other = Bench::new();
    assert!(matches!(other.runner.register(double, how), Err(RosterError::Reserved(_))));
}

#[test]
fn no_hook_can_be_named_like_the_module_or_the_trainer() {
    for name in ["module", "trainer"] {
        let mut bench = Bench::new();
        let error = bench.runner.add(bench.actor(name)).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "`{name}` is the name of the {name} itself in reports and checkpoints; give the hook another name"
            )
        );
        let how = Registration { name: Some(name.into()), ..Registration::default() };
        assert_eq!(bench.runner.register(Identity, how), Err(RosterError::Reserved(name.into())));
        bench.runner.add(bench.actor("data")).unwrap();
    }
}

#[test]
fn an_update_hook_is_enabled_and_disabled_like_any_other() {
    let mut bench = bench(&[("double", Policy::ABORT, double)]);
    let listed = |bench: &Bench| bench.runner.list().into_iter().map(|hook| hook.name).collect::<Vec<_>>();
    assert_eq!(listed(&bench), ["double"]);
    bench.runner.disable("double").unwrap();
    assert_eq!(
        listed(&bench),
        ["double", "identity"],
        "identity is listed if no other update hook is enabled"
    );
    assert_eq!(update(&mut bench).0, given());
    bench.runner.enable("double").unwrap();
    assert_ne!(update(&mut bench).0, given());
    assert!(bench.runner.add(bench.actor("double")).is_err(), "names are unique among hooks of all kinds");
    bench.runner.remove("double").unwrap();
    assert!(!bench.runner.updates_gradients());
}
