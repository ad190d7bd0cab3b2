//! Averaged weights in real training.

use std::path::Path;

use tenterhook::checkpoint::{read, weights_to_evaluate};
use tenterhook::hooks::{Checkpoint, CheckpointOptions, EmaWeights, EmaWeightsOptions};
use tenterhook::settings::{BatchLimit, ValInterval};
use tenterhook::toy::Toy;
use tenterhook::wrap::Conditioned;
use tenterhook::{
    AnyHook, Cadence, Decision, HookExt as _, NamedTensors, Registration, Settings, TensorMap, Trainer,
    closure,
};

use crate::call_log::{CallLog, SharedVec};
use crate::lab::{Lab, bits, data, epochs, trainer};
use crate::run_directory::{latest, recorded};

fn averaging() -> EmaWeights {
    EmaWeights::new(EmaWeightsOptions { decay: 0.5, warmup: false, ..EmaWeightsOptions::default() }).unwrap()
}

/// Adds hooks that record the parameters after each step and those of each validation.
fn watch(trainer: &mut Trainer) -> (SharedVec<Vec<f32>>, SharedVec<Vec<f32>>) {
    let values =
        |tensors: &tenterhook::Tensors<'_>| tensors.iter().flat_map(|tensor| tensor.to_vec()).collect();
    let (steps, validations) = (SharedVec::new(), SharedVec::new());
    let (stepped, validated) = (steps.clone(), validations.clone());
    trainer.add_hook(closure::on_step_end("steps", move |cx| stepped.push(values(&cx.params())))).unwrap();
    trainer
        .add_hook(closure::on_validation_batch_start("seen", move |cx| validated.push(values(&cx.params()))))
        .unwrap();
    (steps, validations)
}

/// The averages after each step.
fn averages(steps: &[Vec<f32>]) -> Vec<Vec<f32>> {
    let mut average = steps[0].clone();
    let taken = steps.iter().map(|step| {
        for (average, value) in average.iter_mut().zip(step) {
            *average += 0.5 * (value - *average);
        }
        average.clone()
    });
    taken.collect()
}

#[test]
fn validation_uses_the_average_and_training_is_unchanged() {
    let run = |with_average: bool| {
        let every_2_batches = Some(ValInterval::Batches(BatchLimit::Count(2)));
        let settings = Settings { num_sanity_val_steps: 1, val_check_interval: every_2_batches, ..epochs(2) };
        let mut trainer = trainer(settings);
        if with_average {
            trainer.add_hook(averaging()).unwrap();
        }
        let (steps, validations) = watch(&mut trainer);
        let mut toy = Toy::new(2);
        trainer.fit(&mut toy, &mut data(4, 1)).unwrap();
        (steps.take(), validations.take(), bits(&toy))
    };
    let (steps, validations, last) = run(true);
    let (plain_steps, plain_validations, plain_last) = run(false);
    assert_eq!(steps, plain_steps);
    let averages = averages(&steps);
    let expected: Vec<_> = [1, 3, 5, 7].map(|at: usize| averages[at].clone()).into();
    assert_eq!(validations[0], [0.0; 3], "the sanity check sees the weights");
    assert_eq!(validations[1..], expected);
    assert_ne!(validations[1..], plain_validations[1..]);
    assert_ne!(last, plain_last);
    assert_eq!(
        last,
        averages[7].iter().map(|value| value.to_bits()).collect::<Vec<_>>(),
        "and the end leaves it"
    );
}

#[test]
fn training_gets_its_own_weights_back_even_if_the_hook_is_gone() {
    let steps = |disturb: fn(&mut Trainer)| {
        let mut trainer = trainer(epochs(4));
        disturb(&mut trainer);
        let (steps, _) = watch(&mut trainer);
        trainer.fit(&mut Toy::new(2), &mut data(4, 1)).unwrap();
        steps.take()
    };
    let plain = steps(|_| {});
    let disabled = steps(|trainer| {
        trainer.add_hook(averaging()).unwrap();
        let off = closure::on_validation_batch_start("off", |cx| {
            cx.hooks().disable("ema_weights");
            Decision::CONTINUE
        });
        trainer.add_hook(off).unwrap();
    });
    assert_eq!(disabled, plain, "disabled between the start and the end of a validation");
    let gated = steps(|trainer| {
        let condition = "val/loss > 0.5 or epoch == 0".parse().unwrap();
        let gate = Conditioned::new(condition);
        trainer.add_hook(AnyHook::new(averaging()).gated(gate)).unwrap();
    });
    assert_eq!(gated, plain, "with a condition that changes within a validation");
}

