//! The keys that every hook has, on hooks that run.

use tenterhook_core::{Budget, OnError, OverBudget, PlanError};

use super::stubs::{NoOptions, Seen, error_with_stubs, registry, works_with_stubs};
use super::*;
use crate::registry::RegistryError;

/// The steps and epochs at which a hook with these keys fires, in four epochs of ten steps.
fn fired(keys: &str) -> (Vec<u64>, Vec<u64>) {
    let file = format!(
        "task = \"toy\"\n[trainer]\nmax_epochs = 4\n[data]\ntrain = [10]\n\
         [[hooks]]\nuse = \"mycrate::hooks::Seen\"\nname = \"seen\"\n{keys}"
    );
    let (resolved, registry, tasks) = (works_with_stubs(&file, &[], &[]), registry(), tasks());
    let mut trainer = resolved.bare_trainer(&registry).expect("a trainer");
    resolved.program(&tasks, &registry).expect("a program").fit(&mut trainer).expect("it trains");
    let seen = trainer.hook::<Seen>("seen").expect("it is there");
    (seen.steps.clone(), seen.epochs.clone())
}

fn steps(keys: &str) -> Vec<u64> {
    fired(keys).0
}

#[test]
fn a_hook_fires_as_often_as_its_keys_say() {
    assert_eq!(fired(""), ((1..=40).collect(), vec![0, 1, 2, 3]));
    assert_eq!(steps("every = \"10 steps\""), [10, 20, 30, 40]);
    assert_eq!(fired("every = \"2 epochs\"").1, [1, 3]);
    assert_eq!(steps("after = \"3 epochs\""), (31..=40).collect::<Vec<_>>());
    assert_eq!(fired("once = true"), (vec![1], vec![0]));
    assert_eq!(fired("once = false").0.len(), 40);
    assert_eq!(steps("when = \"step % 7 == 0 or step == 40\""), [7, 14, 21, 28, 35, 40]);
    assert!(fired("enabled = false").0.is_empty());
    let sampled = steps("sampled = 0.5").len();
    assert!((5..35).contains(&sampled), "{sampled}");
    assert_eq!(steps("sampled = 1"), (1..=40).collect::<Vec<_>>());
}

#[test]
fn the_gates_combine_and_once_counts_events_that_pass_the_others() {
    assert_eq!(steps("every = \"10 steps\"\nafter = \"2 epochs\""), [30, 40]);
    assert_eq!(steps("every = \"10 steps\"\nwhen = \"epoch != 2\""), [10, 20, 40]);
    assert_eq!(steps("once = true\nwhen = \"step >= 15\""), [15]);
    assert_eq!(steps("once = true\nevery = \"3 steps\"\nafter = \"1 epoch\""), [12]);
    let all = "once = true\nevery = \"10 steps\"\nafter = \"1 epoch\"\nwhen = \"step > 20\"\nsampled = 1.0";
    assert_eq!(steps(all), [30]);
}

#[test]
fn a_condition_can_use_a_training_metric() {
    let (_, epochs) = fired("when = \"val/loss >= 0\"");
    assert_eq!(epochs, [0, 1, 2, 3], "validation comes before the end of the epoch");
    assert_eq!(fired("when = \"val/loss < 0\"").1, Vec::<u64>::new());
}

#[test]
fn a_wrong_key_is_shown_at_its_line_with_a_fix() {
    let hook = |name: &str, key: &str| error_with_stubs(&format!("[[hooks]]\nuse = \"{name}\"\n{key}"), &[]);
    for (key, column, hint) in [
        ("every = \"often\"", 9, "\"100 steps\", \"2 epochs\""),
        ("every = 100", 9, "expected a text"),
        ("after = \"0 epochs\"", 9, "it must be more than zero"),
        ("once = 1", 8, "expected true or false"),
        ("sampled = 0", 11, "above 0 and at most 1"),
        ("sampled = 1.5", 11, "for example, write 0.1"),
        ("sampled = nan", 11, "above 0 and at most 1"),
        ("when = \"val/loss <\"", 8, "a name, a number or a text is expected here"),
        ("when = \"stage == train\"", 8, "it is one of: fit, validate, test, predict"),
        ("when = \"phase == 'trian'\"", 8, "did you mean `train`?"),
        ("when = \"phase == 3\"", 8, "`phase` is a word and never a number"),
        ("when = \"step > 3 and epoch == 'three'\"", 8, "`epoch` is a number and never \"three\""),
        ("when = \"val/loss = 3\"", 8, "at character 10, `= 3`: to compare, write `==`"),
        ("max_failures = 0", 16, "must be 1 or more"),
        ("on_error = \"warn\"\nmax_failures = 2", 16, "set `on_error = \"disable\"` as well"),
        ("budget = 0.02", 10, "for example, write \"2%\""),
        ("budget = \"2\"", 10, "for example, write \"2%\""),
        ("budget = \"0 %\"", 10, "`0 %` is not above 0% and at most 100%"),
        ("budget = \"101%\"", 10, "is not above 0% and at most 100%"),
        ("budget = \"some%\"", 10, "`some%` is not a share of the time"),
        ("over_budget = \"warn\"", 15, "set for example `budget = \"2%\"` as well"),
        ("budget = \"2%\"\nover_budget = \"stop\"", 15, "unknown value `stop`"),
        ("evry = \"1 epoch\"", 1, "did you mean `every`?"),
    ] {
        let (shown, line) = (hook("mycrate::hooks::Seen", key), 2 + key.lines().count());
        assert!(shown.starts_with("1 problem in train.toml\n"), "{key}\n{shown}");
        assert!(shown.contains(&format!("train.toml:{line}:{column}: ")), "{key}\n{shown}");
        assert!(shown.contains(hint), "{key}\n{shown}");
    }
    let shown = hook("mycrate::Steers", "max_failures = 2");
    assert!(shown.contains("train.toml:3:16: `max_failures` has no effect here: "), "{shown}");
}

