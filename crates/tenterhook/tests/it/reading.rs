//! Reading complete, killed and damaged runs, and finding runs by name.

use std::path::{Path, PathBuf};

use serde_json::json;
use tenterhook::hooks::{Checkpoint, CheckpointOptions};
use tenterhook::run::reading::{Point, ReadError, RunFields, flatten_config, hook_names};
use tenterhook::run::{JournalEvent, Run, RunStatus, Runs};
use tenterhook::toy::Toy;
use tenterhook::{Decision, Operand, Settings, closure};

use crate::lab::{data, epochs};
use crate::run_directory::{latest, recorded};

/// A small training with a decision, a failing hook that is disabled, and checkpoints.
fn trained(root: &Path) -> PathBuf {
    let mut trainer = recorded(root, Settings { log_every_n_steps: 2, seed: 5, ..epochs(2) });
    trainer.add_hook(closure::on_step_end("slower", |_| Decision::scale_lr(0.5))).unwrap();
    let fails = closure::on_train_epoch_end("fails", |cx| assert!(cx.step == 0, "no \"luck\""));
    trainer.add_hook(fails).unwrap();
    trainer.add_hook(Checkpoint::new(CheckpointOptions::default()).unwrap()).unwrap();
    trainer.fit(&mut Toy::default(), &mut data(4, 1)).unwrap();
    latest(root)
}

/// A run directory with this name and start, and with these fields in `run.json`.
fn made(runs: &Path, name: &str, second: u32, more: &serde_json::Value) -> PathBuf {
    let mut record =
        json!({ "format": 1, "id": name, "created": format!("2026-01-01T00:00:{second:02}.000Z") });
    record.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    std::fs::create_dir_all(runs.join(name)).unwrap();
    std::fs::write(runs.join(name).join("run.json"), record.to_string()).unwrap();
    runs.join(name)
}

#[test]
fn a_run_reads_back_as_it_was_written() {
    let root = tempfile::tempdir().unwrap();
    let directory = trained(root.path());
    let run = Run::read(root.path().join("runs/latest")).unwrap();
    assert_eq!((&run.directory, run.name.as_str()), (&directory, run.record.id.as_str()));
    let text = std::fs::read_to_string(directory.join("run.json")).unwrap();
    let written: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(serde_json::to_value(&run.record).unwrap(), written, "nothing is lost");

    let curves = run.curves().unwrap();
    let steps = |name: &str| curves.by_name[name].iter().map(|point| point.step).collect::<Vec<_>>();
    assert_eq!((steps("train/loss"), steps("val/loss")), (vec![2, 4, 4, 6, 8, 8], vec![4, 8]));
    assert_eq!(curves.by_name["val/loss"][1].epoch, 1);
    assert_eq!(curves.by_name["val/loss"][1].value.to_bits(), run.record.metrics["val/loss"].to_bits());

    let event_log = run.event_log().unwrap();
    let text = std::fs::read_to_string(directory.join("events.jsonl")).unwrap();
    assert_eq!((event_log.entries.len(), event_log.unreadable), (text.lines().count(), 0));
    for (entry, line) in event_log.entries.iter().zip(text.lines()) {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(serde_json::to_value(entry).unwrap(), line);
    }
    let has = |what: fn(&JournalEvent) -> bool| event_log.entries.iter().any(|entry| what(&entry.what));
    assert!(has(|what| matches!(what, JournalEvent::Failure { panicked: true, .. })));
    assert!(
        has(|what| matches!(what, JournalEvent::Toggle { .. }))
            && has(|what| matches!(what, JournalEvent::End { .. }))
    );
    assert_eq!(run.checkpoints().unwrap(), [Path::new("checkpoints/epoch=1-step=8")]);
    assert_eq!(run.config().unwrap()["task"].as_str(), Some("toy"));
}

