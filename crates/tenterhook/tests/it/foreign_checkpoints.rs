//! Checkpoints and run directories of other users: their paths and links do not lead outside.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tenterhook::checkpoint::{OnUnreadable, hook_problems, newest_whole, problems};
use tenterhook::hooks::{
    Checkpoint, CheckpointOptions, Csv, CsvOptions, Jsonl, JsonlOptions, SaveLast, TensorBoard,
    TensorBoardOptions,
};
use tenterhook::registry::Registry;
use tenterhook::run::{RunDirectoryOptions, RunLock};
use tenterhook::toy::Toy;
use tenterhook::{FromOptions, RunNotice, Trainer};

use crate::lab::{data, epochs, trainer};
use crate::run_directory::plan;

/// A directory of another user, with a file in it.
struct Victim(tempfile::TempDir);

impl Victim {
    fn new() -> Victim {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("thesis.txt"), "mine").unwrap();
        Victim(directory)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    #[track_caller]
    fn is_untouched(&self, what: &str) {
        let names: Vec<_> =
            fs::read_dir(self.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["thesis.txt"], "{what}");
        assert_eq!(fs::read_to_string(self.path().join("thesis.txt")).unwrap(), "mine", "{what}");
    }
}

/// Trains with a checkpoint hook, in a directory of checkpoints.
fn saving(root: &Path, dirpath: Option<&Path>, to: i64) -> Trainer {
    let options = CheckpointOptions {
        save_last: SaveLast::Copy(true),
        dirpath: dirpath.map(Path::to_owned),
        ..CheckpointOptions::default()
    };
    let mut trainer = trainer(epochs(to)).with_checkpoints_in(root);
    trainer.add_hook(Checkpoint::new(options).unwrap()).unwrap();
    trainer
}

/// Changes the state of a checkpoint, and updates its manifest.
pub fn forge(checkpoint: &Path, change: impl FnOnce(&mut Value)) {
    let hash = |bytes: &[u8]| blake3::hash(bytes).to_hex().to_string();
    let mut state: Value = serde_json::from_slice(&fs::read(checkpoint.join("state.json")).unwrap()).unwrap();
    change(&mut state);
    let state = state.to_string();
    fs::write(checkpoint.join("state.json"), &state).unwrap();
    let text = fs::read(checkpoint.join("manifest.json")).unwrap();
    let mut manifest: Value = serde_json::from_slice(&text).unwrap();
    manifest["files"]["state.json"] = json!({ "bytes": state.len(), "blake3": hash(state.as_bytes()) });
    let zeros = "0".repeat(64);
    let own = |blake3: &str| {
        let (format, files) = (&manifest["format"], &manifest["files"]);
        format!("{{\"format\":{format},\"files\":{files},\"blake3\":\"{blake3}\"}}")
    };
    fs::write(checkpoint.join("manifest.json"), own(&hash(own(&zeros).as_bytes()))).unwrap();
}

/// A checkpoint of one epoch, in a new directory.
fn checkpoint() -> (tempfile::TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    saving(root.path(), None, 1).fit(&mut Toy::default(), &mut data(2, 0)).unwrap();
    let path = root.path().join("epoch=0-step=2");
    (root, path)
}

/// Puts a path into a state.
type Forged<'a> = &'a dyn Fn(&mut Value, &str);

