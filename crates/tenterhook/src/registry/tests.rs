use tenterhook_core::update::Identity;

use super::*;

#[test]
fn a_hook_is_built_by_name_from_its_options() {
    let registry = Registry::default();
    let made = registry.hook("early_stopping", serde_json::json!({ "monitor": "val/loss" }));
    assert_eq!(made.expect("it is made").name(), "early_stopping");
}

#[test]
fn a_failed_build_says_why_and_where() {
    for (name, options, key, hint) in [
        ("early_stoping", serde_json::json!({}), "use", "did you mean `early_stopping`?"),
        ("cat", serde_json::json!({}), "use", "checkpoint, early_stopping"),
        ("early_stopping", serde_json::json!({}), "monitor", "missing key `monitor`"),
        ("checkpoint", serde_json::json!({ "save_topk": 1 }), "save_topk", "save_top_k"),
        ("checkpoint", serde_json::json!({ "save_top_k": 3 }), "save_top_k", "needs a `monitor`"),
    ] {
        let error =
            Registry::default().hook(name, options).map(|hook| hook.name().to_owned()).expect_err(name);
        assert!(error.to_string().contains(hint), "{error}");
        assert_eq!(error.at("").key, key);
    }
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Half {
    /// From which count on.
    from: u64,
}

impl Scheduler for Half {
    fn factor(&mut self, tick: crate::schedule::ScheduleStep) -> Result<f64, tenterhook_core::BoxError> {
        Ok(if tick.count < self.from { 1.0 } else { 0.5 })
    }
}

#[test]
fn a_schedule_of_a_user_is_built_by_name_and_names_are_unique() {
    let mut registry = Registry::default();
    registry.add_scheduler("half", Ok::<Half, String>).expect("it is free");
    let mut made = registry.scheduler("half", serde_json::json!({ "from": 2 })).expect("it is made");
    let at = |count| crate::schedule::ScheduleStep { count, ..crate::schedule::ScheduleStep::default() };
    assert!(made.factor(at(1)).expect("a factor") > 0.9);
    assert!(made.factor(at(2)).expect("a factor") < 0.6);
    let error = registry.add_scheduler("half", Ok::<Half, String>).expect_err("taken");
    assert!(error.to_string().contains("a scheduler named `half` already"), "{error}");
    let listed: Vec<_> = registry.schedulers().filter(|listed| listed.name == "half").collect();
    assert_eq!(listed[0].schema["properties"]["from"]["description"], "From which count on.");
    let problem =
        registry.scheduler("half", serde_json::json!({ "from": "x" })).map(|_| ()).expect_err("text");
    assert_eq!(problem.at("schedulers.1").key, "schedulers.1.from");
}

#[test]
fn every_built_in_schedule_is_listed_and_says_which_option_is_wrong() {
    let registry = Registry::default();
    let listed = registry.schedulers().map(|listed| listed.name);
    assert_eq!(
        listed.collect::<Vec<_>>(),
        crate::schedule::BUILT_INS.iter().map(|made| made.name).collect::<Vec<_>>()
    );
    for (name, options, key) in [
        ("cosine", serde_json::json!({ "min_facto": 0.1 }), "min_facto"),
        ("cosine", serde_json::json!({ "warmup": 3, "min_factor": "x" }), "min_factor"),
        ("cosin", serde_json::json!({}), "use"),
    ] {
        let error = registry.scheduler(name, options).map(|_| ()).expect_err(name);
        assert_eq!(error.clone().at("schedulers.0").key, format!("schedulers.0.{key}"), "{error}");
    }
    assert!(registry.scheduler("cosine", serde_json::json!({ "min_factor": 0.1 })).is_ok());
}

#[test]
fn names_of_pytorch_schedules_get_a_hint_in_any_case() {
    for (name, hint) in [
        ("OneCycleLR", "did you mean `one_cycle`?"),
        ("CosineAnnealingLR", "did you mean `cosine`?"),
        ("StepLR", "did you mean `step`?"),
        ("ReduceLROnPlateau", "it is the schedule `plateau`"),
    ] {
        let error = Registry::default().scheduler(name, serde_json::json!({})).map(|_| ()).expect_err(name);
        assert!(error.to_string().contains(hint), "{error}");
    }
}

#[test]
fn a_description_has_aliases_and_limits_of_options_and_the_flags() {
    let registry = Registry::default();
    let checkpoint = registry.describe("checkpoint").expect("it is built in");
    assert_eq!(checkpoint.flags, ["enable_model_checkpoint_hook", "model_checkpoint_config"]);
    let option = |key: &str| checkpoint.options.iter().find(|option| option.key == key).expect("an option");
    assert_eq!(option("every_n_epochs").aliases, ["save_every_n_epochs"]);
    assert_eq!(option("save_top_k").kind, "whole number, -1 or more");
    let kind = |hook: &str, key: &str| {
        let options = registry.describe(hook).expect("it is built in").options;
        options.into_iter().find(|option| option.key == key).expect("an option").kind
    };
    assert_eq!(kind("gradient_monitor", "percentiles"), "list of numbers, from 0 to 100");
    assert_eq!(
        kind("activation_stats", "stages"),
        "list of \"train\" or \"validate\" or \"test\" or \"predict\""
    );
    assert_eq!(kind("activation_store", "max_bytes"), "whole number or text");
    assert_eq!(kind("throughput", "smoothing"), "number, 0 or more and below 1");
    assert_eq!(kind("early_stopping", "patience"), "whole number");
    assert!(registry.describe("timer").expect("it is built in").flags.is_empty());
}

#[test]
fn a_hook_of_a_cargo_feature_names_the_feature() {
    let features = [("notify", "http"), ("heartbeat", "http"), ("upload", "upload")];
    let on = [("http", cfg!(feature = "http")), ("upload", cfg!(feature = "upload"))];
    let mut registry = Registry::default();
    for (name, feature) in features {
        let taken = registry.add_hook(name, |Silent {}| Ok::<_, String>(Identity)).expect_err(name);
        assert!(taken.to_string().contains("already"), "{taken}");
        let described = registry.describe(name);
        if on.contains(&(feature, true)) {
            assert_eq!(described.expect(name).feature, Some(feature));
            continue;
        }
        let expected = format!(
            "hook `{name}` needs the cargo feature `{feature}` of `tenterhook`; build this program with it: \
             `cargo add tenterhook --features {feature}`"
        );
        assert_eq!(described.expect_err(name).to_string(), expected);
        let error =
            registry.hook(name, serde_json::json!({})).map(|hook| hook.name().to_owned()).expect_err(name);
        assert_eq!((error.to_string(), error.at("hooks.0").key), (expected, "hooks.0.use".to_owned()));
    }
    let needs = registry.hooks().filter_map(|listed| registry.describe(listed.name).ok()?.feature);
    let expected = features.into_iter().filter(|(_, feature)| on.contains(&(*feature, true)));
    assert_eq!(needs.collect::<Vec<_>>(), expected.map(|(_, feature)| feature).collect::<Vec<_>>());
}

#[test]
fn an_update_hook_has_no_events_and_says_when_it_is_called() {
    let registry = Registry::default();
    let made = |name: &str| registry.describe(name).expect("built in").properties.expect("its example works");
    for name in ["identity", "clip_by_norm", "clip_by_value", "gradient_noise", "freeze", "scale"] {
        let made = made(name);
        assert_eq!((made.registered_as.as_str(), made.kind), (name, tenterhook_core::HookKind::Update));
        assert!(made.events.is_empty());
        let called = made.called.expect("in words");
        let expected = if name == "identity" { "never" } else { "after on_before_optimizer_step and before" };
        assert!(called.starts_with(expected), "{name}: {called}");
        assert_eq!(made.place(), "among the update hooks, in registration order");
    }
    let checkpoint = made("checkpoint");
    assert_eq!((checkpoint.called, checkpoint.place()), (None, checkpoint.tier.reason()));
    assert!(registry.describe("identity").is_ok_and(|identity| identity.options.is_empty()));
    let error =
        registry.hook("identity", serde_json::json!({ "factor": 1.0 })).map(|hook| hook.name().to_owned());
    assert!(error.expect_err("it has no options").to_string().contains("`factor`"));
}

#[test]
fn an_invalid_option_of_an_update_hook_is_refused_at_its_key() {
    for (name, options, key) in [
        ("clip_by_norm", serde_json::json!({ "max_norm": 0.0 }), "max_norm"),
        ("clip_by_norm", serde_json::json!({ "max_norm": 1.0, "params": ["a..b"] }), "params"),
        ("clip_by_value", serde_json::json!({ "limit": -1.0 }), "limit"),
        ("gradient_noise", serde_json::json!({ "std": 0.1, "decay": -0.5 }), "decay"),
        ("freeze", serde_json::json!({ "params": [] }), "params"),
        ("freeze", serde_json::json!({ "params": ["**"], "from_step": 3, "until_step": 2 }), "until_step"),
        ("scale", serde_json::json!({ "factor": 1e300 }), "factor"),
        ("scale", serde_json::json!({}), "factor"),
    ] {
        let error =
            Registry::default().hook(name, options).map(|hook| hook.name().to_owned()).expect_err(name);
        assert_eq!(error.clone().at("hooks.0").key, format!("hooks.0.{key}"), "{error}");
    }
}

/// Says something now and then.
///
/// More of it.
#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Described {}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Silent {}

#[test]
fn a_users_hook_has_the_purpose_that_its_options_describe_and_never_an_empty_one() {
    let mut registry = Registry::default();
    let hook = |_: &str| Ok::<_, String>(tenterhook_core::closure::on_fit_end("x", |_| ()));
    registry.add_hook("described", move |Described {}| hook("")).expect("it is free");
    registry.add_hook("silent", move |Silent {}| hook("")).expect("it is free");
    let purpose = |name: &str| registry.hook_named(name).map(|listed| listed.purpose.to_owned());
    assert_eq!(purpose("described").as_deref(), Some("Says something now and then."));
    assert!(purpose("silent").is_some_and(|purpose| purpose.starts_with("no description")));
    assert!(registry.hooks().all(|listed| !listed.purpose.is_empty()));
}
