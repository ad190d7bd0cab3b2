//! `tenter resume` and `tenter train --resume`.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::signals::UnderWay;
use crate::tenter::{Place, Ran};

const CONFIG: &str =
    "task = \"toy\"\n[trainer]\nmax_epochs = 3\n[[hooks]]\nuse = \"checkpoint\"\nsave_top_k = -1\n";

/// A place with a run of three epochs and as many checkpoints.
fn trained() -> Place {
    let place = Place::new();
    place.write("c.toml", CONFIG);
    place.run(&["train", "c.toml", "--quiet"]).succeeded();
    place
}

fn runs(place: &Place) -> usize {
    let entries = fs::read_dir(place.path().join("runs")).expect("runs").flatten();
    entries.filter(|entry| !entry.path().is_symlink()).count()
}

fn latest(place: &Place) -> PathBuf {
    place.path().join("runs/latest").canonicalize().expect("a run")
}

fn weights(place: &Place) -> Vec<u8> {
    fs::read(place.path().join("runs/latest/weights.safetensors")).expect("weights")
}

/// Cuts a byte off the weights of a checkpoint.
fn damage(checkpoint: &Path) {
    let file = checkpoint.join("weights.safetensors");
    let bytes = fs::read(&file).expect("weights");
    fs::write(&file, &bytes[..bytes.len() - 1]).expect("it is written");
}

fn document(ran: Ran) -> Value {
    serde_json::from_str(&ran.succeeded().stdout).expect("one line of JSON")
}

/// Goes on for an epoch more.
const LONGER: [&str; 2] = ["--set", "trainer.max_epochs=4"];

#[test]
fn an_interrupted_run_goes_on_to_the_same_bits_in_its_directory() {
    let few = [
        "--set",
        "trainer.max_epochs=20",
        "--set",
        "trainer.limit_train_batches=2",
        "--set",
        "trainer.limit_val_batches=1",
        "--no-test",
    ];
    let untouched = Place::new();
    untouched.run(&[&["train", "--quiet"], &few[..]].concat()).succeeded();
    let place = Place::new();
    let mut run = UnderWay::start(&place, &[&["train"], &few[..]].concat());
    run.wait_for("epoch 1/");
    run.signal("TERM");
    assert_eq!(run.ended().0, Some(143));
    let record = place.json("runs/latest/run.json");
    assert_eq!(record["status"], "interrupted", "{record}");
    let ran = document(place.run(&["resume", "latest", "--no-test", "--json"]));
    assert_eq!(ran["run"], record["id"], "{ran}");
    assert!(ran["resumed_from"].as_str().is_some_and(|from| from.contains("emergency-")), "{ran}");
    assert_eq!(weights(&place), weights(&untouched));
    assert_eq!((runs(&place), place.json("runs/latest/run.json")["status"].as_str()), (1, Some("completed")));
    let without_time = |place: &Place| -> Vec<Value> {
        let mut lines = place.lines("runs/latest/metrics.jsonl");
        for line in &mut lines {
            line["time"] = Value::Null;
        }
        lines
    };
    assert_eq!(without_time(&place), without_time(&untouched), "no gaps, no doubles");
}

#[test]
fn a_finished_run_says_so_and_goes_on_when_it_may_last_longer() {
    let place = trained();
    let said = place.run(&["resume", "latest"]).succeeded().stdout;
    assert!(
        said.contains("is completed after 3 epochs and 24 steps; to train on, raise `max_epochs`"),
        "{said}"
    );
    for command in [&["resume", "latest"][..], &["train", "c.toml", "--resume", "auto"]] {
        // As of a process that was killed when only this was left to be done.
        place.write("runs/latest/lock", "{}");
        let done = document(place.run(&[command, &["--json"]].concat()));
        assert_eq!((&done["finished"], &done["steps"]), (&Value::Bool(true), &Value::from(24)), "{done}");
        assert_eq!(done["run"], place.json("runs/latest/run.json")["id"]);
        assert!(!place.path().join("runs/latest/lock").exists(), "nobody else would remove it");
    }
    let ran = place.run(&[&["resume", "latest", "--json"], &LONGER[..]].concat());
    assert!(!ran.stderr.contains("hooks.checkpoint"), "only what differs is told: {}", ran.stderr);
    let ran = document(ran);
    assert_eq!((&ran["epochs"], &ran["steps"]), (&Value::from(4), &Value::from(32)), "{ran}");
    assert!(ran["metrics"]["test/loss"].is_number(), "it is tested as ever: {ran}");
    assert_eq!(runs(&place), 1);
}

