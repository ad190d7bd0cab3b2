//! The built-in update hooks in real training.

use std::path::Path;

use serde_json::{Value, json};
use tenterhook::config::Sources;
use tenterhook::hooks::{
    Checkpoint, CheckpointOptions, ClipByNorm, ClipByNormOptions, ClipByValue, ClipByValueOptions, Freeze,
    FreezeOptions, GradientNoise, GradientNoiseOptions, Scale, ScaleOptions,
};
use tenterhook::registry::Registry;
use tenterhook::task::AnyTask;
use tenterhook::toy::{Toy, ToyTask};
use tenterhook::{AnyHook, Report, RunNotice, Settings, closure};

use crate::call_log::SharedVec;
use crate::lab::{bits, data, epochs, trainer};
use crate::run_directory::{latest, plan};

fn scale(factor: f64) -> AnyHook {
    Scale::new(ScaleOptions::new(factor)).unwrap().into()
}

fn clip(max_norm: f64) -> AnyHook {
    ClipByNorm::new(ClipByNormOptions::new(max_norm)).unwrap().into()
}

fn noise(options: GradientNoiseOptions) -> AnyHook {
    GradientNoise::new(options).unwrap().into()
}

/// The bits of the weights after two epochs of four steps with these hooks.
fn fitted(toy: Toy, hooks: impl IntoIterator<Item = AnyHook>) -> Vec<u32> {
    let mut trainer = trainer(epochs(2));
    for hook in hooks {
        trainer.add_hook(hook).unwrap();
    }
    let mut toy = toy;
    trainer.fit(&mut toy, &mut data(4, 0)).unwrap();
    bits(&toy)
}

#[test]
fn the_optimizer_uses_the_changed_gradients() {
    for optimizers in [1, 2] {
        let toy = || Toy::new(optimizers);
        assert_eq!(fitted(toy(), [scale(0.5)]), fitted(toy().with_lr(0.05), []), "half of every gradient");
        assert_eq!(fitted(toy(), [scale(0.0)]), bits(&toy()));
        assert_ne!(fitted(toy(), [clip(0.1)]), fitted(toy(), []));
        assert_eq!(fitted(toy(), [clip(1e6)]), fitted(toy(), []), "nothing is that large");
        assert_ne!(fitted(toy(), [noise(GradientNoiseOptions::new(0.1))]), fitted(toy(), []));
    }
}

#[test]
fn gradients_are_clipped_by_hooks_before_the_trainer_clips_them() {
    let by_value = ClipByValue::new(ClipByValueOptions::new(0.05)).unwrap();
    for (hook, limit) in [(clip(0.1), 0.1), (by_value.into(), 0.05 * 3.0_f64.sqrt())] {
        let mut trainer = trainer(epochs(2));
        trainer.add_hook(hook).unwrap();
        let norms = SharedVec::new();
        let seen = norms.clone();
        trainer
            .add_hook(closure::on_gradient_clip("norms", move |cx| seen.push(cx.norm_before.value())))
            .unwrap();
        trainer.fit(&mut Toy::default(), &mut data(4, 0)).unwrap();
        let norms = norms.take();
        assert_eq!(norms.len(), 8);
        assert!(norms.iter().all(|norm| *norm <= limit + 1e-6), "{norms:?}");
        assert!(norms[0] > limit - 1e-6, "the first was too large");
    }
}

#[test]
fn hooks_change_gradients_in_the_order_in_which_they_were_registered() {
    let clipped_last = fitted(Toy::default(), [scale(4.0), clip(0.1)]);
    let scaled_last = fitted(Toy::default(), [clip(0.1), scale(4.0)]);
    assert_ne!(clipped_last, scaled_last);
    let moved = |hooks: [AnyHook; 2]| {
        let mut trainer = trainer(Settings { max_steps: 1, ..epochs(1) });
        for hook in hooks {
            trainer.add_hook(hook).unwrap();
        }
        let mut toy = Toy::default();
        trainer.fit(&mut toy, &mut data(4, 0)).unwrap();
        toy.param("weight").iter().chain(toy.param("bias")).map(|value| value * value).sum::<f32>().sqrt()
    };
    // The weight starts at zero, and a step is a tenth of the gradient.
    assert!((moved([scale(4.0), clip(0.1)]) - 0.01).abs() < 1e-6);
    assert!((moved([clip(0.1), scale(4.0)]) - 0.04).abs() < 1e-6);
}

