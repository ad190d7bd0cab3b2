//! The average without a trainer.

use std::time::Duration;

use tenterhook_core::Hook as _;
use tenterhook_core::{Event, NamedTensors, Progress};
use tenterhook_testkit::Rig;

use super::*;

fn options() -> EmaWeightsOptions {
    EmaWeightsOptions { decay: 0.5, warmup: false, ..EmaWeightsOptions::default() }
}

fn rig(options: EmaWeightsOptions) -> Rig<EmaWeights> {
    Rig::new(EmaWeights::new(options).expect("they fit"))
}

/// A batch that completes this step, after which the weight has this value.
fn step(rig: &mut Rig<EmaWeights>, step: u64, weight: f32) {
    let progress = Progress {
        step,
        step_counted: true,
        total_batches: 2 * step,
        epoch: step / 10,
        ..Progress::default()
    };
    rig.progress(progress).params([("w", [weight])]).on_train_batch_end();
}

fn average(rig: &Rig<EmaWeights>) -> Option<f32> {
    rig.hook().state.average.weights.get("w").map(|values| values[0])
}

/// The averages after weights 1, 2, 3, … at steps 1, 2, 3, ….
fn averages(options: EmaWeightsOptions, steps: u64) -> Vec<Option<f32>> {
    let mut rig = rig(options);
    let mut each = |at: u64| {
        rig.elapsed(Duration::from_secs(at));
        step(&mut rig, at, f32::from(u16::try_from(at).expect("few")));
        average(&rig)
    };
    (1..=steps).map(&mut each).collect()
}

#[test]
fn the_first_weights_are_copied_and_later_ones_averaged() {
    assert_eq!(averages(options(), 3), [Some(1.0), Some(1.5), Some(2.25)]);
    let quick = EmaWeightsOptions { decay: 0.0, ..options() };
    assert_eq!(averages(quick, 2), [Some(1.0), Some(2.0)], "without decay it is the weights themselves");
}

#[test]
fn the_decay_warms_up() {
    let mut young = EmaWeights::new(EmaWeightsOptions::default()).expect("they fit");
    let mut grown = |updates| {
        young.state.average.updates = updates;
        young.decay()
    };
    assert!((grown(1) - 2.0 / 11.0).abs() < 1e-12 && (grown(90) - 0.91).abs() < 1e-12);
    assert!((grown(1_000_000) - 0.999).abs() < 1e-12, "up to what was asked for");
    let fixed = EmaWeights::new(EmaWeightsOptions { warmup: false, ..EmaWeightsOptions::default() });
    assert!((fixed.expect("they fit").decay() - 0.999).abs() < 1e-12);
}

#[test]
fn the_average_is_updated_every_n_steps_after_the_start() {
    let every = EmaWeightsOptions { update_every_n_steps: 2, ..options() };
    assert_eq!(averages(every, 4), [None, Some(2.0), Some(2.0), Some(3.0)]);
    for (start, first) in [("3 steps", 4), ("1 epoch", 10), ("8 batches", 5), ("6 s", 6)] {
        let late = EmaWeightsOptions { start_after: Some(start.parse().expect(start)), ..options() };
        let began = averages(late, 12).iter().position(Option::is_some).map(|at| at + 1);
        assert_eq!(began, Some(first), "{start}");
    }
    let both =
        EmaWeightsOptions { start_after: Some(Cadence::Steps(3)), update_every_n_steps: 5, ..options() };
    assert_eq!(averages(both, 5), [None, None, None, None, Some(5.0)]);
}

#[test]
fn a_batch_without_a_step_updates_nothing_and_one_with_several_updates_once() {
    let mut rig = rig(EmaWeightsOptions { update_every_n_steps: 2, ..options() });
    step(&mut rig, 5, 1.0);
    let within = Progress { step: 5, step_counted: false, total_batches: 11, ..Progress::default() };
    rig.progress(within).params([("w", [9.0])]).on_train_batch_end();
    assert_eq!((average(&rig), rig.hook().updates()), (Some(1.0), 1));
    step(&mut rig, 6, 2.0);
    assert_eq!(average(&rig), Some(1.5));
}