#[test]
fn any_prefix_of_a_runs_files_is_a_valid_run() {
    let root = tempfile::tempdir().unwrap();
    let directory = trained(root.path());
    let metrics = std::fs::read(directory.join("metrics.jsonl")).unwrap();
    let events = std::fs::read(directory.join("events.jsonl")).unwrap();
    made(
        &root.path().join("runs"),
        directory.file_name().unwrap().to_str().unwrap(),
        1,
        &json!({ "status": "running" }),
    );
    for length in (0..metrics.len()).step_by(5).chain([metrics.len()]) {
        std::fs::write(directory.join("metrics.jsonl"), &metrics[..length]).unwrap();
        std::fs::write(directory.join("events.jsonl"), &events[..length.min(events.len())]).unwrap();
        let run = Run::read(&directory).unwrap();
        let (curves, event_log) = (run.curves().unwrap(), run.event_log().unwrap());
        assert_eq!((curves.unreadable, event_log.unreadable), (0, 0), "cut at {length}");
        let last = curves.by_name.values().flatten().map(|point| point.step).max();
        assert_eq!(run.record.steps, last.unwrap_or(0), "it stands where its metrics say");
    }
    let run = Run::read(&directory).unwrap();
    assert_eq!((run.record.status, run.record.epochs), (RunStatus::Killed, 2), "both epochs are done");
    assert!(run.record.metrics.contains_key("val/loss") && run.record.seconds.is_some());
    for file in ["metrics.jsonl", "events.jsonl", "config.toml"] {
        std::fs::remove_file(directory.join(file)).unwrap();
    }
    let run = Run::read(&directory).unwrap();
    assert!(run.curves().unwrap().by_name.is_empty() && run.config().unwrap().is_empty());
}

#[test]
fn non_finite_values_are_read_back_and_a_broken_line_is_counted() {
    let root = tempfile::tempdir().unwrap();
    let directory = made(root.path(), "r", 1, &json!({ "metrics": { "x": "nan" } }));
    let lines = "{\"step\":1,\"metrics\":{\"x\":\"nan\",\"y\":2}}\nnonsense\n\n{\"step\":2,\"new\":0,\"metrics\":{\"x\":\"-inf\"}}";
    std::fs::write(directory.join("metrics.jsonl"), lines).unwrap();
    std::fs::write(
        directory.join("events.jsonl"),
        "{\"step\":1,\"epoch\":0,\"time\":0,\"event\":\"news\",\"x\":1}\n",
    )
    .unwrap();
    let run = Run::read(&directory).unwrap();
    assert!(run.record.metrics["x"].is_nan());
    let curves = run.curves().unwrap();
    let at = |step, value| Point { step, epoch: 0, time: 0.0, value };
    assert_eq!(curves.by_name["y"], [at(1, 2.0)]);
    assert!(curves.by_name["x"][0].value.is_nan());
    assert_eq!((curves.by_name["x"][1], curves.unreadable), (at(2, f64::NEG_INFINITY), 1));
    assert_eq!(run.event_log().unwrap().entries[0].what, JournalEvent::Unknown);
}

#[test]
fn missing_and_added_fields_are_tolerated_and_a_newer_format_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let run = Run::read(made(root.path(), "r", 1, &json!({ "added": [1], "status": "paused" }))).unwrap();
    assert_eq!((run.record.status, run.record.steps), (RunStatus::Unknown, 0));
    let run = Run::read(made(root.path(), "r", 1, &json!({ "status": "stopped", "by": "h" }))).unwrap();
    assert_eq!(run.record.status, RunStatus::Stopped { by: "h".into(), reason: String::new() });
    let newer = Run::read(made(root.path(), "r", 1, &json!({ "format": 2, "steps": "many" }))).unwrap_err();
    assert!(newer.to_string().contains("of format 2") && newer.to_string().contains("newer"), "{newer}");
    let damaged = Run::read(made(root.path(), "r", 1, &json!({ "steps": "many" }))).unwrap_err().to_string();
    assert!(damaged.contains("r/run.json is damaged") && damaged.contains("many"), "{damaged}");
    std::fs::write(root.path().join("r/config.toml"), "a = 1\nb = \n").unwrap();
    made(root.path(), "r", 1, &json!({}));
    let damaged = Run::read(root.path().join("r")).unwrap().config().unwrap_err().to_string();
    assert!(damaged.contains("config.toml is damaged") && damaged.contains("line 2"), "{damaged}");
}

