//! Dry runs have no effects outside of their temporary directory, with any hooks.

use std::fs;
use std::path::Path;

use serde_json::json;
use tenterhook::registry::Registry;

use crate::loopback::{Answer, Server};
use crate::tenter::{Ran, TestDir};

/// Configurations of the built-in hooks with all their effects outside of the run directory. Each `OUT` is a
/// path in a directory that must stay empty.
const WITH_EFFECTS: &[(&str, &str)] = &[
    (
        "exec",
        r#"on = ["setup", "on_train_start", "on_checkpoint_saved", "on_train_end", "teardown"]
        command = ["touch", "OUT/exec"]"#,
    ),
    ("notify", r#"url_env = "TEST_URL""#),
    ("heartbeat", "interval = \"1 s\"\nurl_env = \"TEST_URL\"\nfile = \"OUT/heartbeat\""),
    ("upload", r#"to = "OUT/upload""#),
    (
        "checkpoint",
        "dirpath = \"OUT/checkpoints\"\nsave_last = true\nevery_n_train_steps = 1\nsave_on_exception = true",
    ),
    ("csv", r#"path = "OUT/a.csv""#),
    ("jsonl", "path = \"OUT/a.jsonl\"\nlog_every_n_batches = 1"),
    ("tensorboard", r#"dir = "OUT/tensorboard""#),
    (
        "activation_store",
        "points = [\"**\"]\nto = \"safetensors\"\ndir = \"OUT/activations\"\nevery_n_batches = 1",
    ),
    ("profiler", r#"filename = "OUT/profile.json""#),
];

/// A configuration with every built-in hook.
fn every_hook(outside: &Path) -> String {
    let mut text = String::new();
    for hook in Registry::default().hooks() {
        let special = WITH_EFFECTS.iter().find(|(name, _)| *name == hook.name);
        let options = special.map_or_else(|| hook.example.expect("an example"), |(_, options)| options);
        text.extend(["[[hooks]]\nuse = \"", hook.name, "\"\n", options, "\n"]);
    }
    text.replace("OUT", outside.to_str().expect("it is text"))
}

fn entries(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("it is there");
    let mut names: Vec<_> =
        entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("text")).collect();
    names.sort();
    names
}

#[test]
fn no_dry_run_leaves_a_file_starts_a_process_or_sends_a_request() {
    let (outside, home, scratch) = (TestDir::new(), TestDir::new(), TestDir::new());
    let server = Server::start(&[Answer::Status(200)]);
    let dir = TestDir::new();
    dir.write("c.toml", every_hook(outside.path()));
    let run = |arguments: &[&str]| -> Ran {
        let mut command = dir.command(arguments);
        command.env("HOME", home.path()).env_remove("XDG_CONFIG_HOME").env("TMPDIR", scratch.path());
        command.env("TEST_URL", server.url("/")).output().expect("it runs").into()
    };
    // Scenarios are not trusted either.
    let touch = outside.path().join("scenario");
    let hooks = json!([
        { "use": "exec", "on": ["setup", "on_train_start"], "command": ["touch", touch] },
        { "use": "csv", "path": outside.path().join("scenario.csv") },
    ]);
    let data = json!({
        "train_batches": 2, "val_batches": 1, "test_batches": 1, "predict_batches": 1, "eval_loaders": 1, "sized": true
    });
    let scenario = json!({
        "entry": "fit", "trainer": { "max_epochs": 1 }, "data": data, "module": { "scheduler": null }, "hooks": hooks
    });
    dir.write("s.json", scenario.to_string());
    let dry_runs: [&[&str]; 6] = [
        &["trace", "s.json"],
        &["train", "c.toml", "--set", "trainer.fast_dev_run=2"],
        &["trace", "c.toml"],
        &["plan", "c.toml"],
        &["points", "c.toml"],
        &["verify-neutral", "c.toml", "--steps", "2"],
    ];
    for arguments in dry_runs {
        let ran = run(arguments).succeeded();
        assert_eq!(entries(dir.path()), ["c.toml", "s.json"], "{arguments:?}\n{}", ran.stderr);
        for (what, directory) in [("outside", &outside), ("home", &home), ("scratch", &scratch)] {
            let found = entries(directory.path());
            assert!(found.is_empty(), "{arguments:?} left in {what}: {found:?}\n{}", ran.stderr);
        }
        assert_eq!(server.received(), [], "{arguments:?}");
    }
    // Check that a real training has these effects.
    let short = ["--set", "trainer.max_epochs=4", "--set", "trainer.limit_train_batches=6", "--no-test"];
    run(&[&["train", "c.toml"], &short[..]].concat()).succeeded();
    let expected = ["a.csv", "a.jsonl", "activations", "checkpoints", "exec", "heartbeat", "profile.json"];
    let found = entries(outside.path());
    for name in expected.iter().chain(&["tensorboard", "upload"]) {
        assert!(found.contains(&(*name).to_owned()), "{name} is not among {found:?}");
    }
    assert!(!server.received().is_empty());
}