#[test]
fn frozen_parameters_stay_to_the_bit_from_the_first_to_the_last_of_the_steps() {
    for optimizers in [1, 2] {
        let mut trainer = trainer(epochs(2));
        let options = FreezeOptions { from_step: 3, until_step: Some(6), ..FreezeOptions::of(["bi*"]) };
        trainer.add_hook(Freeze::new(options).unwrap()).unwrap();
        let steps = SharedVec::new();
        let seen = steps.clone();
        let watch = closure::on_step_end("watch", move |cx| {
            let mut params: Vec<_> = cx.params().iter().map(|param| param.to_vec()).collect();
            let bias = params.pop().unwrap();
            seen.push((params.concat(), bias));
        });
        trainer.add_hook(watch).unwrap();
        trainer.fit(&mut Toy::new(optimizers), &mut data(4, 0)).unwrap();
        let steps = steps.take();
        let moves: Vec<_> = steps.windows(2).map(|pair| pair[0].1 != pair[1].1).collect();
        assert_eq!(moves, [true, false, false, false, false, true, true], "steps 2 to 8");
        assert!(steps.windows(2).all(|pair| pair[0].0 != pair[1].0), "the others go on");
    }
}

/// The bits of the weights after three epochs of four steps with noise, from the beginning or from a
/// checkpoint.
fn noisy(root: &Path, from: Option<&Path>, others: bool) -> Vec<u32> {
    let mut trainer = trainer(epochs(3)).with_checkpoints_in(root);
    if let Some(from) = from {
        trainer = trainer.restoring(from);
    }
    if others {
        let draws = closure::on_before_optimizer_step("draws", |cx| {
            cx.rng().uniform();
        });
        trainer.add_hook(draws).unwrap();
        trainer.add_hook(scale(1.0)).unwrap();
    }
    let options = GradientNoiseOptions { decay: 0.55, ..GradientNoiseOptions::new(0.3) };
    trainer.add_hook(noise(options)).unwrap();
    let every = CheckpointOptions {
        every_n_train_steps: Some(1),
        save_top_k: Some(-1),
        ..CheckpointOptions::default()
    };
    trainer.add_hook(Checkpoint::new(every).unwrap()).unwrap();
    let mut toy = Toy::new(2);
    trainer.fit(&mut toy, &mut data(4, 0)).unwrap();
    bits(&toy)
}

#[test]
fn noise_after_a_resume_is_the_same_as_without_an_interruption() {
    let root = tempfile::tempdir().unwrap();
    let whole = noisy(root.path(), None, false);
    for checkpoint in ["epoch=0-step=1", "epoch=1-step=6", "epoch=2-step=11"] {
        let elsewhere = tempfile::tempdir().unwrap();
        let from = root.path().join(checkpoint);
        assert_eq!(noisy(elsewhere.path(), Some(&from), false), whole, "{checkpoint}");
    }
}

#[test]
fn other_hooks_do_not_shift_the_noise() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    assert_eq!(noisy(one.path(), None, true), noisy(other.path(), None, false));
}

struct Ran {
    report: Report,
    updates: Vec<Value>,
    weights: Vec<u8>,
}

impl Ran {
    fn said(&self) -> Vec<String> {
        let said = self.report.notices.iter().filter(|notice| matches!(notice, RunNotice::Said { .. }));
        said.map(ToString::to_string).collect()
    }

    fn failures(&self) -> Vec<String> {
        let failed = self.report.notices.iter().filter(|notice| matches!(notice, RunNotice::Contained(_)));
        failed.map(ToString::to_string).collect()
    }
}

/// Trains the toy for four steps by a configuration with these hooks.
fn configured(optimizers: usize, hooks: &str) -> Ran {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("train.toml");
    let settings = format!(
        "task = \"toy\"\noptimizer.count = {optimizers}\ndata.train = [4]\n\
         [trainer]\nmax_epochs = 1\ntrace_updates = true\n{}",
        if hooks.is_empty() { "[[hooks]]\nuse = \"identity\"" } else { hooks }
    );
    std::fs::write(&file, settings).unwrap();
    let tasks: Vec<Box<dyn AnyTask>> = vec![Box::new(ToyTask)];
    let registry = Registry::default();
    let resolved = Sources::file(&file).resolve(&tasks, &registry).unwrap();
    let trainer = resolved.bare_trainer(&registry).unwrap();
    let mut trainer = trainer.with_run_directory(plan(root.path())).with_notices(|_| {});
    let report = resolved.program(&tasks, &registry).unwrap().fit(&mut trainer).unwrap();
    let directory = latest(root.path());
    let updates = std::fs::read_to_string(directory.join("updates.jsonl")).unwrap_or_default();
    Ran {
        report,
        updates: updates.lines().map(|line| serde_json::from_str(line).unwrap()).collect(),
        weights: std::fs::read(directory.join("weights.safetensors")).unwrap(),
    }
}

