//! Uploads to another directory.

use std::fs;

use tenterhook::checkpoint::{OnUnreadable, newest_whole, problems};

use super::job::{End, ID, Job};
use super::{assert_same, files, whole};
use crate::lab::{data, epochs, trainer};

/// A training run that uploads to another directory.
fn job(root: &tempfile::TempDir) -> Job {
    let to = root.path().join("backup");
    let mut job = Job::new(root.path(), Some(format!("to = \"{}\"", to.display())));
    job.checkpoint = "save_top_k = -1".into();
    job
}

#[test]
fn every_checkpoint_arrives_byte_for_byte_and_training_is_the_same() {
    let root = tempfile::tempdir().unwrap();
    let job = job(&root);
    let ended = job.run();
    let here = files(&job.checkpoints());
    assert_eq!(whole(&here).len(), 3);
    assert_same(&files(&root.path().join("backup").join(ID)), &here);
    let sink = ended.sink();
    assert_eq!((&*ended.sinks[0].hook, sink.sent, sink.delivered), ("upload", 3, 3));
    assert_eq!((sink.failed, sink.dropped, sink.lost), (0, 0, 0));
    assert!(sink.waited.is_zero(), "training waited for {:?}", sink.waited);

    let other = tempfile::tempdir().unwrap();
    let without = Job { hook: None, ..Job::new(other.path(), None) }.run();
    assert_eq!((&ended.bits, &ended.how), (&without.bits, &without.how));
}

#[test]
fn an_uploaded_checkpoint_is_whole_and_can_be_resumed() {
    let root = tempfile::tempdir().unwrap();
    let job = job(&root);
    let ended = job.run();
    fs::remove_dir_all(job.checkpoints()).unwrap();
    let backup = root.path().join("backup").join(ID);
    assert_eq!(newest_whole(&backup, OnUnreadable::Stop).unwrap().skipped, []);
    let newest = newest_whole(&backup, OnUnreadable::Stop).unwrap().path.unwrap();
    assert!(problems(&newest).is_empty());
    let mut toy = tenterhook::toy::Toy::default();
    let mut trainer = trainer(epochs(3)).restoring(&newest).accepting_other_hooks();
    trainer.fit(&mut toy, &mut data(2, 1)).unwrap();
    assert_eq!(crate::lab::bits(&toy), ended.bits);
}

#[test]
fn a_checkpoint_after_a_signal_or_a_failure_is_also_uploaded() {
    for (end, name) in [(End::Interrupted, "emergency-"), (End::Failed, "epoch=1-")] {
        let root = tempfile::tempdir().unwrap();
        let mut job = Job { end, ..job(&root) };
        job.checkpoint = "save_top_k = -1\nsave_on_exception = true".into();
        let ended = job.run();
        let there = files(&root.path().join("backup").join(ID));
        assert!(whole(&there).iter().any(|found| found.starts_with(name)), "{end:?}: {:?}", there.keys());
        assert_same(&there, &files(&job.checkpoints()));
        assert_eq!(ended.sink().delivered, ended.sink().sent, "{end:?}");
    }
}

#[test]
fn only_the_best_are_uploaded_if_so_configured() {
    let root = tempfile::tempdir().unwrap();
    let mut job = job(&root);
    job.hook = job.hook.map(|hook| format!("{hook}\nonly = \"best\""));
    // The validation loss of the toy increases, so only the first checkpoint is a best one.
    job.checkpoint = "monitor = \"val/loss\"\nsave_top_k = -1".into();
    job.run();
    assert_eq!(whole(&files(&job.checkpoints())).len(), 3);
    assert_eq!(whole(&files(&root.path().join("backup").join(ID))), ["epoch=0-step=2"]);
}

#[test]
fn a_failed_upload_leaves_no_manifest_and_does_not_change_training() {
    let root = tempfile::tempdir().unwrap();
    let job = job(&root);
    // In one of the three uploads, a directory is in the place of a file.
    let in_the_way = root.path().join("backup").join(ID).join("epoch=1-step=4/weights.safetensors/x");
    fs::create_dir_all(in_the_way).unwrap();
    let ended = job.run();
    let there = files(&root.path().join("backup").join(ID));
    assert_eq!(whole(&there), ["epoch=0-step=2", "epoch=2-step=6"]);
    assert_eq!((ended.sink().delivered, ended.sink().failed), (2, 1));
    assert!(ended.said().contains("cannot upload checkpoint epoch=1-step=4 to "), "{}", ended.said());
    let other = tempfile::tempdir().unwrap();
    assert_eq!(ended.bits, Job::new(other.path(), None).run().bits);
}

#[test]
fn a_checkpoint_that_is_removed_before_its_upload_is_no_failure() {
    let root = tempfile::tempdir().unwrap();
    let mut job = job(&root);
    // Only the newest checkpoint is kept, and an upload may start before or after the next save has replaced
    // its checkpoint.
    job.checkpoint = "every_n_train_steps = 1".into();
    let ended = job.run();
    let sink = ended.sink();
    assert_eq!((sink.failed, sink.lost), (0, 0), "{}", ended.said());
    assert_eq!(sink.delivered + sink.dropped, sink.sent);
    let there = files(&root.path().join("backup").join(ID));
    let newest = files(&job.checkpoints());
    assert!(newest.iter().all(|(file, bytes)| there.get(file) == Some(bytes)), "{:?}", there.keys());
    for checkpoint in whole(&there) {
        let path = root.path().join("backup").join(ID).join(checkpoint);
        assert!(problems(&path).is_empty(), "{checkpoint}");
    }
}

#[test]
fn missing_uploads_are_made_up_by_a_resume() {
    let root = tempfile::tempdir().unwrap();
    // As if the process had been killed before its uploads.
    let first = Job { hook: None, epochs: 2, ..job(&root) };
    first.run();
    let job = Job { resume: true, ..job(&root) };
    let ended = job.run();
    assert_eq!(whole(&files(&job.checkpoints())).len(), 3, "{}", ended.how);
    assert_same(&files(&root.path().join("backup").join(ID)), &files(&job.checkpoints()));
    assert_eq!(ended.sink().failed, 0);
}

#[test]
fn uploads_into_the_checkpoint_directory_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let mut job = job(&root);
    job.hook = Some(format!("to = \"{}\"", job.checkpoints().join("backup").display()));
    let ended = job.run();
    assert!(ended.said().contains("choose another directory"), "{}", ended.said());
    assert!(!job.checkpoints().join("backup").exists());
}
