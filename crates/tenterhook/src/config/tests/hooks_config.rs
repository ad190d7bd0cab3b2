//! `[hooks_config]`, the documented form.

use super::stubs::{Seen, error_with_stubs, registry, works_with_stubs};
use super::*;

/// The documented configurations, all in one.
pub(super) const DOCUMENTED: &str = r#"
[hooks_config]
enable_logging_hook = true
enable_gradient_monitor = true
enable_model_checkpoint_hook = true
enable_early_stopping_hook = true
enable_lr_monitor = true
hook_classes = ["mycrate::hooks::Seen"]

[hooks_config.gradient_monitor_config]
log_frequency = 100
log_histogram = true
log_norm = true
param_filter = ["encoder", "decoder"]
percentiles = [10, 50, 90]

[hooks_config.model_checkpoint_config]
save_top_k = 3
monitor = "val/loss"
mode = "min"
save_last = true
save_on_train_epoch_end = false
filename = "epoch_{epoch}_loss_{val/loss:.2f}"
auto_insert_metric_name = false

[hooks_config.early_stopping_config]
monitor = "val/loss"
patience = 10
mode = "min"
min_delta = 0.0001
check_on_train_epoch_end = false
strict = true
verbose = true

[hooks_config.lr_monitor_config]
log_momentum = true
log_weight_decay = true
frequency = "epoch"

[hooks_config.hook_configs]
"mycrate::hooks::Seen" = { threshold = 5.0 }
"#;

fn uses(resolved: &Config) -> Vec<&str> {
    resolved.hooks.iter().map(|hook| hook.common.use_.as_str()).collect()
}

#[test]
fn the_documented_form_gives_the_same_hooks() {
    let resolved = works_with_stubs(DOCUMENTED, &[], &[]);
    let expected =
        ["mycrate::hooks::Seen", "logging", "gradient_monitor", "checkpoint", "early_stopping", "lr_monitor"];
    assert_eq!(uses(&resolved), expected, "and the task's own early stopping is left out");
    assert_eq!(resolved.hooks[2].options["percentiles"].as_array().map(Vec::len), Some(3));
    assert_eq!(resolved.hooks[3].options["save_top_k"].as_integer(), Some(3));
    assert_eq!(resolved.hooks[4].options["min_delta"].as_float(), Some(0.0001));
    assert_eq!(resolved.hooks[5].options["frequency"].as_str(), Some("epoch"));
    let trainer = resolved.bare_trainer(&registry()).expect("a trainer");
    assert!((trainer.hook::<Seen>("seen").expect("it is there").options.threshold - 5.0).abs() < 1e-12);
    assert!(trainer.list_hooks().iter().all(|hook| hook.enabled));

    let printed = resolved.to_toml();
    assert!(!printed.contains("hooks_config"), "{printed}");
    assert_eq!(works_with_stubs(&printed, &[], &[]).to_toml(), printed, "as [[hooks]] they are the same");
    assert_eq!(resolved.to_json()["hooks"][3]["monitor"], "val/loss");
    assert!(resolved.to_json().get("hooks_config").is_none());
}

#[test]
fn a_path_is_written_with_colons_or_with_dots_quoted_or_not() {
    for (class, config) in [
        ("mycrate.hooks.Seen", "hook_configs.\"mycrate.hooks.Seen\" = { threshold = 5.0 }"),
        ("mycrate.hooks.Seen", "hook_configs.\"mycrate::hooks::Seen\" = { threshold = 5.0 }"),
        ("mycrate::hooks::Seen", "hook_configs.\"mycrate.hooks.Seen\" = { threshold = 5.0 }"),
        ("mycrate.hooks.Seen", "[hooks_config.hook_configs.mycrate.hooks.Seen]\nthreshold = 5.0"),
        ("mycrate::hooks::Seen", "[hooks_config.hook_configs.mycrate.hooks.Seen]\nthreshold = 5.0"),
        ("mycrate::hooks::Seen", "[hooks_config.hook_configs.mycrate.\"hooks::Seen\"]\nthreshold = 5.0"),
    ] {
        let file = format!("[hooks_config]\nhook_classes = [\"{class}\"]\n{config}");
        let resolved = works_with_stubs(&file, &[], &[]);
        assert_eq!(uses(&resolved), ["mycrate::hooks::Seen"], "{file}");
        assert_eq!(resolved.hooks[0].options["threshold"].as_float(), Some(5.0), "{file}");
        let wrong = error_with_stubs(&file.replace("threshold = 5.0", "threshold = \"x\""), &[]);
        let line = file.lines().count();
        assert!(wrong.contains(&format!("train.toml:{line}:")), "{wrong}");
        assert!(wrong.contains("invalid type: text \"x\""), "{wrong}");
    }
}