#[test]
fn the_trace_says_which_hook_touched_which_parameter_and_by_how_much() {
    let ran = configured(
        1,
        "[[hooks]]\nuse = \"scale\"\nname = \"gently\"\nfactor = 0.5\nparams = [\"weight\"]\n\
         [[hooks]]\nuse = \"freeze\"\nparams = [\"bias\"]\nfrom_step = 2\nuntil_step = 2",
    );
    let who: Vec<_> =
        ran.updates.iter().map(|line| json!([line["step"], line["hook"], line["parameter"]])).collect();
    let expected = [
        json!([1, "gently", "weight"]),
        json!([2, "gently", "weight"]),
        json!([2, "freeze", "bias"]),
        json!([3, "gently", "weight"]),
        json!([4, "gently", "weight"]),
    ];
    assert_eq!(who, expected);
    let number = |line: usize, key: &str| ran.updates[line][key].as_f64().unwrap();
    assert!(number(0, "norm_before") > 0.0);
    assert!((number(0, "norm_after") - number(0, "norm_before") / 2.0).abs() < 1e-6);
    assert!((number(0, "change") - number(0, "norm_before") / 2.0).abs() < 1e-6);
    assert_eq!(ran.updates[2]["norm_after"], Value::Null, "it was dropped");
    assert!((number(2, "change") - number(2, "norm_before")).abs() < 1e-9);
}

#[test]
fn a_gate_lets_an_update_hook_work_in_some_steps_only() {
    let steps = |gate: &str| {
        let ran = configured(2, &format!("[[hooks]]\nuse = \"clip_by_norm\"\nmax_norm = 0.01\n{gate}"));
        ran.updates.iter().map(|line| line["step"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(steps(""), [1, 1, 2, 2, 3, 3, 4, 4], "for each optimizer");
    assert_eq!(steps("every = \"2 steps\""), [2, 2, 4, 4]);
    assert_eq!(steps("after = \"3 steps\""), [4, 4]);
    assert_eq!(steps("once = true"), [1, 1]);
    assert_eq!(steps("when = \"step >= 3\""), [3, 3, 4, 4]);
    assert!(steps("enabled = false").is_empty());
}

#[test]
fn a_hook_that_fails_its_check_keeps_the_gradients_and_follows_its_policy() {
    let plain = configured(1, "");
    let spoilt = "[[hooks]]\nuse = \"gradient_noise\"\nstd = 1e300\ncheck_finite = true\non_error = \"warn\"";
    let ran = configured(1, spoilt);
    assert_eq!(ran.weights, plain.weights);
    assert!(ran.updates.is_empty(), "what was put back was not touched");
    assert_eq!(ran.report.progress.step, 4);
    let failures = ran.failures();
    assert_eq!(failures.len(), 4, "{failures:?}");
    assert!(failures[0].contains("the gradient of `weight` is not finite after the hook"), "{failures:?}");
    let unchecked = configured(1, &spoilt.replace("check_finite = true", "check_finite = false"));
    assert!(unchecked.failures().is_empty());
    assert_ne!(unchecked.weights, plain.weights);
}

#[test]
fn identity_changes_nothing_beside_others() {
    let scaled = "[[hooks]]\nuse = \"scale\"\nfactor = 0.5";
    let both = configured(1, &format!("[[hooks]]\nuse = \"identity\"\n{scaled}"));
    assert_eq!(both.weights, configured(1, scaled).weights);
    assert!(both.updates.iter().all(|line| line["hook"] == "scale"));
    assert!(configured(1, "").updates.is_empty());
    assert_ne!(both.weights, configured(1, "").weights);
}

#[test]
fn a_pattern_that_matches_no_parameter_of_any_optimizer_is_reported_once() {
    for optimizers in [1, 2] {
        let hook = |params: &str| format!("[[hooks]]\nuse = \"scale\"\nfactor = 0.5\nparams = [{params}]");
        let ran = configured(optimizers, &hook("\"weight\", \"bais\""));
        assert_eq!(
            ran.said(),
            ["scale: `params`: no parameter so far matches `bais`; nearest: `bias`, `weight`"],
            "{optimizers}"
        );
        assert!(configured(optimizers, &hook("\"bias\", \"w*\"")).said().is_empty());
    }
}
