//! `tenter checkpoints` and `tenter checkpoints verify`.

use std::fs;

use serde_json::Value;

use crate::tenter::{Ran, TestDir};

fn trained() -> TestDir {
    let dir = TestDir::new();
    let hooks = "[[hooks]]\nuse = \"checkpoint\"\nsave_top_k = -1\n\
                 [[hooks]]\nuse = \"checkpoint\"\nname = \"alone\"\nsave_weights_only = true\ndirpath = \"alone\"\n";
    dir.write("c.toml", format!("task = \"toy\"\n[trainer]\nmax_epochs = 2\n{hooks}"));
    dir.run(&["train", "c.toml", "--quiet"]).succeeded();
    dir
}

fn document(ran: &Ran) -> Value {
    serde_json::from_str(&ran.stdout).expect("one JSON document")
}

#[test]
fn checkpoints_are_listed_newest_first_with_what_they_are() {
    let dir = trained();
    let shown = dir.run(&["checkpoints"]).succeeded().stdout;
    let lines: Vec<_> = shown.lines().collect();
    for column in ["checkpoint", "step", "epoch", "val/loss", "size", "state", "remarks"] {
        assert!(lines[0].contains(column), "{shown}");
    }
    let newest = lines.iter().find(|line| line.starts_with("epoch=1-step=16 ")).expect("the newest");
    assert_eq!(newest.split_whitespace().nth(2), Some("2"), "people count epochs from 1: {shown}");
    assert!(newest.contains(" KiB  whole") && newest.contains("<- latest"), "{shown}");
    assert!(lines.iter().any(|line| line.contains("weights only")), "{shown}");
    let steps: Vec<_> = document(&dir.run(&["checkpoints", "--json"]))["checkpoints"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| one["step"].as_u64().expect("a number"))
        .collect();
    assert_eq!(steps.len(), lines.len() - 1, "{shown}");
    assert!(steps.is_sorted_by(|a, b| a >= b), "{steps:?}");
    let same = dir.run(&["checkpoints", "runs/latest/checkpoints"]).succeeded().stdout;
    assert_eq!(same, shown);
}

#[test]
fn a_damaged_checkpoint_is_listed_with_the_reason_and_fails_verification() {
    let dir = trained();
    dir.run(&["checkpoints", "verify", "latest"]).succeeded();
    let checkpoint = dir.path().join("runs/latest/checkpoints/epoch=0-step=8");
    fs::remove_file(checkpoint.join("optimizer.safetensors")).expect("it was there");
    let mut bytes = fs::read(checkpoint.join("state.json")).expect("a state");
    bytes[9] ^= 1;
    fs::write(checkpoint.join("state.json"), bytes).expect("it is written");
    let shown = dir.run(&["checkpoints"]).succeeded().stdout;
    assert!(
        shown.lines().any(|line| line.starts_with("epoch=0-step=8 ") && line.contains("damaged")),
        "{shown}"
    );
    assert!(shown.contains("optimizer.safetensors is damaged: it is missing"), "{shown}");
    for path in ["latest", "runs/latest", "runs/latest/checkpoints", "runs/latest/checkpoints/epoch=0-step=8"]
    {
        let ran = dir.run(&["checkpoints", "verify", path]);
        assert_eq!(ran.code, 1, "{path}: {}", ran.stderr);
        for hint in
            ["epoch=0-step=8: damaged", "  optimizer.safetensors: it is missing", "  state.json: its hash"]
        {
            assert!(ran.stdout.contains(hint), "{path}: no `{hint}` in {}", ran.stdout);
        }
    }
    let ran = dir.run(&["checkpoints", "verify", "latest", "--json"]);
    let all = document(&ran);
    assert_eq!((ran.code, &all["whole"]), (1, &Value::Bool(false)));
    let damaged: Vec<_> =
        all["checkpoints"].as_array().expect("a list").iter().filter(|one| one["whole"] == false).collect();
    assert_eq!(damaged.len(), 1, "{all}");
    assert_eq!(damaged[0]["problems"][0]["file"], "optimizer.safetensors");
    let whole = "runs/latest/checkpoints/epoch=1-step=16";
    let ran = dir.run(&["checkpoints", "verify", whole]).succeeded();
    assert_eq!(ran.stdout, format!("{whole}: whole\n"));
}

#[test]
fn a_directory_without_checkpoints_is_an_error() {
    let dir = TestDir::new();
    dir.run(&["train", "--quiet", "--set", "task=toy", "--set", "trainer.max_epochs=1"]).succeeded();
    let shown = dir.run(&["checkpoints", "latest"]).succeeded().stdout;
    assert!(shown.starts_with("there are no checkpoints in runs/"), "{shown}");
    assert_eq!(document(&dir.run(&["checkpoints", "--json"]))["checkpoints"], Value::Array(Vec::new()));
    dir.run(&["checkpoints", "verify", "latest"]).refused(&["there are no checkpoints in"]);
    dir.run(&["checkpoints", "nobody"]).refused(&["no run is called `nobody`"]);
}