#[test]
fn a_budget_reaches_the_hook_and_can_disable_observers_only() {
    let budget = |keys: &str| {
        let file = format!("[[hooks]]\nuse = \"mycrate::hooks::Seen\"\n{keys}");
        let trainer = works_with_stubs(&file, &[], &[]).bare_trainer(&registry()).expect("a trainer");
        trainer.list_hooks()[0].budget
    };
    assert_eq!(budget(""), None);
    assert_eq!(budget("budget = \"2%\""), Some(Budget { share: 0.02, over: OverBudget::Warn }));
    let half = budget("budget = \"0.5 %\"\nover_budget = \"disable\"");
    assert_eq!(half, Some(Budget { share: 0.005, over: OverBudget::Disable }));
    for (hook, what) in
        [("mycrate::Steers", "a controller"), ("clip_by_norm\"\nmax_norm = 1.0 #", "an update hook")]
    {
        let file = format!("[[hooks]]\nuse = \"{hook}\"\nbudget = \"2%\"\nover_budget = \"disable\"");
        let shown = error_with_stubs(&file, &[]);
        assert!(shown.contains(&format!("15: {what} cannot be disabled for its cost")), "{shown}");
        works_with_stubs(&file.replace("\"disable\"", "\"warn\""), &[], &[]);
    }
}

#[test]
fn a_budget_without_accounts_is_refused_at_its_key() {
    let file = "[trainer]\naccount_hooks = false\n[[hooks]]\nuse = \"mycrate::hooks::Seen\"\nbudget = \"2%\"";
    let shown = error_with_stubs(file, &[]);
    assert!(shown.contains("train.toml:5:10: `budget` has no effect here"), "{shown}");
    works_with_stubs(&file.replace("false", "true"), &[], &[]);
}

#[test]
fn max_failures_is_enough_if_the_hooks_default_is_to_be_disabled() {
    let policy = |keys: &str| {
        let file = format!("[[hooks]]\nuse = \"mycrate::hooks::Seen\"\n{keys}");
        let trainer = works_with_stubs(&file, &[], &[]).bare_trainer(&registry()).expect("a trainer");
        trainer.list_hooks()[0].on_error
    };
    assert_eq!(policy("max_failures = 9"), OnError::Disable);
    assert_eq!(policy("on_error = \"abort\""), OnError::Abort);
}

#[test]
fn a_cadence_that_never_fires_is_refused_at_its_own_line() {
    for (key, line) in [("every = \"500 steps\"", 7), ("after = \"40 epochs\"", 7)] {
        let file = format!(
            "task = \"toy\"\n[trainer]\nmax_epochs = 2\n[[hooks]]\nuse = \"mycrate::Steers\"\nname = \"seen\"\n{key}"
        );
        let shown = refused(&works_with_stubs(&file, &[], &[]), &registry()).remove(0);
        assert!(shown.contains(&format!("train.toml:{line}:9: hook `seen` fires")), "{shown}");
    }
}

#[test]
fn a_refusal_is_shown_at_its_own_line_also_after_an_update_hook() {
    let file = "task = \"toy\"\n[trainer]\nmax_epochs = 2\n[[hooks]]\nuse = \"freeze\"\nparams = [\"**\"]\n\
                from_step = 500\n[[hooks]]\nuse = \"mycrate::Steers\"\nname = \"seen\"\nevery = \"500 steps\"";
    let shown = refused(&works_with_stubs(file, &[], &[]), &registry()).concat();
    assert!(shown.contains("train.toml:11:9: hook `seen` fires"), "{shown}");
    assert!(shown.contains("train.toml:7:13: hook `freeze` needs 500 steps by its `from_step`"), "{shown}");
}

