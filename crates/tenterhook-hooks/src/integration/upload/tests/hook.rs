//! The hook without a trainer: when it uploads, and its reports.

use std::path::Path;
use std::sync::atomic::Ordering;

use tenterhook_core::{FromOptions, RunInfo, Stage};
use tenterhook_testkit::Rig;

use super::write;
use crate::integration::upload::{Upload, UploadOptions};

/// Disables uploads.
type Disable = fn(&mut Rig<Upload>) -> &mut Rig<Upload>;

const SMALL: &[(&str, &[u8])] = &[("state.json", b"{}")];

/// A run whose checkpoints are uploaded to `backup` beside them.
fn rig(directory: &Path) -> Rig<Upload> {
    let options = UploadOptions::new(directory.join("backup").display().to_string());
    let mut rig = Rig::new(Upload::from_options(options).expect("they are fine"));
    let checkpoints = directory.join("checkpoints");
    rig.run(RunInfo { id: "r1".into(), checkpoints, ..RunInfo::default() });
    rig
}

/// Announces a saved checkpoint to the hook.
fn saved<'r>(rig: &'r mut Rig<Upload>, directory: &Path, name: &str) -> &'r mut Rig<Upload> {
    let root = directory.join("checkpoints");
    rig.checkpoint(1, root.join(name), root).on_checkpoint_saved();
    rig
}

#[test]
fn nothing_is_uploaded_in_a_dry_run_a_rehearsal_or_an_evaluation() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    write(&directory.join("checkpoints/a"), SMALL);
    let all: [Disable; 3] = [
        |rig| rig.fast_dev_run(true),
        |rig| rig.run(RunInfo { rehearsal: true, ..RunInfo::default() }),
        |rig| rig.stage(Stage::Test),
    ];
    for disable in all {
        let mut rig = rig(directory);
        disable(&mut rig);
        rig.on_train_start();
        saved(&mut rig, directory, "a").on_checkpoint_loaded();
        rig.finish();
        assert_eq!((rig.delivery_stats(), rig.failures().len()), (None, 0));
    }
    assert!(!directory.join("backup").exists());
}

#[test]
fn a_removed_checkpoint_is_counted_as_dropped_and_reported_with_the_next() {
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
    let said = rig.said().pop().expect("it is reported").1;
    assert!(said.starts_with("a checkpoint was removed or replaced before the upload"), "{said}");
    rig.finish();
    let sent = rig.delivery_stats().expect("it has a worker");
    assert_eq!((sent.sent, sent.delivered, sent.dropped, sent.failed), (2, 1, 1, 0));
    assert!(directory.join("backup/r1/b/manifest.json").is_file());
    assert!(!directory.join("backup/r1/a").exists());
}

#[test]
fn a_second_call_has_its_own_worker() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    let mut rig = rig(directory);
    for name in ["a", "b"] {
        write(&directory.join("checkpoints").join(name), SMALL);
        rig.setup();
        saved(&mut rig, directory, name).finish();
        assert!(directory.join("backup/r1").join(name).join("manifest.json").is_file());
        assert_eq!(rig.delivery_stats().expect("it has a worker").delivered, 1);
    }
    assert_eq!(rig.failures().len(), 0);
}

#[test]
fn a_run_that_starts_from_another_runs_checkpoint_does_not_upload_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    write(&directory.join("other/a"), SMALL);
    write(&directory.join("checkpoints/b"), SMALL);
    let mut rig = rig(directory);
    rig.checkpoint(1, directory.join("other/a"), directory.join("other")).on_checkpoint_loaded();
    rig.finish();
    assert_eq!(rig.delivery_stats(), None);
    rig.setup();
    rig.checkpoint(1, directory.join("checkpoints/b"), directory.join("checkpoints")).on_checkpoint_loaded();
    rig.finish();
    assert!(directory.join("backup/r1/b/manifest.json").is_file());
}

/// The environment for a local server that rejects every request.
#[cfg(feature = "http")]
fn broken_server() -> crate::integration::upload::destination::Variables {
    use std::sync::LazyLock;

    use crate::support::http::loopback::{Answer, Server};
    static SERVER: LazyLock<Server> = LazyLock::new(|| Server::start(&[Answer::Status(400)]));
    let variables = [
        ("AWS_ENDPOINT_URL", &*SERVER.url("")),
        ("AWS_ACCESS_KEY_ID", "me"),
        ("AWS_SECRET_ACCESS_KEY", "hush"),
    ];
    variables.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
}

#[cfg(feature = "http")]
#[test]
fn an_unusable_destination_is_reported_before_the_first_checkpoint() {
    let mut hook = Upload::from_options(UploadOptions::new("s3://bucket")).expect("they are fine");
    hook.environment = broken_server;
    let mut rig = Rig::new(hook);
    rig.on_train_start();
    let deadline = std::time::Instant::now() + std::time::Duration::from_mins(1);
    while rig.failures().is_empty() {
        assert!(std::time::Instant::now() < deadline, "it is never reported");
        rig.on_train_batch_end();
    }
    rig.finish();
    let [failed] = rig.failures() else { panic!("{:?}", rig.failures()) };
    let text = failed.failure.to_string();
    assert!(text.contains("cannot upload to s3://bucket: the storage answered 400"), "{text}");
    assert_eq!(rig.delivery_stats().map(|sent| (sent.sent, sent.failed)), Some((0, 0)));
}
