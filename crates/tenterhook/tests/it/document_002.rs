//! The second specification document in Rust: its quick start, its table of hooks, and the management of hooks.

use std::path::Path;

use tenterhook::hooks::{CheckpointOptions, ConsoleOptions, JsonlOptions};
use tenterhook::toy::Toy;
use tenterhook::{HookKind, OnError, RunNotice, Tier, Trainer, closure};

use crate::call_log::SharedVec;
use crate::lab::{data, epochs};

/// A trainer whose printed lines are recorded, with checkpoints below this directory.
pub fn printing(root: &Path, settings: tenterhook::Settings) -> (Trainer, SharedVec<String>) {
    let seen = SharedVec::new();
    let printed = seen.clone();
    let trainer = Trainer::new(settings).unwrap().with_checkpoints_in(root.join("checkpoints"));
    let trainer = trainer.with_notices(move |notice| match notice {
        RunNotice::Printed(line) => printed.push(line.clone()),
        RunNotice::Said { hook, text } => printed.push(format!("{hook}: {text}")),
        _ => {}
    });
    (trainer, seen)
}

fn quick_start(root: &Path) -> (Trainer, SharedVec<String>) {
    let (mut trainer, seen) = printing(root, epochs(2));
    trainer.add_console_logging(10).unwrap();
    trainer.add_json_logging(100).unwrap();
    trainer.add_checkpointing(1).unwrap();
    (trainer, seen)
}

#[test]
fn the_quick_start_prints_writes_and_saves() {
    let root = tempfile::tempdir().unwrap();
    let (mut trainer, seen) = quick_start(root.path());
    trainer.fit(&mut Toy::default(), &mut data(25, 1)).unwrap();
    let beginnings =
        seen.take().iter().map(|line| line.split("  ").take(2).collect::<String>()).collect::<Vec<_>>();
    let expected = |epoch, batches: &[u64]| {
        let lines = batches.iter().map(|batch| format!("epoch {epoch}/2batch {batch}/25"));
        lines.chain([format!("epoch {epoch}/2 donestep {}", epoch * 25)]).collect::<Vec<_>>()
    };
    assert_eq!(beginnings, [expected(1, &[10, 20]), expected(2, &[5, 15, 25])].concat());
    let log = std::fs::read_to_string(root.path().join("json_log.jsonl")).unwrap();
    assert_eq!(
        log.lines().count(),
        6,
        "start and end, and two of each epoch, which is shorter than a hundred"
    );
    assert!(root.path().join("checkpoints/epoch=1-step=50").exists());
}

#[test]
fn the_documented_defaults_are_those_of_the_hooks() {
    assert_eq!(ConsoleOptions::default(), ConsoleOptions::from(10));
    assert_eq!(JsonlOptions::default(), JsonlOptions::from(100));
    let every_second: CheckpointOptions = 2.into();
    assert_eq!(every_second.every_n_epochs, Some(2));
}

#[test]
fn hooks_are_listed_removed_disabled_and_enabled_by_name() {
    let root = tempfile::tempdir().unwrap();
    let (mut trainer, seen) = quick_start(root.path());
    let listed = trainer.list_hooks().into_iter().filter(|hook| hook.kind != HookKind::Update);
    let listed: Vec<_> = listed.map(|h| (h.name, h.kind, h.tier, h.enabled, h.on_error)).collect();
    let expected = [
        ("console_log", HookKind::Observer, Tier::BuiltIn, true, OnError::Disable),
        ("json_log", HookKind::Observer, Tier::BuiltIn, true, OnError::Disable),
        ("checkpoint", HookKind::Controller, Tier::Checkpoint, true, OnError::Abort),
    ];
    assert_eq!(
        listed,
        expected.map(|(name, kind, tier, on, error)| (name.to_owned(), kind, tier, on, error))
    );

    trainer.remove_hook("console_log").unwrap();
    trainer.disable_hook("json_log").unwrap();
    let now: Vec<_> = trainer.list_hooks().into_iter().map(|hook| (hook.name, hook.enabled)).collect();
    assert_eq!(now[..2], [("json_log".to_owned(), false), ("checkpoint".to_owned(), true)]);
    trainer.fit(&mut Toy::default(), &mut data(12, 0)).unwrap();
    assert!(seen.take().is_empty());
    assert!(!root.path().join("json_log.jsonl").exists());

    trainer.enable_hook("json_log").unwrap();
    trainer.fit(&mut Toy::default(), &mut data(12, 0)).unwrap();
    assert!(root.path().join("json_log.jsonl").exists());
    assert!(trainer.add_json_logging(1).unwrap_err().to_string().contains("json_log"), "it is there already");
    assert!(trainer.add_console_logging(0).unwrap_err().to_string().contains("`log_every_n_batches`"));
}

#[test]
fn a_users_hook_runs_before_these_however_late_it_comes() {
    let root = tempfile::tempdir().unwrap();
    let (mut trainer, seen) = quick_start(root.path());
    trainer.add_hook(closure::on_train_epoch_end("mine", |cx| cx.print("mine"))).unwrap();
    trainer.fit(&mut Toy::default(), &mut data(2, 0)).unwrap();
    let firsts: Vec<_> = seen.take().iter().map(|line| line[..4].to_owned()).collect();
    assert_eq!(firsts, ["mine", "epoc", "mine", "epoc"]);
}
