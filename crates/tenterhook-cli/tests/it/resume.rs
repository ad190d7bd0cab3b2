//! `tenter resume` and `tenter train --resume`.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::signals::RunningProgram;
use crate::tenter::{Ran, TestDir};

const CONFIG: &str =
    "task = \"toy\"\n[trainer]\nmax_epochs = 3\n[[hooks]]\nuse = \"checkpoint\"\nsave_top_k = -1\n";

/// A directory with a run of three epochs and three checkpoints.
fn trained() -> TestDir {
    let dir = TestDir::new();
    dir.write("c.toml", CONFIG);
    dir.run(&["train", "c.toml", "--quiet"]).succeeded();
    dir
}

fn runs(dir: &TestDir) -> usize {
    let entries = fs::read_dir(dir.path().join("runs")).expect("runs").flatten();
    entries.filter(|entry| !entry.path().is_symlink()).count()
}

fn latest(dir: &TestDir) -> PathBuf {
    dir.path().join("runs/latest").canonicalize().expect("a run")
}

fn weights(dir: &TestDir) -> Vec<u8> {
    fs::read(dir.path().join("runs/latest/weights.safetensors")).expect("weights")
}

/// Truncates the weights of a checkpoint by one byte.
fn damage(checkpoint: &Path) {
    let file = checkpoint.join("weights.safetensors");
    let bytes = fs::read(&file).expect("weights");
    fs::write(&file, &bytes[..bytes.len() - 1]).expect("it is written");
}

fn document(ran: Ran) -> Value {
    serde_json::from_str(&ran.succeeded().stdout).expect("one line of JSON")
}

/// Trains one more epoch.
const LONGER: [&str; 2] = ["--set", "trainer.max_epochs=4"];

#[test]
fn an_interrupted_run_resumes_to_the_same_bits_in_its_directory() {
    let few = [
        "--set",
        "trainer.max_epochs=20",
        "--set",
        "trainer.limit_train_batches=2",
        "--set",
        "trainer.limit_val_batches=1",
        "--no-test",
    ];
    let untouched = TestDir::new();
    untouched.run(&[&["train", "--quiet"], &few[..]].concat()).succeeded();
    let dir = TestDir::new();
    let mut run = RunningProgram::start(&dir, &[&["train"], &few[..]].concat());
    run.wait_for("epoch 1/");
    run.signal("TERM");
    assert_eq!(run.ended().0, Some(143));
    let record = dir.json("runs/latest/run.json");
    assert_eq!(record["status"], "interrupted", "{record}");
    let ran = document(dir.run(&["resume", "latest", "--no-test", "--json"]));
    assert_eq!(ran["run"], record["id"], "{ran}");
    assert!(ran["resumed_from"].as_str().is_some_and(|from| from.contains("emergency-")), "{ran}");
    assert_eq!(weights(&dir), weights(&untouched));
    assert_eq!((runs(&dir), dir.json("runs/latest/run.json")["status"].as_str()), (1, Some("completed")));
    let without_time = |dir: &TestDir| -> Vec<Value> {
        let mut lines = dir.lines("runs/latest/metrics.jsonl");
        for line in &mut lines {
            line["time"] = Value::Null;
        }
        lines
    };
    assert_eq!(without_time(&dir), without_time(&untouched), "no gaps and no duplicates");
}

