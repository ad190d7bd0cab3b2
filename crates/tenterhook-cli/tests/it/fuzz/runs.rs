//! Fuzzed checkpoints and run directories.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tenterhook::checkpoint::{OnUnreadable, newest_whole, read, verify};
use tenterhook::hooks::{Checkpoint, CheckpointOptions, EarlyStopping, EarlyStoppingOptions, EmaWeights};
use tenterhook::run::{Run, RunDirectoryOptions, Runs};
use tenterhook::toy::{Toy, ToyData};
use tenterhook::{FromOptions, Settings, Trainer};

use super::harness::{Fuzz, JSON, TOML, no_panic};

fn trainer(epochs: i64) -> Trainer {
    let settings = Settings { max_epochs: Some(epochs), log_every_n_steps: 1, ..Settings::default() };
    let mut trainer = Trainer::new(settings).unwrap().with_notices(|_| {});
    trainer.add_hook(EarlyStopping::new(EarlyStoppingOptions::new("val/loss")).unwrap()).unwrap();
    trainer.add_hook(EmaWeights::from_options(toml::from_str("").unwrap()).unwrap()).unwrap();
    let saves = CheckpointOptions {
        save_top_k: Some(-1),
        every_n_train_steps: Some(3),
        ..CheckpointOptions::default()
    };
    trainer.add_hook(Checkpoint::new(saves).unwrap()).unwrap();
    trainer
}

/// Trains a run of one epoch below this directory, and returns it with one of its checkpoints.
fn trained(root: &Path) -> (PathBuf, PathBuf) {
    let mut trainer = trainer(1).with_run_directory(RunDirectoryOptions::in_dir(root.join("runs")));
    trainer.fit(&mut Toy::default(), &mut ToyData::default()).unwrap();
    let run = root.join("runs/latest").canonicalize().unwrap();
    let checkpoint = run.join("checkpoints/epoch=0-step=6");
    assert!(checkpoint.join("state.json").is_file(), "{}", checkpoint.display());
    (run, checkpoint)
}

