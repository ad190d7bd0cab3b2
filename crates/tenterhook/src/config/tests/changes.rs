//! Which changes of a configuration are harmful to a resumed run.

use serde_json::{Value, json};
use tenterhook_core::HookKind;

use crate::config::schema::{Schema, schema_of};
use crate::config::{ChangeRules, ConfigChange, Impact, change_error, change_notice};
use crate::registry::Registry;
use crate::settings::Settings;

fn changes(old: &Value, new: &Value) -> Vec<ConfigChange> {
    let task = json!({ "properties": { "loader": { "properties": {
        "threads": { "x-harmless-change": true }, "prefetch": { "x-harmless-change": true }, "batch_size": {},
    } } } });
    ChangeRules::new(&Registry::default(), task).changes(old, new)
}

fn impacts(old: &Value, new: &Value) -> Vec<(String, Impact)> {
    changes(old, new).into_iter().map(|change| (change.key, change.impact)).collect()
}

#[test]
fn changes_of_the_computation_are_harmful_and_of_its_length_are_not() {
    let old = json!({
        "task": "a", "device": "cpu", "runs_dir": "runs",
        "model": { "hidden": [8, 8] }, "optimizer": { "lr": 0.1 }, "schedulers": [],
        "loader": { "threads": 1, "prefetch": 4, "batch_size": 32 },
        "data": { "path": "x" }, "generate": { "tokens": 3 },
        "trainer": {
            "seed": 0, "max_epochs": null, "accumulate_grad_batches": 1, "limit_train_batches": null,
            "overfit_batches": 0, "gradient_clip_val": null, "gradient_clip_algorithm": null,
            "deterministic": false, "fast_dev_run": 0, "log_every_n_steps": 50,
        },
    });
    let new = json!({
        "task": "b", "device": "cuda", "runs_dir": "elsewhere",
        "model": { "hidden": [8, 9] }, "optimizer": { "lr": 0.2 }, "schedulers": [{ "use": "cosine" }],
        "loader": { "threads": 2, "prefetch": 5, "batch_size": 33 },
        "data": { "path": "y" }, "generate": { "tokens": 4 },
        "trainer": {
            "seed": 1, "max_epochs": 3, "accumulate_grad_batches": 2, "limit_train_batches": 5,
            "overfit_batches": 1, "gradient_clip_val": 1.0, "gradient_clip_algorithm": "norm",
            "deterministic": true, "fast_dev_run": 1, "log_every_n_steps": 10,
        },
    });
    let all = impacts(&old, &new);
    let of = |impact: Impact| -> Vec<_> {
        all.iter().filter(|(_, of_it)| *of_it == impact).map(|(key, _)| key.as_str()).collect()
    };
    assert_eq!(
        of(Impact::None),
        ["loader.prefetch", "loader.threads", "runs_dir", "trainer.log_every_n_steps", "trainer.max_epochs"]
    );
    assert_eq!(of(Impact::Rounding), ["device"]);
    assert_eq!(
        of(Impact::Harmful),
        [
            "data.path",
            "generate.tokens",
            "loader.batch_size",
            "model.hidden",
            "optimizer.lr",
            "schedulers.0.use",
            "task",
            "trainer.accumulate_grad_batches",
            "trainer.deterministic",
            "trainer.fast_dev_run",
            "trainer.gradient_clip_algorithm",
            "trainer.gradient_clip_val",
            "trainer.limit_train_batches",
            "trainer.overfit_batches",
            "trainer.seed",
        ]
    );
}

#[test]
fn hooks_are_compared_by_name() {
    let old = json!({ "hooks": [
        { "use": "ema" }, { "use": "stop", "patience": 3 }, { "use": "stop", "name": "late", "patience": 9 },
    ] });
    let new = json!({ "hooks": [
        { "use": "stop", "patience": 4 }, { "use": "stop", "name": "late", "patience": 9 }, { "use": "stop" },
    ] });
    let all = changes(&old, &new);
    let texts: Vec<_> = all.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "hooks.ema.use: \"ema\" -> unset",
            "hooks.stop.patience: 3 -> 4",
            "hooks.stop_2.use: unset -> \"stop\"",
        ]
    );
    let harmful: Vec<_> =
        all.iter().filter(|change| change.impact == Impact::Harmful).map(|it| &it.key).collect();
    assert_eq!(harmful, ["hooks.stop.patience"], "nothing is known of `stop`");
}