#[test]
fn auto_begins_where_nothing_fits_and_says_which_it_takes() {
    let place = Place::new();
    place.write("c.toml", CONFIG);
    let auto = |more: &[&str]| place.run(&[&["train", "c.toml", "--resume", "auto"], more].concat());
    let first = auto(&[]).succeeded();
    assert!(
        first.stderr.contains("no run in runs fits this configuration: a new one begins"),
        "{}",
        first.stderr
    );
    auto(&["--set", "optimizer.lr=0.2"]).succeeded();
    assert_eq!(runs(&place), 2, "another learning rate is another run");
    let id = place.json("runs/latest/run.json")["id"].clone();
    let on = auto(&[&LONGER[..], &["--set", "optimizer.lr=0.2"]].concat()).succeeded();
    assert!(
        on.stderr.contains(&format!("run {}\n  resuming from checkpoints/", id.as_str().expect("an id"))),
        "{}",
        on.stderr
    );
    assert_eq!(runs(&place), 2);
}

#[test]
fn harmful_changes_are_refused_with_the_list_and_forced() {
    let place = trained();
    let set = ["--set", "optimizer.lr=0.5", "--set", "trainer.seed=7"];
    let before = fs::read(latest(&place).join("run.json")).expect("a record");
    let more = [&LONGER[..], &set].concat();
    let changed = |more: &[&str]| place.run(&[&["resume", "latest"], more].concat());
    changed(&more).refused(&["optimizer.lr: 0.1 -> 0.5", "trainer.seed: 0 -> 7", "--force"]);
    place.run(&[&["train", "c.toml", "--resume", "latest"], &more[..]].concat()).refused(&["optimizer.lr"]);
    assert_eq!(fs::read(latest(&place).join("run.json")).expect("a record"), before, "nothing was touched");
    changed(&[&more[..], &["--force"]].concat()).succeeded();
}

#[test]
fn a_hook_on_one_side_only_is_refused_and_accepted() {
    let place = trained();
    place.write("more.toml", format!("{CONFIG}[[hooks]]\nuse = \"timer\"\n"));
    let resume = ["train", "more.toml", "--resume", "latest", "--set", "trainer.max_epochs=4"];
    place.run(&resume).refused(&["`timer` is registered and not in the checkpoint", "--accept-hook-changes"]);
    place.run(&[&resume[..], &["--accept-hook-changes"]].concat()).succeeded();
    place
        .run(&["train", "c.toml", "--resume", "latest", "--set", "trainer.max_epochs=5"])
        .refused(&["`timer` is in the checkpoint and not registered"]);
}

#[test]
fn a_damaged_checkpoint_is_named_and_the_one_before_it_taken() {
    let place = trained();
    let run = latest(&place);
    damage(&run.join("checkpoints/epoch=2-step=24"));
    let named = "runs/latest/checkpoints/epoch=2-step=24";
    place.run(&["resume", named]).refused(&[
        "epoch=2-step=24/weights.safetensors is damaged",
        "the newest whole one is",
        "epoch=1-step=16",
    ]);
    let ran = place.run(&[&["resume", "latest"], &LONGER[..]].concat()).succeeded();
    assert!(
        ran.stderr.contains("skipped: checkpoint ") && ran.stderr.contains("epoch=2-step=24"),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("resuming from checkpoints/epoch=1-step=16: "), "{}", ran.stderr);
    assert_eq!(place.json("runs/latest/run.json")["steps"], 32);
}

#[test]
fn a_resume_says_how_much_is_trained_again_and_save_last_keeps_it_at_nothing() {
    // With this mode the first epoch is the best and stays so.
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
        let place = Place::new();
        place.write("c.toml", config(last));
        place.run(&["train", "c.toml", "--quiet"]).succeeded();
        let resumed = place.run(&["resume", "latest", "--set", "trainer.max_epochs=6"]).succeeded();
        assert!(resumed.stderr.contains(says), "{last}: {}", resumed.stderr);
    }
}

#[test]
fn what_tenter_configures_keeps_the_latest_state() {
    let place = Place::new();
    let printed = |task: &str| place.run(&["train", "--print-config", "--set", task]).succeeded().stdout;
    let template = include_str!("../../../tenterhook-app/template/train.toml").to_owned();
    for config in [printed("task=digits"), printed("task=text"), template] {
        assert!(config.lines().any(|line| line.starts_with("save_last = \"link\"")), "{config}");
    }
}

