//! The hook around it: what it hands over, and what it makes of what comes back.

use std::path::Path;
use std::sync::atomic::Ordering;

use tenterhook_core::{FromOptions, RunInfo, Stage};
use tenterhook_testkit::Rig;

use super::write;
use crate::integration::upload::{Upload, UploadOptions};

/// What keeps everything here.
type Stays = fn(&mut Rig<Upload>) -> &mut Rig<Upload>;

const SMALL: &[(&str, &[u8])] = &[("state.json", b"{}")];

/// A run whose checkpoints are uploaded to `backup` beside them.
fn rig(directory: &Path) -> Rig<Upload> {
    let options = UploadOptions::to(directory.join("backup").display().to_string());
    let mut rig = Rig::new(Upload::from_options(options).expect("they are fine"));
    let checkpoints = directory.join("checkpoints");
    rig.run(RunInfo { id: "r1".into(), checkpoints, ..RunInfo::default() });
    rig
}

/// Tells it of a checkpoint.
fn saved<'r>(rig: &'r mut Rig<Upload>, directory: &Path, name: &str) -> &'r mut Rig<Upload> {
    let root = directory.join("checkpoints");
    rig.checkpoint(1, root.join(name), root).on_checkpoint_saved();
    rig
}

#[test]
fn nothing_leaves_a_dry_run_a_rehearsal_or_an_evaluation() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    write(&directory.join("checkpoints/a"), SMALL);
    let here: [Stays; 3] = [
        |rig| rig.fast_dev_run(true),
        |rig| rig.run(RunInfo { rehearsal: true, ..RunInfo::default() }),
        |rig| rig.stage(Stage::Test),
    ];
    for stays in here {
        let mut rig = rig(directory);
        stays(&mut rig);
        saved(&mut rig, directory, "a").on_checkpoint_loaded();
        rig.finish();
        assert_eq!((rig.sent(), rig.failures().len()), (None, 0));
    }
    assert!(!directory.join("backup").exists());
}

#[test]
fn one_that_is_gone_is_counted_as_dropped_and_told_with_the_next() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    write(&directory.join("checkpoints/b"), SMALL);
    let mut rig = rig(directory);
    saved(&mut rig, directory, "a");
    while rig.hook().dropped.load(Ordering::Relaxed) == 0 {
        std::thread::yield_now();
    }
    assert_eq!(rig.said(), []);
    saved(&mut rig, directory, "b");
    let said = rig.said().pop().expect("it is told").1;
    assert!(said.starts_with("a checkpoint was removed or replaced before the upload"), "{said}");
    rig.finish();
    let sent = rig.sent().expect("it has a worker");
    assert_eq!((sent.sent, sent.delivered, sent.dropped, sent.failed), (2, 1, 1, 0));
    assert!(directory.join("backup/r1/b/manifest.json").is_file());
    assert!(!directory.join("backup/r1/a").exists());
}

#[test]
fn a_second_call_has_a_worker_of_its_own() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    let mut rig = rig(directory);
    for name in ["a", "b"] {
        write(&directory.join("checkpoints").join(name), SMALL);
        rig.setup();
        saved(&mut rig, directory, name).finish();
        assert!(directory.join("backup/r1").join(name).join("manifest.json").is_file());
        assert_eq!(rig.sent().expect("it has a worker").delivered, 1);
    }
    assert_eq!(rig.failures().len(), 0);
}

#[test]
fn a_run_that_begins_from_another_ones_checkpoint_leaves_that_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    write(&directory.join("other/a"), SMALL);
    write(&directory.join("checkpoints/b"), SMALL);
    let mut rig = rig(directory);
    rig.checkpoint(1, directory.join("other/a"), directory.join("other")).on_checkpoint_loaded();
    rig.finish();
    assert_eq!(rig.sent(), None);
    rig.setup();
    rig.checkpoint(1, directory.join("checkpoints/b"), directory.join("checkpoints")).on_checkpoint_loaded();
    rig.finish();
    assert!(directory.join("backup/r1/b/manifest.json").is_file());
}
