//! `tenter hooks` and `tenter schema`.

use serde_json::Value;

use crate::tenter::TestDir;

fn printed(arguments: &[&str]) -> String {
    let ran = TestDir::new().run(arguments);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    ran.stdout
}

fn described() -> Vec<Value> {
    let all: Value = serde_json::from_str(&printed(&["hooks", "--json"])).expect("it is JSON");
    all["hooks"].as_array().expect("a list").clone()
}

#[test]
fn every_hook_is_listed_with_its_purpose() {
    let list = printed(&["hooks"]);
    let names: Vec<_> =
        described().iter().map(|hook| hook["name"].as_str().expect("text").to_owned()).collect();
    for name in [
        "console",
        "jsonl",
        "logging",
        "tensorboard",
        "csv",
        "gradient_monitor",
        "checkpoint",
        "early_stopping",
        "lr_monitor",
        "nan_guard",
        "plateau_detector",
        "loss_spike",
        "throughput",
        "timer",
        "profiler",
        "model_summary",
        "ema_weights",
        "identity",
        "clip_by_norm",
        "clip_by_value",
        "gradient_noise",
        "freeze",
        "scale",
    ] {
        assert!(names.iter().any(|known| known == name), "{name} is missing: {names:?}");
        assert!(list.contains(&format!("  {name} ")), "{list}");
    }
}

#[test]
fn the_page_of_a_hook_shows_events_options_and_example() {
    for hook in described() {
        let name = hook["name"].as_str().expect("text");
        let page = printed(&["hooks", name]);
        let has_events = hook["properties"]["events"].as_array().is_some_and(|events| !events.is_empty());
        match hook["properties"]["called"].as_str() {
            Some(when) => assert!(!has_events && page.contains(&format!("called  {when}")), "{name}: {page}"),
            None => assert!(has_events, "{name}"),
        }
        for event in hook["properties"]["events"].as_array().expect("a list") {
            assert!(page.contains(event.as_str().expect("text")), "{name}: {event}");
        }
        for option in hook["options"].as_array().expect("a list") {
            let (key, kind) = (option["key"].as_str().expect("text"), option["kind"].as_str().expect("text"));
            assert!(!kind.is_empty(), "{name}.{key} has no type");
            let heading = |line: &&str| {
                line.strip_prefix(&format!("  {key}")).is_some_and(|rest| rest.contains(&format!("({kind})")))
            };
            assert!(page.lines().any(|line| heading(&line)), "{name}.{key}: {page}");
            let about = option["about"].as_str().expect("text");
            assert!(about.len() > 8, "{name}.{key} says nothing: {about}");
            let known = option["required"] == true || !option["default"].is_null() || page.contains("unset");
            assert!(known, "{name}.{key} has no default on its page");
        }
        assert!(page.contains("use = "), "{name} has no example");
    }
}

#[test]
fn an_unknown_hook_gets_a_suggestion() {
    let ran = TestDir::new().run(&["hooks", "erly_stopping"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("did you mean `early_stopping`?"), "{}", ran.stderr);
}
