//! The lines of `metrics.jsonl` and `events.jsonl`.

use std::path::Path;

use serde_json::{Value, json};
use tenterhook::hooks::{Checkpoint, CheckpointOptions};
use tenterhook::toy::Toy;
use tenterhook::{Decision, Phase, Settings, closure};

use crate::call_log::CallLog;
use crate::lab::{Lab, data, epochs};
use crate::run_directory::{latest, recorded};

fn lines(root: &Path, file: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(latest(root).join(file)).unwrap();
    assert!(text.ends_with('\n'), "the last line is whole");
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Step, epoch, stage, and the names on every line of `metrics.jsonl`.
fn metrics(root: &Path) -> Vec<(u64, u64, String, Vec<String>)> {
    let of = |line: &Value| {
        let number = |key: &str| line[key].as_u64().unwrap();
        let names = line["metrics"].as_object().unwrap().keys().cloned().collect();
        assert!(line["time"].as_f64().unwrap() >= 0.0);
        (number("step"), number("epoch"), line["stage"].as_str().unwrap().to_owned(), names)
    };
    lines(root, "metrics.jsonl").iter().map(of).collect()
}

fn line(step: u64, epoch: u64, stage: &str, names: &[&str]) -> (u64, u64, String, Vec<String>) {
    (step, epoch, stage.to_owned(), names.iter().map(|name| (*name).to_owned()).collect())
}

#[test]
fn a_line_holds_what_was_logged_since_the_last_one() {
    let root = tempfile::tempdir().unwrap();
    let mut trainer = recorded(root.path(), Settings { log_every_n_steps: 2, ..epochs(2) });
    trainer.fit(&mut Toy::default(), &mut data(4, 1)).unwrap();
    let expected = [
        line(2, 0, "train", &["train/loss"]),
        line(4, 0, "train", &["train/loss"]),
        line(4, 0, "validate", &["val/loss"]),
        line(4, 0, "train", &["train/loss"]),
        line(6, 1, "train", &["train/loss"]),
        line(8, 1, "train", &["train/loss"]),
        line(8, 1, "validate", &["val/loss"]),
        line(8, 1, "train", &["train/loss"]),
    ];
    assert_eq!(metrics(root.path()), expected);
    let first = &lines(root.path(), "metrics.jsonl")[0];
    let keys: Vec<_> = first.as_object().unwrap().keys().cloned().collect();
    assert_eq!(keys.len(), 5, "{keys:?}");
}

#[test]
fn values_that_hooks_and_module_log_in_one_event_share_a_line() {
    let root = tempfile::tempdir().unwrap();
    let mut trainer = recorded(root.path(), Settings { log_every_n_steps: 0, ..epochs(1) });
    trainer.add_hook(closure::on_fit_start("early", |cx| cx.log("early", 0.0))).unwrap();
    trainer.add_hook(closure::on_step_end("hook", |cx| cx.log("at_step_end", 1.0))).unwrap();
    trainer.add_hook(closure::on_train_batch_end("late", |cx| cx.log("at_batch_end", 2.0))).unwrap();
    trainer.add_hook(closure::on_validation_end("judge", |cx| cx.log("judged", 3.0))).unwrap();
    trainer.add_hook(closure::on_train_end("last", |cx| cx.log("at_the_end", 4.0))).unwrap();
    let mut lab = Lab::new(Toy::default(), &CallLog::default()).with_handler(|place, cx| match place {
        "on_train_batch_end" => cx.log("by_module", 5.0),
        "on_train_epoch_end" => cx.log("by_module_at_epoch_end", 6.0),
        _ => {}
    });
    trainer.fit(&mut lab, &mut data(1, 1)).unwrap();
    let batch = ["at_batch_end", "at_step_end", "by_module", "early"];
    let expected = [
        line(1, 0, "train", &batch),
        line(1, 0, "validate", &["judged", "val/loss"]),
        line(1, 0, "train", &["by_module_at_epoch_end", "train/loss"]),
        // After the last epoch, the number is that of the next one.
        line(1, 1, "train", &["at_the_end"]),
    ];
    assert_eq!(metrics(root.path()), expected);
}

#[test]
fn the_sanity_check_leaves_no_line_and_takes_none_away() {
    let root = tempfile::tempdir().unwrap();
    let settings = Settings { num_sanity_val_steps: 2, log_every_n_steps: 0, ..epochs(1) };
    let mut trainer = recorded(root.path(), settings);
    trainer.add_hook(closure::on_fit_start("early", |cx| cx.log("early", 0.0))).unwrap();
    trainer
        .add_hook(closure::on_validation_end("judge", |cx| {
            if cx.phase == Phase::SanityCheck {
                cx.log("sane", 1.0);
            }
        }))
        .unwrap();
    trainer.fit(&mut Toy::default(), &mut data(1, 1)).unwrap();
    let expected = [
        line(1, 0, "train", &["early"]),
        line(1, 0, "validate", &["val/loss"]),
        line(1, 0, "train", &["train/loss"]),
    ];
    assert_eq!(metrics(root.path()), expected);
}

#[test]
fn numbers_that_json_lacks_are_written_in_words() {
    let root = tempfile::tempdir().unwrap();
    let mut trainer = recorded(root.path(), epochs(1));
    trainer
        .add_hook(closure::on_step_end("log", |cx| {
            cx.log("nan", f64::NAN);
            cx.log("more", f64::INFINITY);
            cx.log("less", f64::NEG_INFINITY);
        }))
        .unwrap();
    trainer.fit(&mut Toy::default(), &mut data(1, 0)).unwrap();
    let first = &lines(root.path(), "metrics.jsonl")[0]["metrics"];
    assert_eq!(*first, json!({ "less": "-inf", "more": "inf", "nan": "nan" }));
}

#[test]
fn an_evaluation_after_training_continues_the_same_files() {
    let root = tempfile::tempdir().unwrap();
    let mut trainer = recorded(root.path(), epochs(1));
    let mut toy = Toy::default();
    let mut data = tenterhook::toy::ToyData::default();
    trainer.fit(&mut toy, &mut data).unwrap();
    let before = latest(root.path());
    trainer.test(&mut toy, &mut data).unwrap();
    assert_eq!(latest(root.path()), before);
    let all = metrics(root.path());
    let steps = all.last().unwrap().0;
    assert_eq!(all.last(), Some(&line(steps, 1, "test", &["test/loss"])));
    assert!(steps > 0);
    let run = crate::run_directory::run_json(&before);
    assert_eq!(run["status"], "completed");
    assert!(run["metrics"]["test/loss"].is_f64(), "{run}");
}

/// The events, without their times.
fn events(root: &Path) -> Vec<Value> {
    let mut all = lines(root, "events.jsonl");
    for event in &mut all {
        assert!(event.as_object_mut().unwrap().remove("time").unwrap().is_f64());
    }
    all
}

#[test]
fn everything_except_metrics_is_an_event() {
    let root = tempfile::tempdir().unwrap();
    let mut trainer = recorded(root.path(), epochs(1));
    trainer
        .add_hook(closure::on_train_batch_end("busy", |cx| {
            match cx.step {
                1 => cx.hooks().disable("idle"),
                2 => cx.hooks().disable("nobody"),
                _ => cx.say("three"),
            }
            if cx.step == 3 { Decision::scale_lr(0.5) } else { Decision::CONTINUE }
        }))
        .unwrap();
    trainer.add_hook(closure::on_fit_start("early", |cx| cx.say("before it began"))).unwrap();
    trainer.add_hook(closure::on_train_epoch_end("fails", |cx| assert!(cx.step == 0, "oh no"))).unwrap();
    trainer.add_hook(closure::on_step_end("idle", |_| ())).unwrap();
    let options = CheckpointOptions { every_n_epochs: Some(1), ..CheckpointOptions::default() };
    trainer.add_hook(Checkpoint::new(options).unwrap()).unwrap();
    trainer.fit(&mut Toy::default(), &mut data(3, 0)).unwrap();
    let expected = [
        json!({ "step": 0, "epoch": 0, "event": "said", "by": "early", "text": "before it began" }),
        json!({ "step": 0, "epoch": 0, "event": "start", "stage": "fit" }),
        json!({ "step": 1, "epoch": 0, "event": "toggle", "by": "busy", "change": { "disable": "idle" } }),
        json!({ "step": 2, "epoch": 0, "event": "refused" }),
        json!({
            "step": 3, "epoch": 0, "event": "decision", "by": "busy", "at": "on_train_batch_end",
            "decided": [{ "request": "scale_lr", "optimizer": null, "factor": 0.5 }],
        }),
        json!({ "step": 3, "epoch": 0, "event": "said", "by": "busy", "text": "three" }),
        json!({
            "step": 3, "epoch": 0, "event": "failure", "by": "hook `fails`", "at": "on_train_epoch_end",
            "error": "oh no", "panicked": true, "count": 1, "disabled": true,
        }),
        json!({ "step": 3, "epoch": 0, "event": "toggle", "by": null, "change": { "disable": "fails" } }),
        json!({
            "step": 3, "epoch": 0, "event": "checkpoint", "path": "checkpoints/epoch=0-step=3",
            "weights_only": false,
        }),
        json!({ "step": 3, "epoch": 1, "event": "end", "stage": "fit", "outcome": "completed" }),
    ];
    let mut found = events(root.path());
    let run = found.remove(2);
    assert_eq!((run["event"].as_str(), run["seed"].as_u64()), (Some("run"), Some(0)), "{run}");
    assert_eq!(run["hooks"][3], json!({ "name": "idle", "enabled": true }));
    assert!(run["git"]["commit"].is_string() && run["config_hash"].is_string(), "{run}");
    for event in &mut found {
        if event["event"] == "refused" {
            let error = event.as_object_mut().unwrap().remove("error").unwrap();
            assert!(error.as_str().unwrap().contains("nobody"), "{error}");
        }
    }
    assert_eq!(found, expected);
}

#[test]
fn a_removed_checkpoint_is_an_event() {
    let root = tempfile::tempdir().unwrap();
    let mut trainer = recorded(root.path(), epochs(2));
    trainer.add_hook(Checkpoint::new(CheckpointOptions::default()).unwrap()).unwrap();
    trainer.fit(&mut Toy::default(), &mut data(1, 0)).unwrap();
    let all = events(root.path());
    let of = |kind: &str| -> Vec<_> {
        all.iter().filter(|event| event["event"] == kind).map(|event| event["path"].clone()).collect()
    };
    assert_eq!(of("checkpoint"), ["checkpoints/epoch=0-step=1", "checkpoints/epoch=1-step=2"]);
    assert_eq!(of("checkpoint_removed"), ["checkpoints/epoch=0-step=1"]);
}

#[test]
fn a_resumed_run_records_its_checkpoint() {
    let root = tempfile::tempdir().unwrap();
    let mut trainer = recorded(root.path(), epochs(1));
    trainer.add_hook(Checkpoint::new(CheckpointOptions::default()).unwrap()).unwrap();
    trainer.fit(&mut Toy::default(), &mut data(2, 0)).unwrap();
    let from = latest(root.path()).join("checkpoints/epoch=0-step=2");
    let mut trainer = recorded(root.path(), epochs(2)).restoring(&from);
    trainer.add_hook(Checkpoint::new(CheckpointOptions::default()).unwrap()).unwrap();
    trainer.fit(&mut Toy::default(), &mut data(2, 0)).unwrap();
    let events = events(root.path());
    let start = events.iter().find(|event| event["event"] == "start").unwrap();
    let said = (&start["event"], &start["step"], &start["resumed_from"]);
    assert_eq!(said, (&"start".into(), &2.into(), &json!(from)));
    let steps: Vec<_> = metrics(root.path()).iter().map(|line| (line.0, line.1)).collect();
    assert_eq!(
        steps,
        [(2, 0), (4, 1)],
        "the line that was due when the checkpoint was taken, and the next one"
    );
}
