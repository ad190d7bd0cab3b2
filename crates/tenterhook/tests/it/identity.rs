//! The fingerprints of data, program and processor.

use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tenterhook::data::{Batches, DataLoaders, Dataset, Fingerprint, Sample};
use tenterhook::hooks::{Checkpoint, CheckpointOptions};
use tenterhook::run::{JournalEvent, Run, RunDirectoryOptions};
use tenterhook::toy::{Toy, ToyBatch};
use tenterhook::{BoxError, Notice, RunError, RunNotice, Trainer, closure};

use crate::call_log::SharedVec;
use crate::lab::{epochs, trainer};
use crate::run_directory::{latest, run_json};

type Point = ([f32; 2], f32);

/// Points with an optional fingerprint.
#[derive(Clone)]
struct Points(Vec<Point>, Option<&'static str>);

impl Dataset for Points {
    type Item = Point;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn load(&self, sample: Sample) -> Result<Point, BoxError> {
        self.0.load(sample)
    }

    fn fingerprint(&self) -> Result<Option<Fingerprint>, BoxError> {
        match self.1 {
            Some("unreadable") => Err("the disk is gone".into()),
            known => Ok(known.map(Fingerprint::named)),
        }
    }
}

pub fn data(train: Option<&'static str>, validate: Option<&'static str>) -> DataLoaders<ToyBatch> {
    let batches = |name: &str, known| {
        let points = Points(vec![([1.0, 2.0], 3.0); 4], known);
        Batches::new(name, points, |points| Ok(ToyBatch::of(points))).size(2)
    };
    DataLoaders::new()
        .train(batches("a", train))
        .validate(batches("b", validate))
        .test(batches("c", Some("test")))
}

fn saving(root: &Path, limit: i64) -> Trainer {
    let mut trainer =
        trainer(epochs(limit)).with_run_directory(RunDirectoryOptions::in_dir(root.join("runs")));
    trainer.add_hook(Checkpoint::new(CheckpointOptions::default()).unwrap()).unwrap();
    trainer
}

/// Trains an epoch, and returns the path of its checkpoint.
fn trained(root: &Path, data: &mut DataLoaders<ToyBatch>) -> std::path::PathBuf {
    saving(root, 1).fit(&mut Toy::default(), data).unwrap();
    latest(root).join("checkpoints/latest").canonicalize().unwrap()
}

#[test]
fn a_run_records_its_data_program_and_processor() {
    let root = tempfile::tempdir().unwrap();
    let mut trainer = saving(root.path(), 1);
    let (toy, data) = (&mut Toy::default(), &mut data(Some("one"), None));
    trainer.fit(toy, data).unwrap();
    let identity = run_json(&latest(root.path()))["identity"].clone();
    assert_eq!(identity["data"], json!({ "train/a": "one" }), "{identity}");
    assert!(identity["program"].as_str().unwrap().starts_with("blake3:"), "{identity}");
    assert!(identity["processor"].as_str().unwrap().starts_with(std::env::consts::ARCH), "{identity}");
    trainer.test(toy, data).unwrap();
    let identity = run_json(&latest(root.path()))["identity"].clone();
    assert_eq!(identity["data"], json!({ "test/c": "test", "train/a": "one" }), "{identity}");
}

#[test]
fn other_data_is_refused_with_the_list_unless_it_is_accepted() {
    let root = tempfile::tempdir().unwrap();
    let from = trained(root.path(), &mut data(Some("one"), Some("two")));
    let resume = |mut data: DataLoaders<ToyBatch>, accepts: bool| -> Result<(), RunError> {
        let trainer = saving(root.path(), 2).restoring(&from);
        let mut trainer = if accepts { trainer.accepting_changes() } else { trainer };
        trainer.fit(&mut Toy::default(), &mut data).map(|_| ())
    };
    let runs = || std::fs::read_dir(root.path().join("runs")).unwrap().count();
    let before = runs();
    let refused = resume(data(Some("ONE"), Some("two")), false).unwrap_err().to_string();
    assert!(
        refused.contains("the data differs from that of the checkpoint:\n  train/a: \"one\" -> \"ONE\"\n")
            && refused.contains("`--force`"),
        "{refused}"
    );
    let refused = resume(data(Some("one"), Some("TWO")), false).unwrap_err().to_string();
    assert!(refused.contains("val/b: \"two\" -> \"TWO\""), "{refused}");
    let unreadable = resume(data(Some("unreadable"), None), true).unwrap_err().to_string();
    assert!(unreadable.contains("the disk is gone"), "{unreadable}");
    assert_eq!(runs(), before, "nothing was left behind");
    resume(data(Some("one"), Some("two")), false).unwrap();
    resume(data(None, None), false).unwrap();
    resume(data(Some("ONE"), Some("two")), true).unwrap();
}

/// Changes `state.json`, and updates the manifest.
fn edit_state(checkpoint: &Path, edit: impl FnOnce(&mut Value)) {
    let read =
        |name: &str| serde_json::from_slice::<Value>(&std::fs::read(checkpoint.join(name)).unwrap()).unwrap();
    let write = |name: &str, text: &str| std::fs::write(checkpoint.join(name), text).unwrap();
    let (mut state, mut manifest) = (read("state.json"), read("manifest.json"));
    edit(&mut state);
    let state = state.to_string();
    write("state.json", &state);
    let hash = |text: &str| blake3::hash(text.as_bytes()).to_hex().to_string();
    manifest["files"]["state.json"] = json!({ "bytes": state.len(), "blake3": hash(&state) });
    let zeros = "0".repeat(64);
    manifest["blake3"] = zeros.clone().into();
    let text = format!("{manifest:#}\n");
    write("manifest.json", &text.replace(&zeros, &hash(&text)));
}

#[test]
fn another_program_or_processor_is_a_notice_and_not_refused() {
    let root = tempfile::tempdir().unwrap();
    let from = trained(root.path(), &mut data(Some("one"), None));
    edit_state(&from, |state| state["identity"]["processor"] = "abacus".into());
    let said = Arc::new(Mutex::new(Vec::new()));
    let told = said.clone();
    let mut trainer = saving(root.path(), 2).restoring(&from).with_notices(move |notice: &RunNotice| {
        told.lock().unwrap().push(notice.to_string());
    });
    trainer.fit(&mut Toy::default(), &mut data(Some("one"), None)).unwrap();
    let said = said.lock().unwrap().join("\n");
    assert!(
        said.contains("the checkpoint was written on a different kind of CPU: results may differ"),
        "{said}"
    );
}

/// One sample, whose fingerprint is computed until the notice of that is shown.
struct SlowToFingerprint(Arc<Mutex<Receiver<()>>>);

impl Dataset for SlowToFingerprint {
    type Item = ();

    fn len(&self) -> usize {
        1
    }

    fn load(&self, _: Sample) -> Result<(), BoxError> {
        Ok(())
    }

    fn fingerprint(&self) -> Result<Option<Fingerprint>, BoxError> {
        self.0.lock().unwrap().recv_timeout(Duration::from_mins(1))?;
        Ok(Some(Fingerprint::named("slow")))
    }
}

#[test]
fn the_notice_of_slow_fingerprints_reaches_all_readers_once() {
    let root = tempfile::tempdir().unwrap();
    let ((shown, gate), [told, heard]) = (channel(), [SharedVec::new(), SharedVec::new()]);
    let is_of_trainer = |text: &str| text.starts_with("trainer: computing fingerprints");
    let tell = told.clone();
    let mut trainer = saving(root.path(), 1).with_notices(move |notice| {
        if is_of_trainer(&notice.to_string()) {
            tell.push(notice.to_string());
            let _ = shown.send(());
        }
    });
    let hear = heard.clone();
    let listen = move |cx: &Notice<'_>| {
        if is_of_trainer(cx.text) {
            hear.push(cx.text.to_owned());
        }
    };
    trainer.add_hook(closure::on_notice("hears", listen)).unwrap();
    let samples = SlowToFingerprint(Arc::new(Mutex::new(gate)));
    let batches = Batches::new("slow", samples, |_| Ok(ToyBatch::of(vec![([0.1, 0.2], 0.3)])));
    trainer.fit(&mut Toy::default(), &mut DataLoaders::new().train(batches.size(1))).unwrap();
    let happened = Run::read(latest(root.path())).unwrap().event_log().unwrap();
    let written = happened.entries.iter().filter(|entry| {
        matches!(&entry.what, JournalEvent::Said { text, .. } if text.starts_with("computing fingerprints"))
    });
    let told = told.take();
    assert_eq!((told.len(), written.count()), (1, 1));
    assert_eq!(heard.take(), told);
}
