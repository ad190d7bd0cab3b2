//! Update hooks over the gradients.

use tenterhook_core::{Event, Failure, Gradients, HookResult, Policy, Update, UpdateHook};
use tenterhook_testkit::NamedTensors;

use crate::bench::{Bench, moment};

type Change = fn(&mut Gradients<'_>) -> HookResult;

struct Changes {
    name: &'static str,
    policy: Policy,
    change: Change,
}

impl UpdateHook for Changes {
    fn name(&self) -> String {
        self.name.into()
    }
    fn policy(&self) -> Policy {
        self.policy
    }
    fn update(&mut self, gradients: &mut Gradients<'_>, _: &Update<'_>) -> HookResult {
        (self.change)(gradients)
    }
}

fn add_one(gradients: &mut Gradients<'_>) -> HookResult {
    for name in gradients.names() {
        assert!(gradients.edit(&name, |values| values.iter_mut().for_each(|value| *value += 1.0)));
    }
    Ok(())
}

fn double(gradients: &mut Gradients<'_>) -> HookResult {
    gradients.scale(2.0);
    Ok(())
}

fn spoil_and_fail(gradients: &mut Gradients<'_>) -> HookResult {
    gradients.scale(f32::NAN);
    gradients.edit("w", |values| values.fill(3.0));
    Err("spoilt".into())
}

fn spoil_and_panic(gradients: &mut Gradients<'_>) -> HookResult {
    gradients.edit("b", |values| {
        values[0] = f32::NAN;
        panic!("in the middle of an edit");
    });
    Ok(())
}

fn bench(hooks: &[(&'static str, Policy, Change)]) -> Bench {
    let mut bench = Bench::new();
    for (name, policy, change) in hooks {
        bench.runner.add_update(Changes { name, policy: *policy, change: *change }).unwrap();
    }
    bench
}

fn update(bench: &mut Bench) -> (NamedTensors, Result<(), Failure>) {
    let mut gradients = given();
    let cx = Update { moment: moment(&bench.shared, bench.progress), optimizer: 1 };
    let result = bench.runner.update(&mut gradients, &cx);
    (gradients, result)
}

fn given() -> NamedTensors {
    [("w", [1.0, 2.0]), ("b", [3.0, 4.0])].into()
}

#[test]
fn update_hooks_run_in_registration_order_each_on_what_the_last_one_left() {
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
fn an_aborting_update_hook_ends_it_and_leaves_the_gradients_as_before_it() {
    let mut bench = bench(&[
        ("add", Policy::ABORT, add_one),
        ("bad", Policy::ABORT, spoil_and_fail),
        ("double", Policy::ABORT, double),
    ]);
    (bench.progress.epoch, bench.progress.step) = (1, 5);
    let (gradients, result) = update(&mut bench);
    assert_eq!(result.unwrap_err().to_string(), "hook `bad` failed in update (epoch 1, step 5): spoilt");
    assert_eq!(gradients, [("w", [2.0, 3.0]), ("b", [4.0, 5.0])].into());
}

#[test]
fn an_update_hook_is_disabled_by_its_policy_or_a_panic() {
    let mut failing = bench(&[("bad", Policy::DISABLE, spoil_and_fail)]);
    for _ in 0..2 {
        update(&mut failing).1.unwrap();
        assert!(failing.runner.updates_gradients());
    }
    update(&mut failing).1.unwrap();
    assert!(!failing.runner.updates_gradients());
    assert_eq!(failing.contained().len(), 3);

    let mut panicking = bench(&[("bad", Policy::WARN, spoil_and_panic)]);
    update(&mut panicking).1.unwrap();
    assert!(!panicking.runner.updates_gradients());
    assert_eq!(
        panicking.contained(),
        ["hook `bad` panicked in update (epoch 0, step 0): in the middle of an edit; disabled"]
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

#[test]
fn an_unknown_parameter_is_not_edited() {
    fn unknown(gradients: &mut Gradients<'_>) -> HookResult {
        assert!(!gradients.edit("nobody", |_| ()));
        assert_eq!(gradients.read("nobody"), None);
        assert_eq!(gradients.read("w"), Some(vec![1.0, 2.0]));
        Ok(())
    }
    update(&mut bench(&[("a", Policy::ABORT, unknown)])).1.unwrap();
}

#[test]
fn an_update_hook_is_switched_like_any_other() {
    let mut bench = bench(&[("double", Policy::ABORT, double)]);
    bench.runner.disable("double").unwrap();
    assert_eq!(update(&mut bench).0, given());
    bench.runner.enable("double").unwrap();
    assert_ne!(update(&mut bench).0, given());
    assert!(bench.runner.add(bench.actor("double")).is_err(), "names are unique among all kinds");
    bench.runner.remove("double").unwrap();
    assert!(!bench.runner.updates_gradients());
}