/// Copies a checkpoint with another `state.json` and a matching manifest.
pub(crate) fn copied(checkpoint: &Path, to: &Path, state: &[u8]) {
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(checkpoint).unwrap().flatten() {
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
    fs::write(to.join("state.json"), state).unwrap();
    let mut manifest: Value = serde_json::from_slice(&fs::read(to.join("manifest.json")).unwrap()).unwrap();
    let hash = |bytes: &[u8]| blake3::hash(bytes).to_hex().to_string();
    manifest["files"]["state.json"] = json!({ "bytes": state.len(), "blake3": hash(state) });
    let zeros = "0".repeat(64);
    manifest["blake3"] = zeros.clone().into();
    let text = format!("{manifest:#}\n");
    fs::write(to.join("manifest.json"), text.replace(&zeros, &hash(text.as_bytes()))).unwrap();
}

/// Whether the state contains a path outside of these allowed directories.
fn leads_elsewhere(value: &Value, but: &[String]) -> bool {
    match value {
        Value::String(text) => (text.starts_with('/') || text.contains("..")) && !but.contains(text),
        Value::Array(items) => items.iter().any(|item| leads_elsewhere(item, but)),
        Value::Object(map) => map.values().any(|value| leads_elsewhere(value, but)),
        _ => false,
    }
}

/// All files and directories below this one, except those below `but`.
fn all_files(directory: &Path, but: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(directory).unwrap().flatten().map(|entry| entry.path());
    let mut found = BTreeMap::new();
    for path in entries.filter(|path| path != but) {
        if path.is_dir() && !path.is_symlink() {
            found.extend(all_files(&path, but));
        }
        let content = fs::read(&path).unwrap_or_default();
        found.insert(path, content);
    }
    found
}

#[test]
fn a_fuzzed_state_is_resumed_or_refused_and_changes_no_other_files() {
    let directory = tempfile::tempdir().unwrap();
    let (run, checkpoint) = trained(directory.path());
    let text = fs::read_to_string(checkpoint.join("state.json")).unwrap();
    let text = text.replace(&format!("{}/", run.display()), "");
    let state: Value = serde_json::from_str(&text).unwrap();
    assert!(!leads_elsewhere(&state, &[]), "the corpus itself would be left out: {state:#}");
    let (scratch, victim) = (directory.path().join("scratch"), directory.path().join("victim"));
    // A directory that looks like a checkpoint of the run may be removed.
    copied(&checkpoint, &victim, text.as_bytes());
    let before = all_files(directory.path(), &scratch);
    let elsewhere = [victim.display().to_string(), "../victim".to_owned()];
    let saved = "\"epoch=0-step=3\"";
    assert!(text.contains(saved), "{text}");
    let hostile = elsewhere.iter().map(|path| text.replace(saved, &format!("\"{path}\"")));
    let corpus = [text.clone()].into_iter().chain(hostile).map(String::into_bytes).collect();
    let fuzz = Fuzz { name: "state", corpus, words: &["\"step\":", "null"], format: Some(JSON), inputs: 80 };
    fuzz.run(|input| {
        if serde_json::from_slice(input).is_ok_and(|state| leads_elsewhere(&state, &elsewhere)) {
            return Ok(());
        }
        let _ = fs::remove_dir_all(&scratch);
        let copy = scratch.join("epoch=0-step=6");
        copied(&checkpoint, &copy, input);
        let _ = read(&copy);
        let mut trainer = trainer(2).with_checkpoints_in(&scratch).restoring(&copy).accepting_changes();
        no_panic(trainer.fit(&mut Toy::default(), &mut ToyData::default()))?;
        let same = all_files(directory.path(), &scratch) == before;
        if same { Ok(()) } else { Err("something outside of the checkpoints' root has changed".into()) }
    });
}

#[test]
fn a_fuzzed_manifest_is_accepted_or_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (_, checkpoint) = trained(directory.path());
    let manifest = checkpoint.join("manifest.json");
    let corpus = vec![fs::read(&manifest).unwrap()];
    let right: Value = serde_json::from_slice(&corpus[0]).unwrap();
    let words = ["\"../x\"", "\"/etc/passwd\"", "\"format\": 9", "\"bytes\": 18446744073709551615"];
    Fuzz { name: "manifest", corpus, words: &words, format: Some(JSON), inputs: 250 }.run(|input| {
        fs::write(&manifest, input).unwrap();
        let whole = verify(&checkpoint).is_ok();
        let _ = (read(&checkpoint), newest_whole(checkpoint.parent().unwrap(), OnUnreadable::Stop));
        let says_the_same =
            serde_json::from_slice::<Value>(input).is_ok_and(|read| read["files"] == right["files"]);
        if whole && !says_the_same { Err("another manifest is taken for whole".into()) } else { Ok(()) }
    });
}

#[test]
fn fuzzed_files_of_a_run_are_read_without_a_panic() {
    let directory = tempfile::tempdir().unwrap();
    let (run, _) = trained(directory.path());
    fs::write(run.join("config.toml"), "task = \"toy\"\n[[hooks]]\nuse = \"console\"\n").unwrap();
    for name in ["run.json", "metrics.jsonl", "events.jsonl", "config.toml"] {
        let file = run.join(name);
        let right = fs::read(&file).unwrap();
        let words = ["\"step\":", "\"metrics\":{", "\"time\":1e400"];
        let format = Some(if name == "config.toml" { TOML } else { JSON });
        Fuzz { name, corpus: vec![right.clone()], words: &words, format, inputs: 120 }.run(|input| {
            fs::write(&file, input).unwrap();
            if let Ok(run) = Run::read(&run) {
                let _ = (run.curves(), run.event_log(), run.config(), run.checkpoints());
            }
            let _ = Runs::below(directory.path().join("runs")).map(|runs| runs.list().len());
            Ok(())
        });
        fs::write(&file, &right).unwrap();
    }
}
