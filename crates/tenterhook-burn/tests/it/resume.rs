//! A resumed run ends with the same bits as an uninterrupted one.

use std::path::Path;
use std::time::Duration;

use burn::optim::AdamWConfig;
use tenterhook::hooks::{Checkpoint, CheckpointOptions};
use tenterhook::module::{Horizon, OptimizerState};
use tenterhook::run_context::FixedClock;
use tenterhook::schedule::Cosine;
use tenterhook::{Module as _, Settings, TensorMap};
use tenterhook_burn::{Burn, Group, Optimizer, Schedule};

use crate::lab::{Bench, Net, epochs, trainer, weights};

/// `AdamW` with a group for biases and a cosine schedule.
fn module(bench: &Bench, seed: u64) -> Burn<Net> {
    bench.burn(bench.net(seed)).with_optimizers(|_| {
        let plain = AdamWConfig::new().with_weight_decay(0.0).build();
        let decayed = AdamWConfig::new().with_weight_decay(0.1).build();
        let optimizer = Optimizer::new("adamw", decayed, 0.01)
            .group(Group::new("biases", ["**.bias"]).with(plain).lr(0.02))
            .schedule(Schedule::per_step(Cosine::default()));
        Ok(optimizer.into())
    })
}

/// Three epochs of four batches with a checkpoint after every step, from the start or from one of the checkpoints.
fn run(bench: &Bench, seed: u64, root: &Path, from: Option<&Path>) -> TensorMap {
    let settings = Settings {
        seed: 9,
        limit_val_batches: Some(tenterhook::settings::BatchLimit::Count(0)),
        // Each checkpoint is durable before the next, even on a slow disk.
        background_saves: false,
        ..epochs(3)
    };
    let clock = FixedClock(Duration::ZERO);
    let mut trainer = trainer(settings).with_checkpoints_in(root).with_clock(clock);
    if let Some(from) = from {
        trainer = trainer.restoring(from);
    }
    let every_step = CheckpointOptions {
        every_n_train_steps: Some(1),
        save_top_k: Some(-1),
        ..CheckpointOptions::default()
    };
    trainer.add_hook(Checkpoint::new(every_step).unwrap()).unwrap();
    let mut module = module(bench, seed);
    trainer.fit(&mut module, &mut bench.pairs()).unwrap();
    weights(&module)
}

/// Copies the checkpoints of the first steps, as if the run had ended after them.
fn copy_first(steps: u64, from: &Path, to: &Path) {
    for checkpoint in (1..=steps).map(|step| format!("epoch={}-step={step}", (step - 1) / 4)) {
        std::fs::create_dir(to.join(&checkpoint)).unwrap();
        for file in std::fs::read_dir(from.join(&checkpoint)).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), to.join(&checkpoint).join(file.file_name())).unwrap();
        }
    }
}

#[test]
fn a_resumed_run_ends_with_the_same_bits_as_an_uninterrupted_one() {
    let bench = Bench::new();
    let root = tempfile::tempdir().unwrap();
    let whole = run(&bench, 1, root.path(), None);
    for (checkpoint, steps) in [("epoch=0-step=3", 3), ("epoch=1-step=6", 6), ("epoch=1-step=8", 8)] {
        let elsewhere = tempfile::tempdir().unwrap();
        copy_first(steps, root.path(), elsewhere.path());
        // Other initial weights, so only the checkpoint can make the results equal.
        let resumed = run(&bench, 2, elsewhere.path(), Some(&elsewhere.path().join(checkpoint)));
        assert_eq!(resumed, whole, "{checkpoint}");
        for file in ["state.json", "weights.safetensors", "optimizer.safetensors"] {
            let bytes = |root: &Path| std::fs::read(root.join("epoch=2-step=12").join(file)).unwrap();
            assert!(bytes(elsewhere.path()) == bytes(root.path()), "{checkpoint}: {file} differs");
        }
    }
}