#[test]
fn without_the_swap_validation_sees_the_weights() {
    let options = EmaWeightsOptions { swap_for_validation: false, ..EmaWeightsOptions::default() };
    let mut trainer = trainer(epochs(1));
    trainer.add_hook(EmaWeights::new(options).unwrap()).unwrap();
    let (steps, validations) = watch(&mut trainer);
    trainer.fit(&mut Toy::default(), &mut data(3, 1)).unwrap();
    assert_eq!(validations.take()[0], steps.take()[2]);
}

fn saving(root: &Path, options: CheckpointOptions) -> Trainer {
    let mut trainer = trainer(epochs(3)).with_checkpoints_in(root);
    trainer
        .register(averaging(), Registration { name: Some("mean".into()), ..Registration::default() })
        .unwrap();
    trainer.add_hook(Checkpoint::new(options).unwrap()).unwrap();
    trainer
}

fn all(at_epoch_end: bool) -> CheckpointOptions {
    CheckpointOptions {
        save_top_k: Some(-1),
        save_on_train_epoch_end: Some(at_epoch_end),
        ..CheckpointOptions::default()
    }
}

fn flat(weights: &TensorMap) -> Vec<f32> {
    let mut values = weights.f32("weight", &[2]).unwrap();
    values.extend(weights.f32("bias", &[1]).unwrap());
    values
}

#[test]
fn a_checkpoint_holds_the_weights_in_training_and_is_evaluated_with_the_average() {
    for at_epoch_end in [false, true] {
        let root = tempfile::tempdir().unwrap();
        let mut trainer = saving(root.path(), all(at_epoch_end));
        let (steps, validations) = watch(&mut trainer);
        trainer.fit(&mut Toy::default(), &mut data(2, 1)).unwrap();
        let (steps, validations) = (steps.take(), validations.take());
        for (epoch, step) in [(0, 2), (1, 4), (2, 6)] {
            let path = root.path().join(format!("epoch={epoch}-step={step}"));
            assert_eq!(flat(&read(&path).unwrap().weights), steps[step - 1], "{at_epoch_end} {epoch}");
            assert_eq!(
                flat(&weights_to_evaluate(&path).unwrap()),
                validations[epoch],
                "{at_epoch_end} {epoch}"
            );
        }
        let damaged = root.path().join("epoch=0-step=2");
        std::fs::write(damaged.join("state.json"), "{").unwrap();
        let error = weights_to_evaluate(&damaged).unwrap_err().to_string();
        assert!(error.contains("state.json is damaged"), "{error}");
    }
}

#[test]
fn a_checkpoint_of_a_validation_that_the_average_was_kept_from_is_evaluated_without_it() {
    let root = tempfile::tempdir().unwrap();
    let mut trainer = trainer(epochs(3)).with_checkpoints_in(root.path());
    let not_in_the_second = |run_cx: &tenterhook::RunContext<'_>| {
        run_cx.epoch != 1 || run_cx.phase != tenterhook::Phase::Validate
    };
    trainer.add_hook(averaging().when(not_in_the_second)).unwrap();
    trainer.add_hook(Checkpoint::new(all(false)).unwrap()).unwrap();
    let (_, validations) = watch(&mut trainer);
    trainer.fit(&mut Toy::default(), &mut data(2, 1)).unwrap();
    for (at, seen) in validations.take().into_iter().enumerate() {
        let path = root.path().join(format!("epoch={at}-step={}", 2 * at + 2));
        assert_eq!(flat(&weights_to_evaluate(&path).unwrap()), seen, "epoch {at}");
        assert_eq!(read(&path).unwrap().entries.contains_key("evaluate_with"), at != 1, "epoch {at}");
    }
}