#[test]
fn a_directory_lists_its_runs_oldest_first_and_damaged_ones_separately() {
    let root = tempfile::tempdir().unwrap();
    for (name, second) in [("b", 1), ("a", 2), ("c", 0)] {
        made(root.path(), name, second, &json!({}));
    }
    std::fs::create_dir(root.path().join("no-run")).unwrap();
    std::fs::create_dir(root.path().join("hurt")).unwrap();
    std::fs::write(root.path().join("hurt/run.json"), "{").unwrap();
    made(root.path(), ".d.unfinished", 9, &json!({}));
    std::os::unix::fs::symlink("a", root.path().join("latest")).unwrap();
    let runs = Runs::below(root.path()).unwrap();
    let names: Vec<_> = runs.list().iter().map(|run| run.name.as_str()).collect();
    assert_eq!(names, ["c", "b", "a"]);
    let damaged: Vec<_> = runs.damaged().map(ToString::to_string).collect();
    assert!(damaged.len() == 1 && damaged[0].contains("hurt/run.json is damaged"), "{damaged:?}");
    assert!(runs.find("hurt").unwrap_err().to_string().contains("damaged"));
    let none = Runs::below(root.path().join("none")).unwrap_err();
    assert!(matches!(none, ReadError::NoDirectory { .. }), "{none}");
}

#[test]
fn a_run_is_named_by_id_part_of_an_id_path_or_age() {
    let root = tempfile::tempdir().unwrap();
    for (name, second) in [("0198-aa-00000001", 1), ("0198-bb-00000001", 2), ("0198-bb-00000003", 3)] {
        made(root.path(), name, second, &json!({}));
    }
    made(root.path(), "baseline", 0, &json!({ "id": "0198-cc-00000009" }));
    let runs = Runs::below(root.path()).unwrap();
    for (wanted, found) in [
        ("0198-aa-00000001", "0198-aa-00000001"),
        ("0198-aa", "0198-aa-00000001"),
        ("3", "0198-bb-00000003"),
        ("base", "baseline"),
        ("00000009", "baseline"),
        ("latest", "0198-bb-00000003"),
        ("latest~0", "0198-bb-00000003"),
        ("latest~3", "baseline"),
    ] {
        assert_eq!(runs.find(wanted).unwrap().name, found, "{wanted}");
    }
    let ambiguous = runs.find("0198-bb").unwrap_err().to_string();
    assert!(ambiguous.contains("any of: 0198-bb-00000003, 0198-bb-00000001"), "{ambiguous}");
    for unknown in ["zz", "", "latest~4", "latest~x"] {
        let error = runs.find(unknown).unwrap_err().to_string();
        assert!(error.contains(&format!("`{unknown}`")) && error.contains("baseline"), "{error}");
    }
    let short: Vec<_> = runs.list().iter().map(|run| runs.short(run)).collect();
    assert_eq!(short, ["baseline", "a-00000001", "b-00000001", "00000003"]);

    std::os::unix::fs::symlink("0198-bb-00000001", root.path().join("latest")).unwrap();
    let named = |wanted: &str| Runs::resolve(root.path(), wanted).unwrap().name;
    assert_eq!(
        (named("latest").as_str(), named("latest~1").as_str()),
        ("0198-bb-00000001", "0198-aa-00000001")
    );
    assert_eq!(named(&root.path().join("baseline").display().to_string()), "baseline");
    let no_run = Runs::resolve(root.path(), "/").unwrap_err().to_string();
    assert!(no_run.contains("is not a tenterhook run"), "{no_run}");
}

#[test]
fn a_damaged_target_of_latest_is_not_replaced_by_another_run() {
    let root = tempfile::tempdir().unwrap();
    made(root.path(), "good", 1, &json!({}));
    made(root.path(), "bad-run-0001", 2, &json!({}));
    let point = |to: &str| {
        let _ = std::fs::remove_file(root.path().join("latest"));
        std::os::unix::fs::symlink(to, root.path().join("latest")).unwrap();
    };
    let told = |wanted: &str| Runs::resolve(root.path(), wanted).unwrap_err().to_string();
    let record = root.path().join("bad-run-0001/run.json");
    point("bad-run-0001");
    for (text, says) in [("{", "is damaged"), ("{\"format\":99}", "is of format 99")] {
        std::fs::write(&record, text).unwrap();
        for wanted in ["latest", "latest~1", "bad-run-0001", "bad", "0001"] {
            assert!(told(wanted).contains(says), "{wanted}: {}", told(wanted));
        }
        assert_eq!(Runs::resolve(root.path(), "good").unwrap().name, "good");
    }
    std::fs::remove_file(&record).unwrap();
    assert!(told("latest").contains("bad-run-0001 is not a tenterhook run"), "{}", told("latest"));
    std::fs::create_dir(&record).unwrap();
    assert!(told("bad").contains("cannot read"), "{}", told("bad"));
    assert_eq!(Runs::lost_latest(root.path(), "latest"), None);
    point("gone");
    let runs = Runs::below(root.path()).unwrap();
    assert_eq!(runs.find("latest").unwrap().name, "good");
    assert_eq!(Runs::lost_latest(root.path(), "latest~1"), Some(root.path().join("gone")));
    assert_eq!(Runs::lost_latest(root.path(), "good"), None);
}