#[test]
fn the_state_of_an_optimizer_is_saved_by_the_names_of_its_parameters() {
    let bench = Bench::new();
    let root = tempfile::tempdir().unwrap();
    run(&bench, 1, root.path(), None);
    let state = TensorMap::read(&root.path().join("epoch=0-step=1/optimizer.safetensors")).unwrap();
    for parameter in ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"] {
        let of_it = state.names().filter(|name| name.starts_with(parameter)).count();
        assert_eq!(of_it, 2, "both moments of `{parameter}`: {:?}", state.names().collect::<Vec<_>>());
    }
}

/// A module with its optimizers, and the state of one that was trained.
fn with_state(bench: &Bench) -> (Burn<Net>, OptimizerState) {
    let mut module = module(bench, 1);
    trainer(epochs(1)).fit(&mut module, &mut bench.pairs()).unwrap();
    let state = module.optimizer_state().unwrap();
    (module, state)
}

#[test]
fn state_of_other_parameters_than_the_optimizers_have_is_an_error_that_names_them() {
    let bench = Bench::new();
    let (mut module, whole) = with_state(&bench);
    module.load_optimizer_state(&whole).unwrap();
    let mut refused = |change: &dyn Fn(&mut OptimizerState), expected: &str| {
        let mut state = whole.clone();
        change(&mut state);
        let error = module.load_optimizer_state(&state).unwrap_err().to_string();
        assert!(error.contains(expected), "`{expected}` is not in: {error}");
    };
    let parameters = |state: &mut OptimizerState, change: &dyn Fn(&mut Vec<serde_json::Value>)| {
        change(state.rest["optimizers"][0]["parameters"].as_array_mut().unwrap());
    };
    refused(
        &|state| parameters(state, &|names| names.push("fc3.weight".into())),
        "the checkpoint has a state of `fc3.weight`, which is no parameter of optimizer `adamw`",
    );
    refused(
        &|state| parameters(state, &|names| names.retain(|name| name != "fc2.bias")),
        "the checkpoint has no state of `fc2.bias`, which is a parameter of optimizer `adamw`",
    );
    refused(
        &|state| state.tensors.insert_f32("fc2.bias.moment_3", [2], &[0.0; 2]),
        "which no optimizer uses: `fc2.bias.moment_3`",
    );
    let of_bias = whole.tensors.names().find(|name| name.starts_with("fc2.bias")).unwrap();
    refused(
        &|state| drop(state.tensors.remove(of_bias)),
        &format!("the tensor `{of_bias}` of optimizer `adamw` is missing"),
    );
}

#[test]
fn state_in_the_format_without_the_untouched_parameters_is_loaded() {
    let bench = Bench::new();
    let (mut module, whole) = with_state(&bench);
    let mut old = whole.clone();
    let optimizer = old.rest["optimizers"][0].as_object_mut().unwrap();
    assert!(optimizer.remove("untouched").is_some() && optimizer.remove("tensors").is_some());
    module.load_optimizer_state(&old).unwrap();
    assert_eq!(module.optimizer_state().unwrap(), whole);
}

#[test]
fn a_parameter_without_gradients_is_saved_as_untouched() {
    let bench = Bench::new();
    let mut module = module(&bench, 1);
    module.configure_optimizers(Horizon { steps: Some(9), epochs: Some(1) }).unwrap();
    let loss = module.fc1.weight.val().sum();
    module.backward(&loss.into(), 1.0).unwrap();
    module.optimizer_step(0, false).unwrap();
    let state = module.optimizer_state().unwrap();
    let untouched = &state.rest["optimizers"][0]["untouched"];
    assert_eq!(*untouched, serde_json::json!(["fc1.bias", "fc2.weight", "fc2.bias"]));
    module.load_optimizer_state(&state).unwrap();
    assert_eq!(module.optimizer_state().unwrap(), state);
}