#[test]
fn a_finished_run_says_so_and_can_be_extended() {
    let dir = trained();
    let said = dir.run(&["resume", "latest"]).succeeded().stdout;
    assert!(
        said.contains("is completed after 3 epochs and 24 steps; to train on, raise `max_epochs`"),
        "{said}"
    );
    for command in [&["resume", "latest"][..], &["train", "c.toml", "--resume", "auto"]] {
        // Simulates a process that was killed immediately before.
        dir.write("runs/latest/lock", "{}");
        let done = document(dir.run(&[command, &["--json"]].concat()));
        assert_eq!((&done["finished"], &done["steps"]), (&Value::Bool(true), &Value::from(24)), "{done}");
        assert_eq!(done["run"], dir.json("runs/latest/run.json")["id"]);
        assert!(!dir.path().join("runs/latest/lock").exists(), "a stale lock is removed");
    }
    let ran = dir.run(&[&["resume", "latest", "--json"], &LONGER[..]].concat());
    assert!(!ran.stderr.contains("hooks.checkpoint"), "only differences are listed: {}", ran.stderr);
    let ran = document(ran);
    assert_eq!((&ran["epochs"], &ran["steps"]), (&Value::from(4), &Value::from(32)), "{ran}");
    assert!(ran["metrics"]["test/loss"].is_number(), "it is tested as ever: {ran}");
    assert_eq!(runs(&dir), 1);
}

#[test]
fn auto_resumes_a_matching_run_or_starts_a_new_one() {
    let dir = TestDir::new();
    dir.write("c.toml", CONFIG);
    let auto = |more: &[&str]| dir.run(&[&["train", "c.toml", "--resume", "auto"], more].concat());
    let first = auto(&[]).succeeded();
    assert!(
        first.stderr.contains("no run in runs matches this configuration; starting a new run"),
        "{}",
        first.stderr
    );
    auto(&["--set", "optimizer.lr=0.2"]).succeeded();
    assert_eq!(runs(&dir), 2, "another learning rate means another run");
    let id = dir.json("runs/latest/run.json")["id"].clone();
    let on = auto(&[&LONGER[..], &["--set", "optimizer.lr=0.2"]].concat()).succeeded();
    assert!(
        on.stderr.contains(&format!("run {}\n  resuming from checkpoints/", id.as_str().expect("an id"))),
        "{}",
        on.stderr
    );
    assert_eq!(runs(&dir), 2);
}

#[test]
fn changes_of_the_computation_are_refused_unless_forced() {
    let dir = trained();
    let set = ["--set", "optimizer.lr=0.5", "--set", "trainer.seed=7"];
    let before = fs::read(latest(&dir).join("run.json")).expect("a record");
    let more = [&LONGER[..], &set].concat();
    let changed = |more: &[&str]| dir.run(&[&["resume", "latest"], more].concat());
    changed(&more).refused(&["optimizer.lr: 0.1 -> 0.5", "trainer.seed: 0 -> 7", "--force"]);
    dir.run(&[&["train", "c.toml", "--resume", "latest"], &more[..]].concat()).refused(&["optimizer.lr"]);
    assert_eq!(fs::read(latest(&dir).join("run.json")).expect("a record"), before, "no file was changed");
    changed(&[&more[..], &["--force"]].concat()).succeeded();
}

#[test]
fn added_and_removed_hooks_are_refused_unless_accepted() {
    let dir = trained();
    dir.write("more.toml", format!("{CONFIG}[[hooks]]\nuse = \"timer\"\n"));
    let resume = ["train", "more.toml", "--resume", "latest", "--set", "trainer.max_epochs=4"];
    dir.run(&resume).refused(&["`timer` is registered and not in the checkpoint", "--accept-hook-changes"]);
    dir.run(&[&resume[..], &["--accept-hook-changes"]].concat()).succeeded();
    dir.run(&["train", "c.toml", "--resume", "latest", "--set", "trainer.max_epochs=5"])
        .refused(&["`timer` is in the checkpoint and not registered"]);
}

#[test]
fn a_damaged_checkpoint_is_skipped_with_a_message() {
    let dir = trained();
    let run = latest(&dir);
    damage(&run.join("checkpoints/epoch=2-step=24"));
    let named = "runs/latest/checkpoints/epoch=2-step=24";
    dir.run(&["resume", named]).refused(&[
        "epoch=2-step=24/weights.safetensors is damaged",
        "the newest whole checkpoint is",
        "epoch=1-step=16",
    ]);
    let ran = dir.run(&[&["resume", "latest"], &LONGER[..]].concat()).succeeded();
    assert!(
        ran.stderr.contains("skipped: checkpoint ") && ran.stderr.contains("epoch=2-step=24"),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("resuming from checkpoints/epoch=1-step=16: "), "{}", ran.stderr);
    assert_eq!(dir.json("runs/latest/run.json")["steps"], 32);
}