fn swaps(rig: &Rig<EmaWeights>) -> Vec<(Event, &'static str)> {
    let word = |decision: &Decision| match decision.requests() {
        [Request::SwapWeights(_)] => "in",
        [Request::SwapBack] => "back",
        other => panic!("{other:?}"),
    };
    rig.decisions().iter().map(|(event, decision)| (*event, word(decision))).collect()
}

fn validate(rig: &mut Rig<EmaWeights>) {
    rig.on_validation_start();
    rig.on_validation_end();
}

#[test]
fn it_is_swapped_in_for_validations_once_there_is_an_average() {
    let mut rig = rig(options());
    validate(&mut rig);
    assert_eq!(swaps(&rig), [], "nothing to swap in yet");
    step(&mut rig, 1, 4.0);
    rig.phase(Phase::SanityCheck);
    validate(&mut rig);
    rig.phase(Phase::Validate).stage(Stage::Validate);
    validate(&mut rig);
    assert_eq!(swaps(&rig), [], "neither in a sanity check nor in an evaluation by hand");
    rig.stage(Stage::Fit);
    validate(&mut rig);
    assert_eq!(swaps(&rig), [(Event::ValidationStart, "in"), (Event::ValidationEnd, "back")]);
    let decision = &rig.decisions_at(Event::ValidationStart)[0];
    let [Request::SwapWeights(Weights(weights))] = decision.requests() else { panic!("{decision:?}") };
    assert_eq!(weights.get("w"), Some(&[4.0][..]));
}

#[test]
fn without_the_swap_validations_use_the_current_weights_and_the_end_sets_the_average() {
    let mut rig = rig(EmaWeightsOptions { swap_for_validation: false, ..options() });
    step(&mut rig, 1, 4.0);
    validate(&mut rig);
    rig.on_save_checkpoint();
    assert_eq!(swaps(&rig), []);
    assert_eq!(rig.entries().read::<String>(EVALUATE_WITH).expect("it reads"), None);
    rig.on_train_end();
    assert_eq!(swaps(&rig), [(Event::TrainEnd, "in")]);
    assert_eq!(rig.said()[0].1, "the final weights are the average of the weights at 1 steps");
}

#[test]
fn a_missing_average_is_reported_at_the_end_and_not_named_in_checkpoints() {
    let mut rig = rig(options());
    rig.on_save_checkpoint();
    rig.on_train_end();
    assert_eq!(swaps(&rig), []);
    assert_eq!(rig.entries().read::<String>(EVALUATE_WITH).expect("it reads"), None);
    assert_eq!(rig.said()[0].1, "there is no average yet, so the final weights are those of training");
}

#[test]
fn a_checkpoint_names_the_hook_of_its_average() {
    let named = tenterhook_core::Registration { name: Some("mine".into()), ..Default::default() };
    let mut rig = Rig::registered(EmaWeights::new(options()).expect("they fit"), named);
    step(&mut rig, 1, 4.0);
    rig.on_save_checkpoint();
    assert_eq!(rig.entries().read::<String>(EVALUATE_WITH).expect("it reads").as_deref(), Some("mine"));
}

#[test]
fn its_state_copies_nothing_and_does_not_change_with_the_average() {
    let mut rig = rig(options());
    step(&mut rig, 1, 4.0);
    let place = |tensors: &NamedTensors| tensors.get("w").map(<[f32]>::as_ptr);
    let state = Controller::state_dict(&*rig.hook()).expect("it has one");
    assert_eq!(place(&state.tensors), place(&rig.hook().state.average.weights));
    step(&mut rig, 2, 8.0);
    assert_eq!((state.tensors.get("w"), average(&rig)), (Some(&[4.0][..]), Some(6.0)));
    let before = place(&rig.hook().state.average.weights);
    step(&mut rig, 3, 8.0);
    assert_eq!(
        place(&rig.hook().state.average.weights),
        before,
        "nobody else holds it, so it changes in place"
    );
}