#[test]
fn a_path_that_leaves_its_directory_is_an_error_that_names_the_entry() {
    let at = |path: &str| json!({ "path": path });
    let save = |path: &str| json!({ "path": at(path), "replaces": [at(path)], "link": at(path) });
    let entries: [(&str, Forged<'_>); 6] = [
        ("post_save.replaces[0].path", &|state, path| state["post_save"]["replaces"] = json!([at(path)])),
        ("post_save.link.path", &|state, path| state["post_save"]["link"] = at(path)),
        ("unannounced[0].path.path", &|state, path| state["unannounced"][0]["path"] = at(path)),
        ("loops.requested[0].save.path.path", &|state, path| {
            let event = "on_train_batch_end";
            state["loops"]["requested"] = json!([{ "save": save(path), "by": "checkpoint", "event": event }]);
        }),
        ("top_k[0].path", &|state, path| {
            state["hooks"]["checkpoint"]["data"]["top_k"][0]["path"] = path.into();
        }),
        ("last", &|state, path| state["hooks"]["checkpoint"]["data"]["last"] = path.into()),
    ];
    for (entry, forged) in entries {
        let victim = Victim::new();
        let (root, from) = checkpoint();
        let up = format!("../{}", victim.path().file_name().unwrap().to_string_lossy());
        for path in [victim.path().to_str().unwrap(), &up, "a/../../b", ""] {
            forge(&from, |state| forged(state, path));
            let mut called_out = problems(&from);
            if called_out.is_empty() {
                called_out = hook_problems(&from, &Registry::default());
            }
            let problem = called_out.first().expect(entry).to_string();
            assert!(problem.contains("state.json is damaged") && problem.contains(entry), "{problem}");
            let failed =
                saving(root.path(), None, 3).restoring(&from).fit(&mut Toy::default(), &mut data(2, 0));
            let error = failed.expect_err(entry).to_string();
            let named = format!("{entry}: `{}` is not a path below its directory", path.escape_default());
            assert!(error.contains(&named), "{error}");
            assert!(error.contains(from.join("state.json").to_str().unwrap()), "{error}");
            victim.is_untouched(entry);
        }
    }
}

#[test]
fn a_directory_that_is_not_a_checkpoint_is_kept_with_a_notice() {
    let (root, from) = checkpoint();
    let theirs = root.path().join("theirs");
    fs::create_dir(&theirs).unwrap();
    fs::write(theirs.join("thesis.txt"), "mine").unwrap();
    forge(&from, |state| state["hooks"]["checkpoint"]["data"]["top_k"][0]["path"] = "theirs".into());
    let (told, tell) = std::sync::mpsc::channel();
    let trainer = saving(root.path(), None, 3).restoring(&from).with_notices(move |notice| {
        if let RunNotice::Said { text, .. } = notice {
            told.send(text.clone()).unwrap();
        }
    });
    { trainer }.fit(&mut Toy::default(), &mut data(2, 0)).unwrap();
    assert_eq!(fs::read_to_string(theirs.join("thesis.txt")).unwrap(), "mine");
    let all: Vec<_> = tell.try_iter().collect();
    let refused = all.iter().find(|text| text.starts_with("cannot remove checkpoint"));
    assert!(refused.is_some_and(|text| text.contains("/theirs: ")), "{all:?}");
}

#[test]
fn a_directory_that_the_configuration_names_is_used_again_after_a_resume() {
    let (root, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let run = |to: i64, from: Option<PathBuf>| {
        let mut trainer = saving(root.path(), Some(elsewhere.path()), to);
        if let Some(from) = from {
            trainer = trainer.restoring(from);
        }
        trainer.fit(&mut Toy::default(), &mut data(2, 0)).unwrap();
    };
    run(1, None);
    let newest = newest_whole(elsewhere.path(), OnUnreadable::Stop).unwrap().path;
    run(2, newest);
    let mut left: Vec<_> =
        fs::read_dir(elsewhere.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["epoch=1-step=4", "last"], "the one of the first part was replaced");
    let state = fs::read_to_string(elsewhere.path().join("last/state.json")).unwrap();
    assert!(!state.contains(&format!("\"path\": \"{}", elsewhere.path().display())), "{state}");
}

#[test]
fn checkpoints_are_refused_in_a_directory_of_a_hooks_files() {
    let (root, board) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let run = |to: i64, from: Option<&Path>| {
        let mut trainer = saving(root.path(), None, to);
        let options = TensorBoardOptions { dir: board.path().to_owned(), ..TensorBoardOptions::default() };
        trainer.add_hook(TensorBoard::from_options(options).unwrap()).unwrap();
        if let Some(from) = from {
            trainer = trainer.restoring(from);
        }
        trainer.fit(&mut Toy::default(), &mut data(2, 0)).unwrap();
    };
    run(1, None);
    let from = root.path().join("epoch=0-step=2");
    forge(&from, |state| {
        let path = json!({ "hook": "tensorboard", "path": "x" });
        let saves = json!([{ "path": path, "weights_only": false, "replaces": [], "link": null }]);
        state["position"]["saves"] = saves.clone();
        state["loops"]["asked"] = saves;
    });
    run(2, Some(&from));
    assert!(root.path().join("epoch=1-step=4").exists(), "it has gone on");
    assert!(!board.path().join("x").exists(), "a checkpoint was saved among the files of another hook");
}

/// A run that keeps checkpoints and writes files.
fn recorded(root: &Path, to: i64, resume: bool) -> Trainer {
    let id = "the-run";
    let resume = resume.then(|| RunLock::acquire(root.join("runs").join(id)).unwrap());
    let plan = RunDirectoryOptions { id: Some(id.into()), resume, ..plan(root) };
    let mut trainer = trainer(epochs(to)).with_run_directory(plan);
    let options = CheckpointOptions { save_top_k: Some(-1), ..CheckpointOptions::default() };
    trainer.add_hook(Checkpoint::new(options).unwrap()).unwrap();
    trainer.add_hook(Csv::from_options(CsvOptions::default()).unwrap()).unwrap();
    trainer.add_hook(Jsonl::from_options(JsonlOptions::default()).unwrap()).unwrap();
    trainer.add_hook(TensorBoard::from_options(TensorBoardOptions::default()).unwrap()).unwrap();
    trainer
}

/// Resumes the run, from the checkpoint of its first epoch.
fn resumed(root: &Path) -> Result<(), String> {
    let from = root.join("runs/the-run/checkpoints/epoch=0-step=2");
    let mut trainer = recorded(root, 2, true).restoring(from);
    trainer.fit(&mut Toy::default(), &mut data(2, 0)).map(drop).map_err(|error| error.to_string())
}

#[test]
fn links_in_a_run_are_not_followed_for_writing() {
    for name in [
        "metrics.jsonl",
        "events.jsonl",
        ".run.json.unfinished",
        ".weights.safetensors.unfinished",
        "metrics.csv",
        ".metrics.csv.unfinished",
        "json_log.jsonl",
        "tensorboard",
        "checkpoints/.epoch=1-step=4.unfinished",
        "checkpoints/epoch=1-step=4",
        "checkpoints/latest",
    ] {
        let (victim, root) = (Victim::new(), tempfile::tempdir().unwrap());
        recorded(root.path(), 1, false).fit(&mut Toy::default(), &mut data(2, 0)).unwrap();
        let place = root.path().join("runs/the-run").join(name);
        let is_directory = place.is_dir() || name.starts_with("checkpoints/");
        let target = if is_directory { victim.path().to_owned() } else { victim.path().join("thesis.txt") };
        let _ = fs::rename(&place, root.path().join("kept"));
        symlink(target, &place).unwrap();
        let ended = resumed(root.path());
        victim.is_untouched(name);
        // A link under another name is replaced, or its hook fails.
        if let Err(error) = ended {
            let told = "is a symbolic link, which is not followed for writing";
            assert!(error.contains(name) && error.contains(told), "{error}");
        } else {
            assert!(!["metrics.jsonl", "events.jsonl"].contains(&name), "{name}");
        }
    }
}

#[test]
fn a_directory_of_checkpoints_that_is_a_link_is_read_and_not_written_to() {
    let (root, kept) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    recorded(root.path(), 1, false).fit(&mut Toy::default(), &mut data(2, 0)).unwrap();
    let (place, kept) = (root.path().join("runs/the-run/checkpoints"), kept.path().join("kept"));
    fs::rename(&place, &kept).unwrap();
    fs::create_dir(kept.join(".other.unfinished")).unwrap();
    symlink(&kept, &place).unwrap();
    let error = resumed(root.path()).expect_err("it is a link");
    let named = "the-run/checkpoints is a symbolic link, which is not followed for writing";
    assert!(error.contains(named), "{error}");
    assert!(kept.join(".other.unfinished").exists(), "it is not tidied");
    assert!(!kept.join("epoch=1-step=4").exists());
}

#[test]
fn a_lock_that_is_a_link_is_refused() {
    let (victim, root) = (Victim::new(), tempfile::tempdir().unwrap());
    recorded(root.path(), 1, false).fit(&mut Toy::default(), &mut data(2, 0)).unwrap();
    let run = root.path().join("runs/the-run");
    symlink(victim.path().join("thesis.txt"), run.join("lock")).unwrap();
    let error = RunLock::acquire(run).expect_err("it is a link").to_string();
    assert!(error.contains("lock is a symbolic link, which is not followed for writing"), "{error}");
    victim.is_untouched("lock");
}