#[test]
fn a_resume_reports_repeated_training_and_save_last_avoids_it() {
    // With this mode the first epoch remains the best.
    let config = |last: &str| {
        format!(
            "task = \"toy\"\n[trainer]\nmax_epochs = 5\n[[hooks]]\nuse = \"checkpoint\"\nmonitor = \"val/loss\"\nmode = \"max\"\n{last}\n"
        )
    };
    for (last, says) in [
        ("save_last = true", "  resuming from checkpoints/last: 5 epochs, 40 steps done\n"),
        ("save_last = \"link\"", "  resuming from checkpoints/last: 5 epochs, 40 steps done\n"),
        (
            "",
            "  resuming from checkpoints/epoch=0-step=8: 1 epoch, 8 steps done; trained again: 4 \
             epochs (32 steps) because there is no later checkpoint\n",
        ),
    ] {
        let dir = TestDir::new();
        dir.write("c.toml", config(last));
        dir.run(&["train", "c.toml", "--quiet"]).succeeded();
        let resumed = dir.run(&["resume", "latest", "--set", "trainer.max_epochs=6"]).succeeded();
        assert!(resumed.stderr.contains(says), "{last}: {}", resumed.stderr);
    }
}

#[test]
fn the_default_configurations_save_the_latest_state() {
    let dir = TestDir::new();
    let printed = |task: &str| dir.run(&["train", "--print-config", "--set", task]).succeeded().stdout;
    let template = include_str!("../../../tenterhook-app/template/train.toml").to_owned();
    for config in [printed("task=digits"), printed("task=text"), template] {
        assert!(config.lines().any(|line| line.starts_with("save_last = \"link\"")), "{config}");
    }
}

#[test]
fn without_a_whole_checkpoint_a_resume_starts_over_in_the_same_directory() {
    let dir = trained();
    let before = weights(&dir);
    for checkpoint in ["epoch=0-step=8", "epoch=1-step=16", "epoch=2-step=24"] {
        damage(&latest(&dir).join("checkpoints").join(checkpoint));
    }
    // Simulates a process that was killed during training.
    let mut record = dir.json("runs/latest/run.json");
    record["status"] = "running".into();
    dir.write("runs/latest/run.json", record.to_string());
    let ran = dir.run(&["resume", "latest"]).succeeded();
    assert!(
        ran.stderr.contains("no whole checkpoint to resume from: training begins from the start"),
        "{}",
        ran.stderr
    );
    assert_eq!((runs(&dir), weights(&dir)), (1, before));
    let steps: Vec<_> =
        dir.lines("runs/latest/metrics.jsonl").iter().map(|line| line["step"].as_u64()).collect();
    assert!(steps.is_sorted(), "{steps:?}");
}

/// Makes `run.json` look as it does before the test after training.
fn untested(dir: &TestDir) {
    let lines = dir.lines("runs/latest/metrics.jsonl");
    let trained = lines.iter().filter(|line| line["stage"] != "test").map(|line| format!("{line}\n"));
    dir.write("runs/latest/metrics.jsonl", trained.collect::<String>());
    let mut record = dir.json("runs/latest/run.json");
    assert_eq!(record["trained"], Value::Null, "it is tested");
    (record["status"], record["trained"]) = ("running".into(), json!({ "status": "completed" }));
    record["weights_to_test"] = "weights.safetensors".into();
    dir.write("runs/latest/run.json", record.to_string());
}

