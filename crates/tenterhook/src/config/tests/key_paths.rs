//! The key paths of `--set` and of environment variables, and errors of invalid ones.

use super::stubs::{registry, works_with_stubs};
use super::*;
use tenterhook_core::{Cadence, Controller, Decision, HookExt, HookResult, HookSpec, StepEnd, hook};

const TWO: &str = "[[hooks]]\nuse = \"console\"\n[[hooks]]\nuse = \"jsonl\"\n[[hooks]]\nuse = \"console\"\n";

fn enabled(resolved: &Config) -> Vec<bool> {
    resolved.hooks.iter().map(|hook| hook.common.enabled).collect()
}

#[test]
fn a_hook_is_found_by_its_default_name() {
    for (set, expected) in [
        ("hooks.console_log.enabled=false", [false, true, true]),
        ("hooks.console_log_2.enabled=false", [true, true, false]),
        ("hooks.json_log.enabled=false", [true, false, true]),
        ("hooks.jsonl.enabled=false", [true, false, true]),
    ] {
        assert_eq!(enabled(&works(TWO, &[], &[set])), expected, "{set}");
    }
}

#[test]
fn an_ambiguous_use_is_refused_with_the_indices() {
    let shown = error(TWO, &[], &["hooks.console.enabled=false"]);
    let said = "--set hooks.console.enabled=false: there are several elements named `console`; \
                select one by its number: 0, 2";
    assert_eq!(shown, format!("1 problem in the configuration\n{said}"));
}

#[test]
fn environment_variables_match_in_any_case() {
    let file = "[[hooks]]\nuse = \"console\"\nname = \"MyLog\"\n[weights]\nBig = 1.0";
    let variables = [("TENTER__HOOKS__MYLOG__ENABLED", "false"), ("TENTER__WEIGHTS__BIG", "2.5")];
    let resolved = works(file, &variables, &[]);
    assert_eq!(enabled(&resolved), [false]);
    let weights = resolved.options["weights"].as_table().expect("a table");
    assert_eq!((weights.len(), weights["Big"].as_float()), (1, Some(2.5)));
}

#[test]
fn an_alias_is_the_same_key_in_every_layer() {
    let file = "[[hooks]]\nuse = \"checkpoint\"\nsave_every_n_epochs = 2";
    let own = "[[hooks]]\nuse = \"checkpoint\"\nevery_n_epochs = 2";
    for (file, set) in [
        (file, "hooks.checkpoint.every_n_epochs=3"),
        (file, "hooks.checkpoint.save_every_n_epochs=3"),
        (own, "hooks.checkpoint.save_every_n_epochs=3"),
    ] {
        let resolved = works(file, &[], &[set]);
        let options = &resolved.hooks[0].options;
        assert_eq!((options.len(), options["every_n_epochs"].as_integer()), (1, Some(3)), "{set}");
    }
    let flags = "[hooks_config]\nenable_model_checkpoint_hook = true\n\
                 model_checkpoint_config = { save_every_n_epochs = 2 }";
    let resolved = works(flags, &[], &["hooks_config.model_checkpoint_config.every_n_epochs=3"]);
    assert_eq!(resolved.hooks[0].options["every_n_epochs"].as_integer(), Some(3));
    let both = format!("{file}\nevery_n_epochs = 1");
    assert!(error(&both, &[], &[]).contains("names of one option"));
    let wrong = error(&file.replace('2', "\"x\""), &[], &[]);
    assert!(wrong.contains("train.toml:3:23: "), "{wrong}");
}

#[test]
fn a_secret_is_hidden_under_its_alias_too() {
    let file = "[[hooks]]\nuse = \"mycrate::hooks::Seen\"\napi_key = \"hush\"";
    let resolved = works_with_stubs(file, &[], &[]);
    let other = works_with_stubs(&file.replace("hush", "other"), &[], &[]);
    assert!(!resolved.to_json().to_string().contains("hush"));
    assert!(!resolved.to_toml().contains("hush"));
    assert_eq!(resolved.hash(), other.hash());
}