#[test]
fn a_flag_that_is_false_keeps_the_hook_switched_off() {
    let file = "[hooks_config]\nenable_early_stopping_hook = false\nenable_logging_hook = false\n\
                early_stopping_config = { monitor = \"val/loss\" }";
    let resolved = works_with_stubs(file, &[], &[]);
    assert_eq!(uses(&resolved), ["logging", "early_stopping"]);
    let trainer = resolved.bare_trainer(&registry()).expect("a trainer");
    let listed = trainer.list_hooks();
    assert!(!listed[0].enabled && !listed[1].enabled, "{listed:?}");
    let needs_a_metric = works_with_stubs("[hooks_config]\nenable_early_stopping_hook = false", &[], &[]);
    assert!(uses(&needs_a_metric).is_empty(), "there is none to switch off");
}

#[test]
fn a_flag_without_a_table_switches_existing_hooks() {
    let file = "[[hooks]]\nuse = \"checkpoint\"\n[[hooks]]\nuse = \"checkpoint\"\nenabled = false";
    for on in [false, true] {
        let set = format!("hooks_config.enable_model_checkpoint_hook={on}");
        let resolved = works_with_stubs(file, &[], &[&set]);
        let enabled: Vec<_> = resolved.hooks.iter().map(|hook| hook.common.enabled).collect();
        assert_eq!(enabled, [on, on], "{set}");
        // The same for the hooks of the task's defaults.
        let set = format!("hooks_config.enable_early_stopping_hook={on}");
        let resolved = works_with_stubs("", &[], &[&set]);
        assert_eq!((uses(&resolved), resolved.hooks[0].common.enabled), (vec!["early_stopping"], on));
    }
}

#[test]
fn options_without_a_class_are_refused_at_any_nesting() {
    let classes = "[hooks_config]\nhook_classes = [\"mycrate::hooks::Seen\"]\n";
    for (table, place, name) in [
        ("[hooks_config.hook_configs.mycrate.hooks.Sene]\nthreshold = 5.0", "3:42", "mycrate::hooks::Sene"),
        ("[hooks_config.hook_configs.mycrate.hooks]\nthreshold = 5.0", "3:36", "mycrate::hooks"),
        ("[hooks_config.hook_configs.other.Seen]\nthreshold = 5.0", "3:34", "other::Seen"),
    ] {
        let shown = error_with_stubs(&format!("{classes}{table}"), &[]);
        assert!(shown.starts_with("1 problem in train.toml\n"), "{table}\n{shown}");
        let said = format!("train.toml:{place}: `{name}` has options here");
        assert!(shown.contains(&said), "{table}\n{shown}");
    }
}

#[test]
fn the_tables_accept_the_keys_of_all_hooks() {
    let file = "[hooks_config]\nenable_early_stopping_hook = true\n\
                early_stopping_config = { monitor = \"val/loss\", name = \"stop\", after = \"3 epochs\" }";
    let resolved = works_with_stubs(file, &[], &[]);
    assert_eq!(resolved.hooks[0].common.name.as_deref(), Some("stop"));
    assert_eq!(resolved.hooks[0].common.after, Some(tenterhook_core::Cadence::Epochs(3)));
}

