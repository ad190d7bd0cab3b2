//! A refused resume calls no hook, reports no change and writes nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tenterhook::data::DataLoaders;
use tenterhook::hooks::{Checkpoint, CheckpointOptions, Jsonl, JsonlOptions};
use tenterhook::run::{RunDirectoryOptions, RunLock};
use tenterhook::toy::{Toy, ToyBatch};
use tenterhook::{FromOptions, RunError, RunNotice, Trainer};

use crate::call_log::{CallLog, Recorder};
use crate::foreign_checkpoints::forge;
use crate::identity::data;
use crate::lab::{Lab, epochs, trainer};
use crate::run_directory::plan;

/// Every file below a directory, with its bytes.
fn contents(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    for path in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
        match path {
            link if link.is_symlink() => {
                let to = fs::read_link(&link).unwrap();
                all.push((link, to.into_os_string().into_encoded_bytes()));
            }
            directory if directory.is_dir() => all.extend(contents(&directory)),
            file => {
                let bytes = fs::read(&file).unwrap();
                all.push((file, bytes));
            }
        }
    }
    all.sort();
    all
}

/// A trainer of the run with this configuration, whose hooks record their calls.
fn recorded(root: &Path, config: Value, call_log: &CallLog, resume: bool) -> Trainer {
    let id = "the-run";
    let resume = resume.then(|| RunLock::acquire(root.join("runs").join(id)).unwrap());
    let plan = RunDirectoryOptions { id: Some(id.into()), resume, ..plan(root) };
    let mut trainer = trainer(epochs(2)).with_config(config).with_run_directory(plan);
    trainer.add_hook(Recorder::new("all", call_log)).unwrap();
    trainer.add_hook(Jsonl::from_options(JsonlOptions::default()).unwrap()).unwrap();
    trainer
        .add_hook(Checkpoint::new(CheckpointOptions { save_top_k: Some(-1), ..Default::default() }).unwrap())
        .unwrap();
    trainer
}

fn config(epochs: u64, seed: u64) -> Value {
    json!({ "trainer": { "max_epochs": epochs, "seed": seed } })
}

type Resumed = Result<(), RunError>;

/// Changes the state of a checkpoint.
type Forged<'a> = &'a dyn Fn(&mut Value);

#[test]
fn a_refused_resume_calls_no_hook_and_reports_no_change_and_writes_nothing() {
    let root = tempfile::tempdir().unwrap();
    let known = || data(Some("one"), Some("two"));
    let from = root.path().join("runs/the-run/checkpoints/epoch=0-step=2");
    let none = CallLog::default();
    recorded(root.path(), config(1, 0), &none, false)
        .fit(&mut Lab::new(Toy::default(), &none), &mut known())
        .unwrap();
    let said = Arc::new(Mutex::new(Vec::new()));
    let resumed = |config: Value,
                   call_log: &CallLog,
                   more: Option<Recorder>,
                   mut data: DataLoaders<ToyBatch>|
     -> Resumed {
        let told = said.clone();
        let trainer = recorded(root.path(), config, call_log, true).restoring(&from);
        let mut trainer =
            trainer.with_notices(move |notice: &RunNotice| told.lock().unwrap().push(notice.to_string()));
        if let Some(hook) = more {
            trainer.add_hook(hook).unwrap();
        }
        trainer.fit(&mut Lab::new(Toy::default(), call_log), &mut data).map(drop)
    };
    let refused = |why: &str, resume: &dyn Fn(&CallLog) -> Resumed| {
        let (before, call_log) = (contents(root.path()), CallLog::default());
        let error = resume(&call_log).expect_err(why).to_string();
        assert!(error.contains(why), "{error}");
        assert_eq!(call_log.rows(), [], "{why}: neither a hook nor the module is called");
        let said = std::mem::take(&mut *said.lock().unwrap());
        assert!(
            !said.iter().any(|text| text.contains("resum") || text.contains("last bits")),
            "{why}: {said:?}"
        );
        assert_eq!(contents(root.path()), before, "{why}");
    };
    // Each also changes a harmless setting, which an accepted resume would report.
    refused("the hooks differ from those of the checkpoint", &|call_log| {
        resumed(config(2, 0), call_log, Some(Recorder::new("more", call_log)), known())
    });
    refused("the data differs from that of the checkpoint", &|call_log| {
        resumed(config(2, 0), call_log, None, data(Some("ONE"), Some("two")))
    });
    refused("val/b: \"two\" -> \"TWO\"", &|call_log| {
        resumed(config(2, 0), call_log, None, data(Some("one"), Some("TWO")))
    });
    refused("the configuration differs from that of the checkpoint", &|call_log| {
        resumed(config(2, 7), call_log, None, known())
    });
    refused("the disk is gone", &|call_log| {
        resumed(config(2, 0), call_log, None, data(Some("unreadable"), None))
    });
    let state = fs::read(from.join("state.json")).unwrap();
    let manifest = fs::read(from.join("manifest.json")).unwrap();
    forge(&from, |state| state["post_save"]["link"] = json!({ "path": "../up" }));
    refused("is not a path below its directory", &|call_log| resumed(config(2, 0), call_log, None, known()));
    fs::write(from.join("state.json"), state).unwrap();
    fs::write(from.join("manifest.json"), manifest).unwrap();
    resumed(config(2, 0), &CallLog::default(), None, known()).unwrap();
    let said = said.lock().unwrap().join("\n");
    assert!(said.contains("resumed with changed settings: trainer.max_epochs: 1 -> 2"), "{said}");
}