#[test]
fn a_run_killed_in_its_test_is_tested_when_it_resumes() {
    let dir = trained();
    let (lines, before) = (dir.lines("runs/latest/metrics.jsonl"), weights(&dir));
    untested(&dir);
    let shown = dir.run(&["show", "latest"]).succeeded().stdout;
    assert!(shown.contains("killed in the test after training"), "{shown}");
    let tested = document(dir.run(&["resume", "latest", "--json"]));
    assert!(tested["metrics"]["test/loss"].is_number(), "{tested}");
    assert_eq!(dir.lines("runs/latest/metrics.jsonl").len(), lines.len());
    let record = dir.json("runs/latest/run.json");
    assert_eq!((weights(&dir), &record["status"]), (before, &Value::from("completed")));
    dir.run(&["resume", "latest"]).succeeded();
    assert_eq!(dir.json("runs/latest/run.json")["parts"], record["parts"], "now it is finished");
}

#[test]
fn a_run_killed_in_its_test_without_checkpoints_tests_its_final_weights() {
    let dir = trained();
    let (lines, before) = (dir.lines("runs/latest/metrics.jsonl"), dir.json("runs/latest/run.json"));
    for command in [&["resume", "latest"][..], &["train", "c.toml", "--resume", "auto"]] {
        untested(&dir);
        // Simulates that only half of the test's output was written.
        let log = dir.read("runs/latest/metrics.jsonl");
        dir.write("runs/latest/metrics.jsonl", format!("{log}{}\n{{\"st", lines.last().expect("a line")));
        let _ = fs::remove_dir_all(latest(&dir).join("checkpoints"));
        dir.run(&["resume", "latest", LONGER[0], LONGER[1]]).refused(&["no whole checkpoint", "--init-from"]);
        let said = dir.run(&[command, &["--no-test"]].concat()).succeeded().stdout;
        assert!(
            said.contains("is completed after 3 epochs") && said.contains("test was interrupted"),
            "{said}"
        );
        let tested = document(dir.run(&[command, &["--json"]].concat()));
        assert_eq!(tested["metrics"]["test/loss"], before["metrics"]["test/loss"], "{tested}");
        assert_eq!(dir.lines("runs/latest/metrics.jsonl").len(), lines.len());
        let record = dir.json("runs/latest/run.json");
        for key in ["status", "steps", "epochs", "metrics", "samples"] {
            assert_eq!(record[key], before[key], "{key}");
        }
        assert_eq!(record["trained"], Value::Null);
        let said = dir.run(command).succeeded().stdout;
        assert!(said.contains("to train on, raise"), "{said}");
    }
    assert_eq!(runs(&dir), 1);
}

#[test]
fn a_resumed_test_uses_the_weights_and_the_data_of_the_run() {
    let dir = TestDir::new();
    let rows = |pixel: &str| {
        let rows: Vec<_> = (0..60).map(|row| format!("{},{}\n", [pixel; 16].join(","), row % 3)).collect();
        rows.concat()
    };
    dir.write("data.csv", rows("1"));
    // Later epochs are worse, so the best weights are not the final ones.
    let config = "task = \"digits\"\n[trainer]\nmax_epochs = 3\n[data]\npath = \"data.csv\"\n[optimizer]\nlr = 0.5\n\
                  [[hooks]]\nuse = \"checkpoint\"\nmonitor = \"val/loss\"\nsave_weights_only = true\n\
                  filename = \"epoch={epoch}\"\nsave_top_k = -1\nmode = \"MODE\"\n";
    let tested = |mode: &str| {
        dir.write("c.toml", config.replace("MODE", mode));
        let breaks = "[[hooks]]\nuse = \"exec\"\non = [\"on_test_start\"]\non_error = \"abort\"\ncommand = [\"false\"]\n";
        let all = document(dir.run(&["train", "c.toml", "--json"]));
        dir.write("c.toml", config.replace("MODE", mode) + breaks);
        assert_eq!(dir.run(&["train", "c.toml"]).code, 1);
        let record = dir.json("runs/latest/run.json");
        let weights = record["weights_to_test"].as_str().unwrap_or_default().to_owned();
        assert!(weights.starts_with("checkpoints/epoch="), "{record}");
        dir.write("data.csv", rows("2"));
        let refused = dir.run(&["resume", "latest"]);
        assert_eq!(refused.code, 1, "{}", refused.stderr);
        assert!(
            refused.stderr.contains("the data differs from that of the run:\n  test/"),
            "{}",
            refused.stderr
        );
        dir.write("data.csv", rows("1"));
        let again = document(dir.run(&["resume", "latest", "--json"]));
        assert_eq!(again["metrics"]["test/loss"], all["metrics"]["test/loss"], "{again}");
        (weights, again["metrics"]["test/loss"].clone())
    };
    assert_ne!(tested("min"), tested("max"));
}