#[test]
fn a_weights_only_checkpoint_holds_the_evaluated_weights() {
    for (swap_for_validation, at_epoch_end) in [(true, false), (true, true), (false, true)] {
        let root = tempfile::tempdir().unwrap();
        let mut trainer = trainer(epochs(3)).with_checkpoints_in(root.path());
        let average = EmaWeightsOptions {
            decay: 0.5,
            warmup: false,
            swap_for_validation,
            ..EmaWeightsOptions::default()
        };
        trainer.add_hook(EmaWeights::new(average).unwrap()).unwrap();
        let options = CheckpointOptions { save_weights_only: true, ..all(at_epoch_end) };
        trainer.add_hook(Checkpoint::new(options).unwrap()).unwrap();
        let (steps, validations) = watch(&mut trainer);
        trainer.fit(&mut Toy::default(), &mut data(2, 1)).unwrap();
        let (steps, validations) = (steps.take(), validations.take());
        for (epoch, step) in [(0, 2), (1, 4), (2, 6)] {
            let path = root.path().join(format!("epoch={epoch}-step={step}"));
            let kept = flat(&weights_to_evaluate(&path).unwrap());
            assert_eq!(kept, validations[epoch], "{swap_for_validation} {at_epoch_end} {epoch}");
            assert_eq!(kept != steps[step - 1], swap_for_validation);
            assert!(!path.join("hooks.safetensors").exists());
        }
    }
}

#[test]
fn the_final_weights_of_a_run_are_the_average() {
    let root = tempfile::tempdir().unwrap();
    let mut trainer = recorded(root.path(), epochs(1));
    trainer.add_hook(averaging()).unwrap();
    let (steps, _) = watch(&mut trainer);
    trainer.fit(&mut Toy::default(), &mut data(3, 0)).unwrap();
    let left = weights_to_evaluate(&latest(root.path())).unwrap();
    assert_eq!(flat(&left), averages(&steps.take())[2]);
}

#[test]
fn a_resumed_run_ends_with_the_same_bits() {
    let root = tempfile::tempdir().unwrap();
    let mut whole = Toy::default();
    let by_steps = || CheckpointOptions { every_n_train_steps: Some(1), ..all(true) };
    saving(root.path(), by_steps()).fit(&mut whole, &mut data(4, 1)).unwrap();
    for from in ["epoch=0-step=1", "epoch=0-step=3", "epoch=1-step=6", "epoch=2-step=11"] {
        let elsewhere = tempfile::tempdir().unwrap();
        let mut resumed = Toy::default();
        let mut trainer = saving(elsewhere.path(), by_steps()).restoring(root.path().join(from));
        trainer.fit(&mut resumed, &mut data(4, 1)).unwrap();
        assert_eq!(bits(&resumed), bits(&whole), "{from}");
        let last = "epoch=2-step=12";
        for file in ["hooks.safetensors", "weights.safetensors"] {
            let bytes = |root: &Path| std::fs::read(root.join(last).join(file)).unwrap();
            assert_eq!(bytes(elsewhere.path()), bytes(root.path()), "{from}: {file}");
        }
    }
}

#[test]
fn a_run_that_fails_in_a_validation_leaves_the_weights_in_training() {
    let call_log = CallLog::default();
    let mut trainer = trainer(epochs(1));
    trainer.add_hook(averaging()).unwrap();
    let (steps, _) = watch(&mut trainer);
    call_log.fails_at("module", "validation_step");
    let mut lab = Lab::new(Toy::default(), &call_log);
    trainer.fit(&mut lab, &mut data(3, 1)).unwrap_err();
    let left: Vec<_> = steps.take()[2].iter().map(|value| value.to_bits()).collect();
    assert_eq!(bits(&lab.toy), left);
}

#[test]
fn a_start_that_never_comes_is_refused_before_the_first_step() {
    let late = EmaWeightsOptions { start_after: Some(Cadence::Epochs(9)), ..EmaWeightsOptions::default() };
    let mut trainer = trainer(epochs(2));
    trainer.add_hook(EmaWeights::new(late).unwrap()).unwrap();
    let error = trainer.fit(&mut Toy::default(), &mut data(1, 0)).unwrap_err().to_string();
    assert!(error.contains("hook `ema_weights` fires only after 9 epochs"), "{error}");
}

#[test]
fn an_average_of_no_values_is_none() {
    let mut trainer = trainer(epochs(1));
    trainer.add_hook(averaging()).unwrap();
    trainer.add_hook(closure::on_train_batch_start("skip", |_| tenterhook::Decision::skip_batch())).unwrap();
    let mut toy = Toy::default();
    trainer.fit(&mut toy, &mut data(2, 1)).unwrap();
    let zero = NamedTensors::from([("weight", vec![0.0; 2]), ("bias", vec![0.0])]);
    assert_eq!((toy.param("weight"), toy.param("bias")), (zero.at(0), zero.at(1)));
}