#[test]
fn without_a_whole_checkpoint_it_begins_from_the_start_in_the_same_directory() {
    let place = trained();
    let before = weights(&place);
    for checkpoint in ["epoch=0-step=8", "epoch=1-step=16", "epoch=2-step=24"] {
        damage(&latest(&place).join("checkpoints").join(checkpoint));
    }
    // It did not end: it was killed while it trained.
    let mut record = place.json("runs/latest/run.json");
    record["status"] = "running".into();
    place.write("runs/latest/run.json", record.to_string());
    let ran = place.run(&["resume", "latest"]).succeeded();
    assert!(
        ran.stderr.contains("no whole checkpoint to resume from: training begins from the start"),
        "{}",
        ran.stderr
    );
    assert_eq!((runs(&place), weights(&place)), (1, before));
    let steps: Vec<_> =
        place.lines("runs/latest/metrics.jsonl").iter().map(|line| line["step"].as_u64()).collect();
    assert!(steps.is_sorted(), "{steps:?}");
}

/// A run is not finished while its test is not: `run.json` as it is until then.
fn untested(place: &Place) {
    let lines = place.lines("runs/latest/metrics.jsonl");
    let trained = lines.iter().filter(|line| line["stage"] != "test").map(|line| format!("{line}\n"));
    place.write("runs/latest/metrics.jsonl", trained.collect::<String>());
    let mut record = place.json("runs/latest/run.json");
    assert_eq!(record["trained"], Value::Null, "it is tested");
    (record["status"], record["trained"]) = ("running".into(), json!({ "status": "completed" }));
    record["weights_to_test"] = "weights.safetensors".into();
    place.write("runs/latest/run.json", record.to_string());
}

#[test]
fn a_run_that_was_killed_in_its_test_is_tested_when_it_goes_on() {
    let place = trained();
    let (lines, before) = (place.lines("runs/latest/metrics.jsonl"), weights(&place));
    untested(&place);
    let shown = place.run(&["show", "latest"]).succeeded().stdout;
    assert!(shown.contains("killed in the test after its training"), "{shown}");
    let tested = document(place.run(&["resume", "latest", "--json"]));
    assert!(tested["metrics"]["test/loss"].is_number(), "{tested}");
    assert_eq!(place.lines("runs/latest/metrics.jsonl").len(), lines.len());
    let record = place.json("runs/latest/run.json");
    assert_eq!((weights(&place), &record["status"]), (before, &Value::from("completed")));
    place.run(&["resume", "latest"]).succeeded();
    assert_eq!(place.json("runs/latest/run.json")["parts"], record["parts"], "now it is finished");
}

#[test]
fn a_run_that_was_killed_in_its_test_and_has_no_checkpoint_has_its_final_weights_tested() {
    let place = trained();
    let (lines, before) = (place.lines("runs/latest/metrics.jsonl"), place.json("runs/latest/run.json"));
    for command in [&["resume", "latest"][..], &["train", "c.toml", "--resume", "auto"]] {
        untested(&place);
        // Half of what the test logged was written.
        let log = place.read("runs/latest/metrics.jsonl");
        place.write("runs/latest/metrics.jsonl", format!("{log}{}\n{{\"st", lines.last().expect("a line")));
        let _ = fs::remove_dir_all(latest(&place).join("checkpoints"));
        place
            .run(&["resume", "latest", LONGER[0], LONGER[1]])
            .refused(&["no whole checkpoint", "--init-from"]);
        let said = place.run(&[command, &["--no-test"]].concat()).succeeded().stdout;
        assert!(
            said.contains("is completed after 3 epochs") && said.contains("test was interrupted"),
            "{said}"
        );
        let tested = document(place.run(&[command, &["--json"]].concat()));
        assert_eq!(tested["metrics"]["test/loss"], before["metrics"]["test/loss"], "{tested}");
        assert_eq!(place.lines("runs/latest/metrics.jsonl").len(), lines.len());
        let record = place.json("runs/latest/run.json");
        for key in ["status", "steps", "epochs", "metrics", "samples"] {
            assert_eq!(record[key], before[key], "{key}");
        }
        assert_eq!(record["trained"], Value::Null);
        let said = place.run(command).succeeded().stdout;
        assert!(said.contains("to train on, raise"), "{said}");
    }
    assert_eq!(runs(&place), 1);
}