#[test]
fn a_test_that_cannot_start_is_a_failure_and_a_resume_repeats_it() {
    let dir = TestDir::new();
    let monitored = CONFIG.replace("save_top_k = -1", "monitor = \"val/loss\"");
    let breaks = "[[hooks]]\nuse = \"exec\"\non = [\"on_train_end\"]\ncommand = [\"mv\", \"runs/latest/checkpoints\", \"away\"]\n";
    dir.write("c.toml", format!("{monitored}\n{breaks}"));
    let ran = dir.run(&["train", "c.toml"]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("cannot test the best weights"), "{}", ran.stderr);
    assert!(ran.stderr.contains("tenter resume"), "{}", ran.stderr);
    let record = dir.json("runs/latest/run.json");
    assert_eq!((&record["status"], &record["trained"]["status"]), (&"failed".into(), &"completed".into()));
    let _ = fs::remove_dir_all(latest(&dir).join("checkpoints"));
    fs::rename(dir.path().join("away"), latest(&dir).join("checkpoints")).expect("it was moved");
    dir.write("c.toml", monitored);
    dir.run(&["train", "c.toml", "--resume", "auto", "--accept-hook-changes"]).succeeded();
    let record = dir.json("runs/latest/run.json");
    assert_eq!((&record["status"], &record["trained"]), (&"completed".into(), &Value::Null));
    assert!(record["metrics"]["test/loss"].is_number(), "{record}");
}

#[test]
fn a_checkpoint_with_weights_only_cannot_be_resumed() {
    let dir = TestDir::new();
    dir.write("c.toml", format!("{CONFIG}save_weights_only = true\n"));
    dir.run(&["train", "c.toml", "--quiet"]).succeeded();
    let checkpoint = "runs/latest/checkpoints/epoch=2-step=24";
    dir.run(&["train", "c.toml", "--resume", checkpoint]).refused(&["has weights only", "--init-from"]);
}

#[test]
fn a_checkpoint_outside_of_a_run_starts_a_new_run_that_records_it() {
    let dir = trained();
    let kept = dir.path().join("kept");
    fs::rename(latest(&dir).join("checkpoints/epoch=1-step=16"), &kept).expect("it is moved");
    dir.run(&["resume", "./kept"]).refused(&["is not in a run directory", "train CONFIG --resume ./kept"]);
    let before = weights(&dir);
    let ran = dir.run(&["train", "c.toml", "--resume", "kept"]).succeeded();
    assert!(ran.stderr.contains("/kept: 2 epochs, 16 steps done\n"), "{}", ran.stderr);
    assert_eq!((runs(&dir), weights(&dir)), (2, before));
    let from = dir.json("runs/latest/run.json")["resumed_from"].clone();
    assert_eq!(from.as_str().map(Path::new), Some(&*kept.canonicalize().expect("it is there")));
}

#[test]
fn a_checkpoint_within_a_run_resumes_that_run() {
    let dir = trained();
    let before = weights(&dir);
    dir.run(&["resume", "runs/latest/checkpoints/epoch=0-step=8", "--quiet"]).succeeded();
    assert_eq!((runs(&dir), weights(&dir)), (1, before));
    assert_eq!(dir.json("runs/latest/run.json")["parts"].as_array().map(Vec::len), Some(2));
}