#[test]
fn another_order_of_controllers_or_update_hooks_is_harmful() {
    let changed = |old: &[&str], new: &[&str]| {
        let of = |hooks: &[&str]| {
            let hooks: Vec<_> = hooks.iter().map(|hook| json!({ "use": hook })).collect();
            json!({ "hooks": hooks })
        };
        let all = changes(&of(old), &of(new)).into_iter();
        all.filter(|it| it.impact == Impact::Harmful).map(|it| it.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(
        changed(&["scale", "console", "clip_by_value"], &["clip_by_value", "scale", "console"]),
        [r#"the order of the hooks: ["scale","clip_by_value"] -> ["clip_by_value","scale"]"#]
    );
    assert_eq!(changed(&["early_stopping", "loss_spike"], &["loss_spike", "early_stopping"]).len(), 1);
    assert_eq!(changed(&["mine", "scale"], &["scale", "mine"]).len(), 1, "nothing is known of `mine`");
    let unchanged: [[&[&str]; 2]; 3] = [
        [&["console", "jsonl", "scale"], &["scale", "jsonl", "console"]],
        [&["early_stopping", "scale"], &["scale", "early_stopping"]],
        [&["scale", "clip_by_value"], &["clip_by_value"]],
    ];
    for [old, new] in unchanged {
        assert!(changed(old, new).is_empty(), "{old:?} -> {new:?}");
    }
}

/// Every option of every built-in hook and whether a change of it is harmless.
#[test]
fn a_changed_option_of_a_hook_is_harmful_unless_declared_harmless_or_of_an_observer() {
    let registry = Registry::default();
    let mut harmless = Vec::new();
    for hook in registry.hooks() {
        let kind = registry.kind(hook.name, &Value::Null).expect("it has an example that works");
        for key in hook.options().into_iter().chain(["enabled", "every", "budget"]) {
            let table = |value: u32| json!({ "hooks": [{ "use": hook.name, key: value }] });
            let [(_, impact)] = impacts(&table(1), &table(2)).try_into().expect("one key differs");
            if kind == HookKind::Observer {
                assert_eq!(impact, Impact::None, "{} observes", hook.name);
            } else if impact == Impact::None {
                harmless.push(format!("{}.{key}", hook.name));
            } else {
                assert_eq!(impact, Impact::Harmful);
            }
        }
    }
    harmless.retain(|key| !key.starts_with("checkpoint.") && !key.ends_with(".budget"));
    assert_eq!(
        harmless,
        [
            "early_stopping.min_delta",
            "early_stopping.patience",
            "early_stopping.strict",
            "early_stopping.check_finite",
            "early_stopping.stopping_threshold",
            "early_stopping.divergence_threshold",
            "early_stopping.verbose",
            "nan_guard.log_shapes",
            "nan_guard.dump",
            "nan_guard.max_dumps",
            "timer.duration",
            "timer.interval",
            "timer.verbose",
            "timer.enabled",
            "timer.every",
        ]
    );
}

#[test]
fn replacing_a_hook_is_harmful_unless_both_are_observers() {
    let of = |hook: &str| json!({ "hooks": [{ "use": hook, "name": "h" }] });
    let impact =
        |old, new| impacts(&of(old), &of(new)).into_iter().map(|(_, impact)| impact).collect::<Vec<_>>();
    assert_eq!(impact("console", "jsonl"), [Impact::None]);
    assert_eq!(impact("console", "ema_weights"), [Impact::Harmful]);
    assert_eq!(impact("ema_weights", "console"), [Impact::Harmful]);
    assert_eq!(impact("console", "unheard_of"), [Impact::Harmful]);
}

#[test]
fn a_setting_of_the_trainer_is_harmful_unless_declared_harmless() {
    let schema = schema_of::<Settings>();
    let keys = Schema::new(&schema).all_keys();
    let harmful = keys.into_iter().filter(|key| {
        let table = |value: u32| json!({ "trainer": { *key: value } });
        impacts(&table(1), &table(2))[0].1 == Impact::Harmful
    });
    assert_eq!(
        harmful.collect::<Vec<_>>(),
        [
            "limit_train_batches",
            "overfit_batches",
            "fast_dev_run",
            "accumulate_grad_batches",
            "gradient_clip_val",
            "gradient_clip_algorithm",
            "seed",
            "deterministic",
        ]
    );
}

#[test]
fn integers_equal_floating_point_numbers() {
    let old = json!({ "a": 1, "b": [1.0, 2], "c": null, "d": {}, "e": "***", "seed": u64::MAX });
    let new = json!({ "a": 1.0, "b": [1, 2.0], "f": "***", "seed": u64::MAX - 1 });
    assert_eq!(impacts(&old, &new), [("seed".to_owned(), Impact::Harmful)]);
    assert!(changes(&Value::Null, &new).is_empty());
}

#[test]
fn the_error_lists_harmful_changes_and_the_notice_the_others() {
    let old =
        json!({ "device": "cpu", "optimizer": { "lr": 0.001 }, "trainer": { "seed": 0, "max_steps": 9 } });
    let new =
        json!({ "device": "gpu", "optimizer": { "lr": 0.01 }, "trainer": { "seed": 7, "max_steps": 10 } });
    let all = changes(&old, &new);
    let refused = change_error("configuration", &all).expect("it is refused");
    assert_eq!(
        refused,
        "the configuration differs from that of the checkpoint:\n  optimizer.lr: 0.001 -> 0.01\n  trainer.seed: 0 -> \
         7\nrestore the old values, or accept the new ones with `--force` (`Trainer::accepting_changes`)"
    );
    assert_eq!(
        change_notice(&all).as_deref(),
        Some(
            "resumed with changed settings: device: \"cpu\" -> \"gpu\" (results may differ in their last bits), \
             trainer.max_steps: 9 -> 10"
        )
    );
    assert_eq!((change_error("data", &[]), change_notice(&[])), (None, None));
}