#[test]
fn a_part_of_a_name_that_also_matches_a_damaged_run_is_ambiguous() {
    let root = tempfile::tempdir().unwrap();
    made(root.path(), "0198-1", 1, &json!({}));
    std::fs::write(made(root.path(), "0198-2", 2, &json!({})).join("run.json"), "{").unwrap();
    std::fs::write(made(root.path(), "0198", 2, &json!({})).join("run.json"), "{").unwrap();
    let runs = Runs::below(root.path()).unwrap();
    assert_eq!(runs.find("0198-1").unwrap().name, "0198-1");
    let told = |wanted: &str| runs.find(wanted).unwrap_err().to_string();
    assert!(told("0198-").contains("any of: 0198-1, 0198-2 (damaged)"), "{}", told("0198-"));
    assert!(told("0198").contains("0198/run.json is damaged"), "{}", told("0198"));
}

#[test]
fn facts_are_fields_metrics_and_keys_of_the_configuration() {
    let root = tempfile::tempdir().unwrap();
    let more = json!({ "status": "completed", "steps": 7, "metrics": { "val/loss": 0.5 }, "git": { "commit": "abc", "dirty": true } });
    let run = Run::read(made(root.path(), "r", 1, &more)).unwrap();
    let config = "steps = 1\n[optimizer]\nlr = 0.005\nnesterov = false\n".parse().unwrap();
    let fields = RunFields::of(&run, &config);
    let text = |text: &str| Some(Operand::Text(text.to_owned()));
    for (name, expected) in [
        ("steps", Some(Operand::Number(7.0))),
        ("status", text("completed")),
        ("dirty", text("true")),
        ("commit", Some(Operand::Hash("abc".into()))),
        ("val/loss", Some(Operand::Number(0.5))),
        ("optimizer.lr", Some(Operand::Number(0.005))),
        ("optimizer.nesterov", text("false")),
        ("task", None),
    ] {
        assert_eq!(fields.get(name).cloned(), expected, "{name}");
    }
}

#[test]
fn a_configuration_becomes_dotted_keys_with_hooks_by_name() {
    let config = r#"
        task = "toy"
        [[hooks]]
        use = "early_stopping"
        name = "stop"
        [[hooks]]
        use = "checkpoint"
        [[hooks]]
        use = "checkpoint"
        save_top_k = -1
        [[schedulers]]
        use = "cosine"
        [model]
        sizes = [1, 2]
        rest = {}
        lr = inf
    "#;
    let config = config.parse().unwrap();
    assert_eq!(hook_names(&config), ["stop", "checkpoint", "checkpoint-2"]);
    let keys = flatten_config(&config);
    let expected = [
        ("hooks.checkpoint-2.save_top_k", json!(-1)),
        ("hooks.checkpoint-2.use", json!("checkpoint")),
        ("hooks.checkpoint.use", json!("checkpoint")),
        ("hooks.stop.name", json!("stop")),
        ("hooks.stop.use", json!("early_stopping")),
        ("model.lr", json!("inf")),
        ("model.rest", json!({})),
        ("model.sizes", json!([1, 2])),
        ("schedulers.0.use", json!("cosine")),
        ("task", json!("toy")),
    ];
    let keys: Vec<_> = keys.iter().map(|(key, value)| (key.as_str(), value.clone())).collect();
    assert_eq!(keys, expected);
}