#[test]
fn a_resumed_test_uses_the_weights_and_the_data_of_the_run() {
    let place = Place::new();
    let rows = |pixel: &str| {
        let rows: Vec<_> = (0..60).map(|row| format!("{},{}\n", [pixel; 16].join(","), row % 3)).collect();
        rows.concat()
    };
    place.write("data.csv", rows("1"));
    // Later epochs are worse, so that the best weights are not the final ones.
    let config = "task = \"digits\"\n[trainer]\nmax_epochs = 3\n[data]\npath = \"data.csv\"\n[optimizer]\nlr = 0.5\n\
                  [[hooks]]\nuse = \"checkpoint\"\nmonitor = \"val/loss\"\nsave_weights_only = true\n\
                  filename = \"epoch={epoch}\"\nsave_top_k = -1\nmode = \"MODE\"\n";
    let tested = |mode: &str| {
        place.write("c.toml", config.replace("MODE", mode));
        let breaks = "[[hooks]]\nuse = \"exec\"\non = [\"on_test_start\"]\non_error = \"abort\"\ncommand = [\"false\"]\n";
        let all = document(place.run(&["train", "c.toml", "--json"]));
        place.write("c.toml", config.replace("MODE", mode) + breaks);
        assert_eq!(place.run(&["train", "c.toml"]).code, 1);
        let record = place.json("runs/latest/run.json");
        let weights = record["weights_to_test"].as_str().unwrap_or_default().to_owned();
        assert!(weights.starts_with("checkpoints/epoch="), "{record}");
        place.write("data.csv", rows("2"));
        let refused = place.run(&["resume", "latest"]);
        assert_eq!(refused.code, 1, "{}", refused.stderr);
        assert!(refused.stderr.contains("the data is not that of the run:\n  test/"), "{}", refused.stderr);
        place.write("data.csv", rows("1"));
        let again = document(place.run(&["resume", "latest", "--json"]));
        assert_eq!(again["metrics"]["test/loss"], all["metrics"]["test/loss"], "{again}");
        (weights, again["metrics"]["test/loss"].clone())
    };
    assert_ne!(tested("min"), tested("max"));
}

#[test]
fn a_test_that_cannot_begin_is_a_failure_and_a_resume_makes_up_for_it() {
    let place = Place::new();
    let monitored = CONFIG.replace("save_top_k = -1", "monitor = \"val/loss\"");
    let breaks = "[[hooks]]\nuse = \"exec\"\non = [\"on_train_end\"]\ncommand = [\"mv\", \"runs/latest/checkpoints\", \"away\"]\n";
    place.write("c.toml", format!("{monitored}\n{breaks}"));
    let ran = place.run(&["train", "c.toml"]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("cannot test the best weights"), "{}", ran.stderr);
    assert!(ran.stderr.contains("tenter resume"), "{}", ran.stderr);
    let record = place.json("runs/latest/run.json");
    assert_eq!((&record["status"], &record["trained"]["status"]), (&"failed".into(), &"completed".into()));
    let _ = fs::remove_dir_all(latest(&place).join("checkpoints"));
    fs::rename(place.path().join("away"), latest(&place).join("checkpoints")).expect("it was moved");
    place.write("c.toml", monitored);
    place.run(&["train", "c.toml", "--resume", "auto", "--accept-hook-changes"]).succeeded();
    let record = place.json("runs/latest/run.json");
    assert_eq!((&record["status"], &record["trained"]), (&"completed".into(), &Value::Null));
    assert!(record["metrics"]["test/loss"].is_number(), "{record}");
}

#[test]
fn weights_alone_are_refused_with_what_they_are_good_for() {
    let place = Place::new();
    place.write("c.toml", format!("{CONFIG}save_weights_only = true\n"));
    place.run(&["train", "c.toml", "--quiet"]).succeeded();
    let checkpoint = "runs/latest/checkpoints/epoch=2-step=24";
    place.run(&["train", "c.toml", "--resume", checkpoint]).refused(&["holds weights alone", "--init-from"]);
}