#[test]
fn a_run_that_fails_in_a_validation_gets_its_own_weights_back() {
    let mut rig = rig(options());
    step(&mut rig, 1, 4.0);
    rig.on_exception();
    assert_eq!(swaps(&rig), []);
    rig.on_validation_start();
    rig.on_exception();
    assert_eq!(swaps(&rig), [(Event::ValidationStart, "in"), (Event::Exception, "back")]);
}

#[test]
fn a_resumed_average_is_the_same_to_the_bit() {
    let fresh = || EmaWeights::new(EmaWeightsOptions::default()).expect("they fit");
    let mut rig = Rig::new(fresh());
    for (at, weight) in [(1, 0.1), (2, 0.7), (3, -0.3)] {
        step(&mut rig, at, weight);
    }
    let mut resumed = rig.resumed(fresh());
    for rig in [&mut rig, &mut resumed] {
        step(rig, 3, 9.0);
        step(rig, 4, 0.2);
    }
    assert_eq!(average(&rig).map(f32::to_bits), average(&resumed).map(f32::to_bits));
    assert_eq!((rig.hook().updates(), resumed.hook().updates()), (4, 4));
}

#[test]
fn the_order_of_a_checkpoint_is_not_the_order_of_the_module() {
    let mut rig = rig(options());
    let next = |step| Progress { step, step_counted: true, ..Progress::default() };
    rig.progress(next(1)).params([("w", [1.0]), ("b", [5.0])]).on_train_batch_end();
    let mut state = rig.state_dict();
    state.tensors = tenterhook_core::NamedTensors::from([("b", [5.0]), ("w", [1.0])]);
    rig.load_state_dict(&state);
    rig.progress(next(2)).params([("w", [3.0]), ("b", [6.0])]).on_train_batch_end();
    let weights = rig.hook().state.average.weights.clone();
    assert_eq!((weights.get("w"), weights.get("b")), (Some(&[2.0][..]), Some(&[5.5][..])));
}

#[test]
fn another_model_is_not_averaged_with_the_old_one() {
    let mut rig = rig(options());
    step(&mut rig, 1, 4.0);
    let next = Progress { step: 2, step_counted: true, ..Progress::default() };
    rig.progress(next).params([("v", [1.0])]).on_train_batch_end();
    assert!(rig.failures()[0].failure.to_string().contains("has other parameters"));
    rig.progress(Progress { step: 3, ..next }).params([("w", [1.0]), ("v", [1.0])]).on_train_batch_end();
    assert_eq!(rig.failures().len(), 2);
}

#[test]
fn invalid_values_are_refused_with_the_key_and_the_fix() {
    for (options, key, fix) in [
        (
            EmaWeightsOptions { decay: 1.0, ..options() },
            "`decay`",
            "`decay` is 1; it must be at least 0 and less than 1, such as 0.999",
        ),
        (EmaWeightsOptions { decay: -0.1, ..options() }, "`decay`", "at least 0"),
        (EmaWeightsOptions { decay: f64::NAN, ..options() }, "`decay`", "at least 0"),
        (EmaWeightsOptions { update_every_n_steps: 0, ..options() }, "`update_every_n_steps`", "1 or more"),
    ] {
        let error = EmaWeights::new(options).expect_err(key).to_string();
        assert!(error.starts_with(key) && error.contains(fix), "{error}");
    }
}

#[test]
fn the_weights_are_claimed() {
    let hook = EmaWeights::new(EmaWeightsOptions::default()).expect("they fit");
    assert_eq!(hook.spec().claims[0].what, "weights");
    assert!(hook.spec().writes.is_empty(), "they are no metric");
}