#[test]
fn a_run_in_use_is_refused_with_its_holder() {
    let dir = TestDir::new();
    let run = RunningProgram::train(&dir, &[]);
    let who = format!("in use by process {} ", run.id());
    dir.run(&["resume", "latest"]).refused(&[&who, "tenter"]);
    run.signal("INT");
    assert_eq!(run.ended().0, Some(130));
    dir.run(&["resume", "latest", "--set", "trainer.max_epochs=1", "--quiet"]).succeeded();
}

#[test]
fn a_resume_that_is_impossible_says_why() {
    let dir = trained();
    dir.run(&["resume", "nobody"]).refused(&["no run is called `nobody`"]);
    dir.run(&["resume"]).refused(&["<RUN>"]);
    dir.run(&["train", "c.toml", "--force"]).refused(&["--resume"]);
    dir.run(&["train", "c.toml", "--resume", "auto", "--init-from", "runs/latest"])
        .refused(&["cannot be used with"]);
    fs::remove_file(latest(&dir).join("config.toml")).expect("it was there");
    dir.run(&["resume", "latest"]).refused(&["config.toml", "train CONFIG --resume latest"]);
}

#[test]
fn a_failed_run_prints_the_command_to_resume_it() {
    let dir = TestDir::new();
    let hook = "[[hooks]]\nuse = \"nan_guard\"\naction = \"raise\"\n";
    dir.write("c.toml", format!("{CONFIG}{hook}").replace("max_epochs = 3", "max_epochs = 300"));
    let ran = dir.run(&["train", "c.toml", "--set", "optimizer.lr=100.0"]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    let id = dir.json("runs/latest/run.json")["id"].as_str().expect("an id").to_owned();
    assert!(ran.stderr.contains(&format!("`tenter resume {id}`")), "{}", ran.stderr);
}

#[test]
fn data_with_other_bytes_of_the_same_length_is_refused() {
    let dir = TestDir::new();
    let text = "All work and no play makes Jack a dull boy. ".repeat(20);
    dir.write("text.txt", &text);
    let small = [
        "data.path=text.txt",
        "model.context=8",
        "model.layers=1",
        "model.width=8",
        "model.heads=1",
        "trainer.max_epochs=1",
        "trainer.limit_train_batches=2",
        "trainer.limit_val_batches=1",
    ];
    let small: Vec<_> = small.iter().flat_map(|set| ["--set", set]).collect();
    let trained = [&["train", "--set", "task=text", "--no-test", "--quiet"], &small[..]].concat();
    dir.run(&trained).succeeded();
    let first = latest(&dir);
    dir.write("text.txt", text.replacen("Jack", "Jill", 1));
    let longer = ["--no-test", "--quiet", "--set", "trainer.max_epochs=2"];
    let refused = dir.run(&[&["resume", "latest"], &longer[..]].concat());
    assert!(!refused.stderr.contains("other settings"), "{}", refused.stderr);
    refused.refused(&["the data differs from that of the checkpoint:\n  train/train: ", "`--force`"]);
    dir.run(&[&["resume", "latest", "--force"], &longer[..]].concat()).succeeded();
    dir.run(&trained).succeeded();
    let compared =
        dir.run(&["compare", first.file_name().unwrap().to_str().unwrap(), "latest"]).succeeded().stdout;
    assert!(!compared.contains("data.train/train"), "both ended with the new text: {compared}");
    dir.write("text.txt", &text);
    dir.run(&trained).succeeded();
    let compared =
        dir.run(&["compare", first.file_name().unwrap().to_str().unwrap(), "latest"]).succeeded().stdout;
    assert!(compared.contains("data.train/train") && compared.contains("data.val/val"), "{compared}");
    let shown = dir.run(&["show", "latest"]).succeeded().stdout;
    assert!(shown.contains("train/train: blake3:") && shown.contains("processor"), "{shown}");
}