#[test]
fn both_forms_can_be_combined_and_either_replaces_the_hooks_of_the_task() {
    let task = "[[hooks]]\nuse = \"checkpoint\"\n";
    let flags = "[hooks_config]\nenable_lr_monitor = true\n";
    assert_eq!(uses(&works_with_stubs(&format!("{task}{flags}"), &[], &[])), ["checkpoint", "lr_monitor"]);
    assert_eq!(uses(&works_with_stubs(task, &[], &[])), ["checkpoint"]);
    assert_eq!(uses(&works_with_stubs(flags, &[], &[])), ["lr_monitor"]);
    assert!(uses(&works_with_stubs("[hooks_config]\n", &[], &[])).is_empty());
    // Layers above the file add to its hooks.
    let set = ["hooks_config.enable_lr_monitor=true"];
    assert_eq!(uses(&works_with_stubs("", &[], &set)), ["early_stopping", "lr_monitor"]);
    assert_eq!(uses(&works_with_stubs(task, &[], &set)), ["checkpoint", "lr_monitor"]);
    let variable = [("TENTER__HOOKS_CONFIG__ENABLE_LR_MONITOR", "true")];
    assert_eq!(uses(&works_with_stubs("", &variable, &[])), ["early_stopping", "lr_monitor"]);
    let off = works_with_stubs(flags, &[], &["hooks_config.enable_lr_monitor=false"]);
    assert!(!off.hooks[0].common.enabled);
    let of_class = [
        "hooks_config.hook_classes=[\"mycrate.hooks.Seen\"]",
        "hooks_config.hook_configs.\"mycrate.hooks.Seen\".threshold=2.5",
    ];
    let resolved = works_with_stubs(flags, &[], &of_class);
    assert_eq!(uses(&resolved), ["mycrate::hooks::Seen", "lr_monitor"]);
    assert_eq!(resolved.hooks[0].options["threshold"].as_float(), Some(2.5));
}