#[test]
fn messages_about_a_variable_never_show_a_secret() {
    let file = "[[hooks]]\nuse = \"mycrate::hooks::Seen\"";
    for (name, value) in [
        ("TENTER__HOOKS__SEEN__TOKEN", "12345"),
        ("TENTER__HOOKS__SEEN__API_KEY", "12345"),
        ("TENTER__HOOKS__SEEN__TOKN", "12345"),
        ("TENTER__HOOKS__SENE__TOKEN", "12345"),
    ] {
        let shown = resolve_with(&registry(), file, &[(name, value)], &[]).map(|_| ()).expect_err("wrong");
        assert!(shown.contains(name) && !shown.contains(value), "{shown}");
        assert!(shown.starts_with("1 problem in the configuration\n"), "{shown}");
    }
}

#[test]
fn an_element_of_an_empty_list_is_missing() {
    let shown = error("task = \"toy\"", &[("TENTER__HOOKS__CONSOLE__ENABLED", "false")], &[]);
    assert!(
        shown.ends_with(
            "TENTER__HOOKS__CONSOLE__ENABLED: there is no element named `console`; there are none"
        ),
        "{shown}"
    );
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Paced {
    /// How often.
    every_n: u64,
    /// Something else.
    other: u64,
}

/// Fires every `every_n` steps.
struct PacedHook(Paced);

#[hook]
impl Controller for PacedHook {
    fn on_step_end(&mut self, _: &StepEnd) -> HookResult<Decision> {
        Ok(Decision::CONTINUE)
    }

    fn declare(&self, spec: HookSpec) -> HookSpec {
        spec.every_option("every_n", Cadence::Steps(self.0.every_n.max(1)))
    }
}

#[test]
fn a_cadence_of_an_option_is_refused_at_the_option() {
    let mut registry = registry();
    registry.add_hook("mycrate::Paced", |options| Ok::<_, String>(PacedHook(options))).expect("it is free");
    let in_code = |options: Paced| super::stubs::Steers.every(&format!("{} steps", options.other));
    registry.add_hook("mycrate::InCode", in_code).expect("it is free");
    for (hook, options, place) in [
        ("Paced", "other = 9999\nevery_n = 9999", ":7:11: "),
        // The cadence is set in code, so no option is reported, even if one has the same number.
        ("InCode", "other = 9999", ":4:1: "),
    ] {
        let file = format!(
            "task = \"toy\"\n[trainer]\nmax_epochs = 2\n[[hooks]]\nuse = \"mycrate::{hook}\"\n{options}"
        );
        let resolved = resolve_with(&registry, &file, &[], &[]).expect("it reads");
        let shown = refused(&resolved, &registry).remove(0);
        assert!(shown.contains(place), "{shown}");
    }
}

#[test]
fn declarations_of_built_in_hooks_are_refused_at_their_option() {
    let registry = registry();
    for (options, column, said) in [
        ("use = \"checkpoint\"\nevery_n_train_steps = 9999", 23, "fires every 9999 steps"),
        ("use = \"checkpoint\"\nfilename = \"{epoch}-{val/los}\"", 12, "reads `val/los`"),
        ("use = \"ema_weights\"\nstart_after = \"99 epochs\"", 15, "fires only after 99 epochs"),
        ("use = \"gradient_monitor\"\nlog_frequency = 9999", 17, "fires every 9999 steps"),
        ("use = \"early_stopping\"\nmonitor = \"test/loss\"", 11, "`test/loss`"),
    ] {
        let file = format!("task = \"toy\"\n[trainer]\nmax_epochs = 2\n[[hooks]]\n{options}");
        let resolved = resolve_with(&registry, &file, &[], &[]).expect("it reads");
        let shown = refused(&resolved, &registry).remove(0);
        assert!(shown.contains(&format!(":6:{column}: ")) && shown.contains(said), "{shown}");
    }
}

#[test]
#[cfg(feature = "upload")]
fn an_invalid_target_is_refused_at_its_option() {
    let file = "task = \"toy\"\n[[hooks]]\nuse = \"exec\"\non = [\"on_train_end\"]\ncommand = [\"/no/such\"]\n\
                [[hooks]]\nuse = \"upload\"\nto = \"s3://a\"";
    let registry = registry();
    let resolved = resolve_with(&registry, file, &[], &[]).expect("it reads");
    let shown = refused(&resolved, &registry);
    assert_eq!(shown.len(), 2, "{shown:?}");
    assert!(shown[0].contains(":5:11: hook `exec` cannot work: its program \"/no/such\" "), "{}", shown[0]);
    assert!(shown[0].contains("make it executable (chmod +x)"), "{}", shown[0]);
    assert!(shown[1].contains(":8:6: hook `upload` cannot work: \"a\" is not the name of"), "{}", shown[1]);
}
