//! Gates of boxed hooks behave like the wrappers.

use tenterhook_core::runner::HookStates;
use tenterhook_core::wrap::{After, Every, Once, Sampled};
use tenterhook_core::{
    AnyHook, Cadence, Decision, HookExt, HookKind, OnError, Registration, Tier, TrainBatchStart, closure,
};
use tenterhook_testkit::Rig;

use super::{Passed, Recorder, passed, script};
use crate::bench::Bench;

/// The events that pass to a recorder that was boxed before it was gated.
fn passed_boxed(gate: impl FnOnce(AnyHook) -> AnyHook) -> Vec<Passed> {
    let recorder = Recorder::default();
    let mut rig = Rig::new(closure::on_fit_end("other", |_| ()));
    rig.add_hook(gate(AnyHook::new(recorder.clone()))).play(&script());
    recorder.take()
}

fn steps(number: u64) -> Every {
    Every::new(Cadence::Steps(number))
}

#[test]
fn a_gated_boxed_hook_receives_the_same_events_as_a_wrapped_one() {
    assert_eq!(passed_boxed(|hook| hook), passed(|hook| hook));
    assert_eq!(passed_boxed(|hook| hook.gated(steps(2))), passed(|hook| hook.every("2 steps").unwrap()));
    assert_eq!(
        passed_boxed(|hook| hook.gated(Once::default()).gated(After::new(Cadence::Epochs(1)))),
        passed(|hook| hook.once().after("1 epoch").unwrap())
    );
    assert_eq!(
        passed_boxed(|hook| hook.gated(Sampled::new(0.5)).gated(steps(2))),
        passed(|hook| hook.sampled(0.5).every("2 steps").unwrap())
    );
}

#[test]
fn a_gate_changes_nothing_else_of_a_boxed_hook() {
    let mut bench = Bench::new();
    let gated = AnyHook::new(Recorder::default()).gated(steps(2));
    bench.runner.register(gated, Registration::default()).unwrap();
    let stops = |_: &TrainBatchStart<'_>| Decision::CONTINUE;
    let controller = AnyHook::new(closure::on_train_batch_start("stops", stops)).gated(Once::default());
    bench.runner.add(controller).unwrap();
    let listed = bench.runner.list();
    assert_eq!((listed[0].name.as_str(), listed[0].kind), ("recorder", HookKind::Forward));
    assert_eq!((listed[0].tier, listed[0].on_error), (Tier::Monitor, OnError::Warn));
    assert_eq!((listed[1].name.as_str(), listed[1].kind), ("stops", HookKind::Controller));
    assert_eq!(bench.runner.declared()[0].every, [Cadence::Steps(2)]);
    assert!(bench.runner.hook::<Recorder>("recorder").is_some());
}

#[test]
fn the_states_of_stacked_gates_and_of_the_hook_survive_a_checkpoint() {
    // `Once` is the innermost gate, so it counts only every second epoch.
    let gated = |recorder: &Recorder| {
        AnyHook::new(recorder.clone()).gated(Once::default()).gated(Every::new(Cadence::Epochs(2)))
    };
    let epoch_starts = |states: Option<&HookStates>, epochs: std::ops::Range<u64>| {
        let (mut bench, recorder) = (Bench::new(), Recorder::default());
        bench.runner.add(gated(&recorder)).unwrap();
        if let Some(states) = states {
            bench.runner.load_states(states, &bench.progress).unwrap();
        }
        for epoch in epochs {
            bench.progress.epoch = epoch;
            bench.start().unwrap();
        }
        let seen: Vec<_> = recorder.take().into_iter().map(|(_, epoch, _)| epoch).collect();
        (seen, bench.runner.states(&bench.progress).unwrap())
    };
    let (seen, states) = epoch_starts(None, 0..3);
    assert_eq!(seen, [1]);
    let text = serde_json::to_string(&states).unwrap();
    let states: HookStates = serde_json::from_str(&text).unwrap();
    assert_eq!(states["recorder"].read::<u64>(3).unwrap(), 1, "the hook's own, without the gates");
    assert_eq!(epoch_starts(Some(&states), 3..6).0, Vec::<u64>::new(), "a resume does not repeat `once`");
    assert_eq!(epoch_starts(None, 3..6).0, [3]);
}