#[test]
fn errors_are_shown_where_they_are_written() {
    for (text, place, hint) in [
        ("enable_lr_monitr = true", "2:1", "did you mean `enable_lr_monitor`?"),
        ("enable_lr_monitor = \"yes\"", "2:21", "expected true or false"),
        ("enable_lr_monitor = \"yes\"\nlr_monitor_config = {}", "2:21", "expected true or false"),
        ("lr_monitor_config = { frequency = \"step\" }", "2:1", "set `enable_lr_monitor = true`"),
        ("enable_lr_monitor = true\nlr_monitor_config = 3", "3:21", "expected a table"),
        (
            "enable_lr_monitor = true\nlr_monitor_config = { frequency = \"day\" }",
            "3:35",
            "there are: step, epoch",
        ),
        (
            "enable_lr_monitor = true\nlr_monitor_config = { frequncy = \"day\" }",
            "3:23",
            "did you mean `frequency`?",
        ),
        ("enable_lr_monitor = true\nlr_monitor_config = { every = \"now\" }", "3:31", "not a cadence"),
        ("enable_lr_monitor = true\nlr_monitor_config = { use = \"x\" }", "3:23", "remove `use`"),
        (
            "enable_lr_monitor = true\nlr_monitor_config = { enabled = true }",
            "3:23",
            "set `enable_lr_monitor`",
        ),
        ("enable_early_stopping_hook = true", "2:1", "missing key `monitor` in hook `early_stopping`"),
        (
            "enable_early_stopping_hook = true\nearly_stopping_config = { patience = 3 }",
            "3:1",
            "missing key `monitor` in hook `early_stopping`",
        ),
        ("logging_config = {}", "2:1", "as a [[hooks]] table with use = \"logging\""),
        ("throughput_config = {}", "2:1", "as a [[hooks]] table with use = \"throughput\""),
        ("checkpoint_config = {}", "2:1", "did you mean `model_checkpoint_config`?"),
        ("enable_checkpoint_hook = true", "2:1", "did you mean `enable_model_checkpoint_hook`?"),
        ("enable_lr_monitor = true\nlr_monitor_config = []", "3:21", "expected a table"),
        ("hook_classes = [3]", "2:17", "expected a text"),
        ("hook_classes = \"mycrate::hooks::Seen\"", "2:16", "expected a list"),
        ("hook_classes = [\"mycrate::hooks::Sen\"]", "2:17", "did you mean `mycrate::hooks::Seen`?"),
        ("hook_classes = [\"mycrate::Steers\", \"mycrate.Steers\"]", "2:36", "`hook_classes` twice"),
        ("hook_configs.\"mycrate::Steers\" = 3", "2:34", "expected a table"),
        ("hook_configs.\"mycrate::Steers\" = {}", "2:14", "hook_classes = [\"mycrate::Steers\"]"),
        (
            "hook_classes = [\"mycrate::hooks::Seen\"]\nhook_configs.\"mycrate::hooks::Sen\" = {}",
            "3:14",
            "did you mean `mycrate::hooks::Seen`?",
        ),
        (
            "hook_classes = [\"mycrate::hooks::Seen\"]\nhook_configs.\"mycrate::hooks::Seen\" = { treshold = 1 }",
            "3:41",
            "did you mean `threshold`?",
        ),
    ] {
        let shown = error_with_stubs(&format!("[hooks_config]\n{text}"), &[]);
        assert!(shown.starts_with("1 problem in train.toml\n"), "{text}\n{shown}");
        assert!(shown.contains(&format!("train.toml:{place}: ")) && shown.contains(hint), "{text}\n{shown}");
    }
    let shown =
        error_with_stubs("[hooks_config]\nenable_lr_monitor = true\nlr_monitor_config = { zzz = 1 }", &[]);
    assert!(shown.contains("log_weight_decay, name, on_error") && !shown.contains("enabled"), "{shown}");
    let shown = error_with_stubs("enable_logging_hook = true", &[]);
    assert!(shown.contains("train.toml:1:1: ") && shown.contains("belongs in [hooks_config]"), "{shown}");
    let shown = error_with_stubs("hooks_config = 3", &[]);
    assert!(shown.contains("train.toml:1:16: ") && shown.contains("expected a table"), "{shown}");
    let shown = error_with_stubs("", &["hooks_config.enable_lr_monitor=1"]);
    assert!(shown.contains("--set hooks_config.enable_lr_monitor=1: invalid type"), "{shown}");
}

#[test]
fn problems_as_data_have_the_key_inside_the_table() {
    let sources = Sources {
        sets: vec![
            "hooks_config.enable_early_stopping_hook=true".into(),
            "hooks_config.early_stopping_config.monitor=val/loss".into(),
            "hooks_config.early_stopping_config.patience=soon".into(),
        ],
        ..Sources::default()
    };
    let error = sources.resolve(&tasks(), &registry()).map(|_| ()).expect_err("no number");
    assert_eq!(error.problems()[0].key, "hooks_config.early_stopping_config.patience");
}

#[test]
fn problems_found_later_point_at_the_table_too() {
    let file = "task = \"toy\"\n[hooks_config]\nenable_early_stopping_hook = true\n\
                early_stopping_config = { monitor = \"val/los\", mode = \"min\" }\nhook_classes = [\"mycrate::Steers\"]\n\
                hook_configs.\"mycrate::Steers\" = { every = \"9999 steps\" }";
    let resolved = works_with_stubs(file, &[], &[]);
    let shown = refused(&resolved, &registry());
    assert!(shown[0].contains("train.toml:6:44: hook `steers` fires every 9999 steps"), "{}", shown[0]);
    assert!(shown[1].contains("train.toml:4:37: hook `early_stopping` reads `val/los`"), "{}", shown[1]);

    // The registry of the trainer lacks the hook.
    let shown =
        resolved.bare_trainer(&Registry::default()).map(|_| ()).expect_err("it is not there").to_string();
    assert!(shown.contains("train.toml:5:17: there is no hook named `mycrate::Steers`"), "{shown}");
}