#[test]
fn a_checkpoint_that_cannot_be_resumed_is_refused_before_any_hook_is_called() {
    let root = tempfile::tempdir().unwrap();
    let known = || data(Some("one"), Some("two"));
    let run = root.path().join("runs/the-run");
    let (checkpoints, elsewhere) = (run.join("checkpoints"), root.path().join("elsewhere"));
    let from = checkpoints.join("epoch=0-step=2");
    let none = CallLog::default();
    recorded(root.path(), config(1, 0), &none, false)
        .fit(&mut Lab::new(Toy::default(), &none), &mut known())
        .unwrap();
    fs::write(checkpoints.join("file"), "no directory").unwrap();
    let refused = |from: &Path, why: &str| {
        let (before, call_log) = (contents(root.path()), CallLog::default());
        let mut trainer = recorded(root.path(), config(2, 0), &call_log, true).restoring(from);
        let resumed = trainer.fit(&mut Lab::new(Toy::default(), &call_log), &mut known());
        drop(trainer);
        let error = resumed.expect_err(why).to_string();
        assert!(error.contains(why), "{error}");
        assert_eq!(call_log.rows(), [], "{why}: neither a hook nor the module is called");
        assert_eq!(contents(root.path()), before, "{why}");
    };
    let [state, manifest] =
        ["state.json", "manifest.json"].map(|file| (from.join(file), fs::read(from.join(file)).unwrap()));
    let forgeries: [(&str, Forged<'_>); 3] = [
        ("top_k[0].path: `../up` is not a path below its directory", &|state| {
            state["hooks"]["checkpoint"]["data"]["top_k"][0]["path"] = "../up".into();
        }),
        ("state has version 9, this program reads version", &|state| {
            state["hooks"]["checkpoint"]["version"] = 9.into();
        }),
        ("checkpoints/file/x: ", &|state| state["unannounced"][0]["path"] = json!({ "path": "file/x" })),
    ];
    for (why, forged) in forgeries {
        forge(&from, forged);
        refused(&from, why);
        for (file, bytes) in [&state, &manifest] {
            fs::write(file, bytes).unwrap();
        }
    }
    fs::create_dir(&elsewhere).unwrap();
    for file in fs::read_dir(&from).unwrap().map(|file| file.unwrap()) {
        fs::copy(file.path(), elsewhere.join(file.file_name())).unwrap();
    }
    refused(&elsewhere, "elsewhere is not one of run the-run");
    for name in ["metrics.jsonl", "checkpoints"] {
        let (place, kept) = (run.join(name), root.path().join("kept"));
        fs::rename(&place, &kept).unwrap();
        std::os::unix::fs::symlink(&kept, &place).unwrap();
        refused(&from, &format!("{name} is a symbolic link, which is not followed for writing"));
        fs::remove_file(&place).unwrap();
        fs::rename(&kept, &place).unwrap();
    }
    let call_log = CallLog::default();
    let mut trainer = recorded(root.path(), config(2, 0), &call_log, true).restoring(&from);
    trainer.fit(&mut Lab::new(Toy::default(), &call_log), &mut known()).unwrap();
}