#[test]
fn an_option_that_the_run_is_too_short_for_is_a_warning_for_an_observer() {
    let warned = |every: u64| {
        let file = format!(
            "task = \"toy\"\n[trainer]\nmax_epochs = 1\n[[hooks]]\nuse = \"console\"\nlog_every_n_batches = {every}"
        );
        let (resolved, registry, tasks) = (works_with_stubs(&file, &[], &[]), registry(), tasks());
        let mut trainer = resolved.bare_trainer(&registry).expect("a trainer");
        let mut program = resolved.program(&tasks, &registry).expect("a program");
        let found = program.plan_errors(&mut trainer).expect("a plan");
        found.iter().map(PlanError::is_warning).collect::<Vec<_>>()
    };
    assert_eq!([warned(500), warned(10)], [vec![true], vec![true]], "whether it is the default or not");
    assert!(warned(8).is_empty());
}

#[test]
fn the_keys_are_printed_and_read_back() {
    let keys = "[[hooks]]\nuse = \"mycrate.hooks.Seen\"\nevery = \"5 min\"\nafter=\"10 epochs\"\nonce = true\n\
                sampled = 0.25\nwhen = \"(val/loss<0.5)\"\non_error = \"disable\"\nmax_failures = 2\n\
                budget = \"0.7 %\"\nover_budget = \"disable\"";
    let resolved = works_with_stubs(keys, &[], &[]);
    assert_eq!(resolved.hooks[0].common.use_, "mycrate::hooks::Seen", "a path with dots is the same path");
    let printed = resolved.to_toml();
    for line in [
        "every = \"5 min\"",
        "when = \"val/loss < 0.5\"",
        "once = true",
        "sampled = 0.25",
        "budget = \"0.7%\"",
    ] {
        assert!(printed.contains(&format!("\n{line}\n")), "{line}\n{printed}");
    }
    assert_eq!(works_with_stubs(&printed, &[], &[]).hooks[0].common, resolved.hooks[0].common);
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code)] // it is never read
struct Clashing {
    /// Has the name of a common key.
    every: u64,
}

#[test]
fn a_hook_whose_option_has_the_name_of_a_common_key_is_not_registered() {
    let mut registry = registry();
    let make = |_: Clashing| Ok::<_, String>(Seen::default());
    let error = registry.add_hook("mycrate::Clashes", make).expect_err("it clashes");
    assert_eq!(
        error,
        RegistryError::Reserved { kind: "hook", name: "mycrate::Clashes".into(), key: "every".into() }
    );
    assert!(error.to_string().contains("give the option another name"), "{error}");
    assert!(registry.hook_named("mycrate::Clashes").is_none());
    registry.add_hook("mycrate::Free", |_: NoOptions| Ok::<_, String>(Seen::default())).expect("it is free");
}

#[test]
fn no_built_in_has_an_option_that_is_a_common_key() {
    for listed in Registry::default().hooks() {
        let clash: Vec<_> =
            listed.options().into_iter().filter(|key| hook_keys::HOOK_KEYS.contains(key)).collect();
        assert!(clash.is_empty(), "{}: {clash:?}", listed.name);
    }
    let declared = schema::Schema::new(&schema::schema_of::<HookKeys>()).all_keys().len();
    assert_eq!(declared, hook_keys::HOOK_KEYS.len(), "the list of names is complete");
}

#[test]
fn a_condition_with_a_misspelt_name_is_refused_by_the_plan_and_shown_at_its_key() {
    let refusal = |when: &str| {
        let file = format!("[[hooks]]\nuse = \"console\"\nwhen = \"{when}\"");
        refused(&works(&file, &[], &["task=toy"]), &Registry::default())
    };
    for (when, name, hint) in [
        ("val/los < 1", "val/los", "did you mean `val/loss`?"),
        ("step > 3 or epochs < 2", "epochs", "did you mean `epoch`?"),
        ("epoch == three", "three", "a hook that writes it must declare so"),
    ] {
        let shown = refusal(when);
        assert_eq!(shown.len(), 1, "{shown:?}");
        let said = format!(":3:8: hook `console_log` reads `{name}`, which nothing writes");
        assert!(shown[0].contains(&said) && shown[0].contains(hint), "{}", shown[0]);
    }
    for when in ["lr/sgd < 1", "phase == train", "loss < train/loss", "epoch * 2 < step", "elapsed > 60"] {
        assert!(refusal(when).is_empty(), "{when}: {:?}", refusal(when));
    }
}
