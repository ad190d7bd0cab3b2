//! `tenter plan`.

use serde_json::Value;

use crate::{files, tenter, text};

fn plan(config: &str, arguments: &[&str]) -> (Option<i32>, String, String) {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("config.toml"), config).expect("it writes");
    let arguments: Vec<_> = ["plan", "config.toml"].iter().chain(arguments).copied().collect();
    let output = tenter(&arguments, directory.path());
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

const BOTH: &str = "[trainer]\nmax_epochs = 3\n[[hooks]]\nuse = \"checkpoint\"\n\
                    [[hooks]]\nuse = \"early_stopping\"\nmonitor = \"val/loss\"\n";

#[test]
fn the_plan_shows_receivers_with_order_and_reason() {
    let (code, out, _) = plan(BOTH, &[]);
    assert_eq!(code, Some(0));
    let expected = "  on_train_epoch_end\n    1. module                   module, before the monitors of what it logs here\n    \
                    2. early_stopping           built-in monitor, after user monitors\n    \
                    3. checkpoint               checkpoint, last: it includes the work of all other hooks\n";
    assert!(out.contains(expected), "{out}");
    assert!(out.contains("identity                 update"), "{out}");
}

#[test]
fn the_plan_is_printed_as_json() {
    let (code, out, _) = plan(BOTH, &["--json"]);
    assert_eq!(code, Some(0));
    let plan: Value = serde_json::from_str(&out).expect("JSON");
    let sources: Vec<_> = plan["events"]["on_validation_end"]
        .as_array()
        .expect("rows")
        .iter()
        .map(|row| &row["source"])
        .collect();
    assert_eq!(sources, ["hook:early_stopping", "hook:checkpoint", "module", "strategy"]);
    assert_eq!(plan["hooks"][0]["name"], "checkpoint");
    assert_eq!(plan["refused"], Value::Array(vec![]));
}

#[test]
fn update_hooks_are_listed_between_their_events_in_order() {
    let config = "[[hooks]]\nuse = \"scale\"\nfactor = 0.5\nwhen = \"loss > 1\"\n\
                  [[hooks]]\nuse = \"clip_by_norm\"\nmax_norm = 1.0\n\
                  [[hooks]]\nuse = \"freeze\"\nparams = [\"**\"]\nenabled = false\n";
    let (code, out, err) = plan(config, &[]);
    assert_eq!(code, Some(0), "{err}");
    let expected = "  update hooks\n    1. scale                    in registration order\n    \
                    2. clip_by_norm             in registration order\n";
    assert!(out.contains(expected) && out.contains("requests loss"), "{out}");
    let names = |config: &str| {
        let (_, out, _) = plan(config, &["--json"]);
        let plan: Value = serde_json::from_str(&out).expect("JSON");
        let rows = plan["update_hooks"].as_array().expect("rows").clone();
        rows.iter().map(|row| row["name"].as_str().expect("a name").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(config), ["scale", "clip_by_norm"]);
    assert_eq!(names(BOTH), ["identity"]);
    assert!(plan(BOTH, &[]).1.contains("1. identity                 never called: it changes nothing"));
}

#[test]
fn a_plan_that_cannot_work_is_refused_with_its_fix() {
    for (config, hint) in [
        ("[[hooks]]\nuse = \"early_stopping\"\nmonitor = \"val/los\"", "did you mean `val/loss`?"),
        (
            "[trainer]\nlimit_val_batches = 0\n[[hooks]]\nuse = \"early_stopping\"\nmonitor = \"val/loss\"",
            "raise `limit_val_batches`",
        ),
        (
            "[trainer]\nmax_epochs = 2\n[[hooks]]\nuse = \"checkpoint\"\nevery_n_train_steps = 1000",
            "train longer",
        ),
        ("[trainer]\nmax_epoch = 2", "config.toml:2:1"),
        ("[trainer]\nmax_epochs = \"many\"", "config.toml:2:14"),
        ("[trainer]\nval_check_interval = 100", "val_check_interval = 100"),
        ("[[hooks]]\nuse = \"chekpoint\"", "did you mean `checkpoint`?"),
        ("[[hooks]]\nuse = \"checkpoint\"\nsave_topk = 2", "did you mean `save_top_k`?"),
    ] {
        let (code, _, err) = plan(config, &[]);
        assert_eq!(code, Some(2), "{config}\n{err}");
        assert!(err.contains(hint), "{config}\n{err}");
        assert!(!err.contains("panicked"), "{err}");
    }
}

#[test]
fn an_observer_that_never_fires_is_a_warning() {
    let config = "[trainer]\nmax_epochs = 1\n[[hooks]]\nuse = \"jsonl\"\nlog_every_n_batches = 1000";
    let (code, out, err) = plan(config, &["--json"]);
    assert_eq!(code, Some(0), "{err}");
    let plan: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(plan["refused"], Value::Array(vec![]));
    assert!(plan["warnings"][0].as_str().is_some_and(|text| text.contains("1000 batches")), "{plan:#}");
    assert!(err.starts_with("warning: hook `json_log`"), "{err}");
}

#[test]
fn a_scenario_has_a_plan_too() {
    let file = files().join("lightning/fit_model_checkpoint_ordering.json");
    let output = tenter(&["plan", &file.display().to_string(), "--json"], &files());
    assert_eq!(output.status.code(), Some(0));
    let plan: Value = serde_json::from_str(&text(&output.stdout)).expect("JSON");
    let sources: Vec<_> = plan["events"]["on_train_epoch_end"]
        .as_array()
        .expect("rows")
        .iter()
        .map(|row| &row["source"])
        .collect();
    assert_eq!(sources, ["hook:A", "hook:B", "hook:C", "module", "hook:early_stopping", "hook:checkpoint"]);
}
