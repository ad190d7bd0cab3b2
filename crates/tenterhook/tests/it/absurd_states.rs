//! Checkpoint states with absurd values: a resume may be refused, but never panics or hangs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use serde_json::{Value, json};
use tenterhook::hooks::{
    ActivationStats, Checkpoint, CheckpointOptions, EarlyStopping, EmaWeights, GradientMonitor,
    GradientNoise, LossSpike, NanGuard, PlateauDetector, Profiler, Throughput,
};
use tenterhook::module::{Interval, SchedulerPlan};
use tenterhook::toy::Toy;
use tenterhook::{FromOptions, RunError, Settings, Trainer};

use crate::foreign_checkpoints::forge;
use crate::lab::{data, epochs, trainer};

fn made<H: FromOptions<Options: serde::de::DeserializeOwned>>(options: Value) -> H {
    H::from_options(serde_json::from_value(options).unwrap()).unwrap()
}

/// A trainer with many stateful hooks.
fn training(root: &Path) -> Trainer {
    let settings = Settings { max_steps: 5, accumulate_grad_batches: 2, ..epochs(3) };
    let mut trainer = trainer(settings).with_checkpoints_in(root);
    let saves = CheckpointOptions {
        every_n_train_steps: Some(1),
        save_top_k: Some(-1),
        ..CheckpointOptions::default()
    };
    trainer.add_hook(Checkpoint::new(saves).unwrap()).unwrap();
    trainer.add_hook(made::<EarlyStopping>(json!({ "monitor": "val/loss", "patience": 9 }))).unwrap();
    trainer.add_hook(made::<LossSpike>(json!({ "threshold": 5.0 }))).unwrap();
    trainer.add_hook(made::<PlateauDetector>(json!({ "monitor": "val/loss", "window": 2 }))).unwrap();
    trainer.add_hook(made::<EmaWeights>(json!({ "decay": 0.9 }))).unwrap();
    trainer.add_hook(made::<GradientMonitor>(json!({ "log_frequency": 1 }))).unwrap();
    trainer.add_hook(made::<ActivationStats>(json!({ "points": ["**"], "log_frequency": 1 }))).unwrap();
    trainer.add_hook(made::<NanGuard>(json!({ "action": "skip" }))).unwrap();
    trainer.add_hook(made::<Profiler>(json!({ "skip_first_batches": 0 }))).unwrap();
    trainer.add_hook(made::<Throughput>(json!({ "every_n_steps": 1 }))).unwrap();
    trainer.add_hook(made::<GradientNoise>(json!({ "std": 0.1 }))).unwrap();
    trainer
}

fn module() -> Toy {
    Toy::default()
        .with_scheduler(SchedulerPlan::every(Interval::Step))
        .with_scheduler(SchedulerPlan::on_plateau_of("val/loss"))
}

/// The JSON pointers of all values within a value.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    let inner: Vec<(String, &Value)> = match value {
        Value::Object(fields) => {
            fields.iter().map(|(key, value)| (key.replace('~', "~0").replace('/', "~1"), value)).collect()
        }
        Value::Array(items) => {
            items.iter().take(2).enumerate().map(|(index, item)| (index.to_string(), item)).collect()
        }
        _ => Vec::new(),
    };
    for (key, value) in inner {
        let place = format!("{at}/{key}");
        found.push(place.clone());
        places(value, &place, found);
    }
}

/// Values of the same type that no run would write.
fn absurd(value: &Value) -> Vec<Value> {
    match value {
        Value::Number(number) if number.is_f64() => vec![json!(1e308), json!(-1)],
        Value::Number(_) => vec![json!(u64::MAX), json!(1_u64 << 61), json!(0)],
        Value::Array(_) => vec![json!([]), json!([[]])],
        Value::Object(_) => vec![json!({})],
        Value::String(_) => vec![json!("")],
        Value::Bool(is) => vec![json!(!is)],
        Value::Null => vec![json!(u64::MAX), json!([])],
    }
}

#[test]
fn no_absurd_value_in_a_state_makes_a_resume_panic() {
    let root = tempfile::tempdir().unwrap();
    training(root.path()).fit(&mut module(), &mut data(5, 2)).unwrap();
    let checkpoint = root.path().join("epoch=1-step=4");
    let whole: Value =
        serde_json::from_slice(&std::fs::read(checkpoint.join("state.json")).unwrap()).unwrap();
    let mut all = Vec::new();
    places(&whole, "", &mut all);
    assert!(all.len() > 100, "{all:?}");
    let mut wrong = Vec::new();
    for (index, place) in all.iter().enumerate() {
        let values = absurd(whole.pointer(place).unwrap());
        let value = &values[index % values.len()];
        forge(&checkpoint, |state| {
            state.clone_from(&whole);
            *state.pointer_mut(place).unwrap() = value.clone();
        });
        let elsewhere = tempfile::tempdir().unwrap();
        let resumed = catch_unwind(AssertUnwindSafe(|| {
            training(elsewhere.path()).restoring(&checkpoint).fit(&mut module(), &mut data(5, 2))
        }));
        let panicked = match &resumed {
            Err(_) => true,
            Ok(Ok(report)) => report.failures.kinds.iter().any(|kind| kind.panicked),
            Ok(Err(RunError::Failed { failure, .. })) => failure.panicked,
            Ok(Err(_)) => false,
        };
        if panicked {
            wrong.push(format!("{place} = {value}"));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}