#[test]
fn a_checkpoint_elsewhere_begins_a_run_that_says_where_it_came_from() {
    let place = trained();
    let kept = place.path().join("kept");
    fs::rename(latest(&place).join("checkpoints/epoch=1-step=16"), &kept).expect("it is moved");
    place.run(&["resume", "./kept"]).refused(&["lies in no run's directory", "train CONFIG --resume ./kept"]);
    let before = weights(&place);
    let ran = place.run(&["train", "c.toml", "--resume", "kept"]).succeeded();
    assert!(ran.stderr.contains("/kept: 2 epochs, 16 steps done\n"), "{}", ran.stderr);
    assert_eq!((runs(&place), weights(&place)), (2, before));
    let from = place.json("runs/latest/run.json")["resumed_from"].clone();
    assert_eq!(from.as_str().map(Path::new), Some(&*kept.canonicalize().expect("it is there")));
}

#[test]
fn a_checkpoint_within_a_run_goes_on_there() {
    let place = trained();
    let before = weights(&place);
    place.run(&["resume", "runs/latest/checkpoints/epoch=0-step=8", "--quiet"]).succeeded();
    assert_eq!((runs(&place), weights(&place)), (1, before));
    assert_eq!(place.json("runs/latest/run.json")["parts"].as_array().map(Vec::len), Some(2));
}

#[test]
fn a_run_that_somebody_writes_to_is_refused_with_who_it_is() {
    let place = Place::new();
    let run = UnderWay::train(&place, &[]);
    let who = format!("in use by process {} ", run.id());
    place.run(&["resume", "latest"]).refused(&[&who, "tenter"]);
    run.signal("INT");
    assert_eq!(run.ended().0, Some(130));
    place.run(&["resume", "latest", "--set", "trainer.max_epochs=1", "--quiet"]).succeeded();
}

#[test]
fn what_cannot_be_resumed_says_why() {
    let place = trained();
    place.run(&["resume", "nobody"]).refused(&["no run is called `nobody`"]);
    place.run(&["resume"]).refused(&["<RUN>"]);
    place.run(&["train", "c.toml", "--force"]).refused(&["--resume"]);
    place
        .run(&["train", "c.toml", "--resume", "auto", "--init-from", "runs/latest"])
        .refused(&["cannot be used with"]);
    fs::remove_file(latest(&place).join("config.toml")).expect("it was there");
    place.run(&["resume", "latest"]).refused(&["config.toml", "train CONFIG --resume latest"]);
}

#[test]
fn a_failed_run_says_how_to_go_on() {
    let place = Place::new();
    let hook = "[[hooks]]\nuse = \"nan_guard\"\naction = \"raise\"\n";
    place.write("c.toml", format!("{CONFIG}{hook}").replace("max_epochs = 3", "max_epochs = 300"));
    let ran = place.run(&["train", "c.toml", "--set", "optimizer.lr=100.0"]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    let id = place.json("runs/latest/run.json")["id"].as_str().expect("an id").to_owned();
    assert!(ran.stderr.contains(&format!("`tenter resume {id}`")), "{}", ran.stderr);
}

#[test]
fn a_text_of_other_bytes_and_the_same_length_is_refused() {
    let place = Place::new();
    let text = "All work and no play makes Jack a dull boy. ".repeat(20);
    place.write("text.txt", &text);
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
    place.run(&trained).succeeded();
    let first = latest(&place);
    place.write("text.txt", text.replacen("Jack", "Jill", 1));
    let longer = ["--no-test", "--quiet", "--set", "trainer.max_epochs=2"];
    let refused = place.run(&[&["resume", "latest"], &longer[..]].concat());
    assert!(!refused.stderr.contains("other settings"), "{}", refused.stderr);
    refused.refused(&["the data is not that of the checkpoint:\n  train/train: ", "`--force`"]);
    place.run(&[&["resume", "latest", "--force"], &longer[..]].concat()).succeeded();
    place.run(&trained).succeeded();
    let compared =
        place.run(&["compare", first.file_name().unwrap().to_str().unwrap(), "latest"]).succeeded().stdout;
    assert!(!compared.contains("data.train/train"), "both ended with the new text: {compared}");
    place.write("text.txt", &text);
    place.run(&trained).succeeded();
    let compared =
        place.run(&["compare", first.file_name().unwrap().to_str().unwrap(), "latest"]).succeeded().stdout;
    assert!(compared.contains("data.train/train") && compared.contains("data.val/val"), "{compared}");
    let shown = place.run(&["show", "latest"]).succeeded().stdout;
    assert!(shown.contains("train/train: blake3:") && shown.contains("processor"), "{shown}");
}
