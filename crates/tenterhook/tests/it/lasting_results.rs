//! A call succeeds only if its results are on the disk.

use std::fs;
use std::path::{Path, PathBuf};

use tenterhook::toy::Toy;
use tenterhook::{Outcome, RunError, Trainer, closure};

use crate::lab::{data, epochs};
use crate::run_directory::{latest, recorded, run_json};

/// The failure of a training run in which `in_the_way` blocks a file at the end.
fn failed(root: &Path, in_the_way: fn(&Path)) -> String {
    let mut trainer = recorded(root, epochs(2));
    let hook = closure::on_train_end("in_the_way", move |cx| in_the_way(cx.run.directory.as_ref().unwrap()));
    trainer.add_hook(hook).unwrap();
    failure_of(&mut trainer)
}

fn failure_of(trainer: &mut Trainer) -> String {
    let error = trainer.fit(&mut Toy::default(), &mut data(4, 1)).unwrap_err();
    let RunError::Failed { failure, later, report } = error else { panic!("{error}") };
    assert!(later.is_empty() && matches!(report.outcome, Outcome::Failed { .. }), "{:?}", report.outcome);
    assert_eq!(report.progress.epochs_done, 2, "training came to its end");
    failure.to_string()
}

/// Makes writing this file impossible, even for root.
fn block(directory: &Path, name: &str) {
    fs::create_dir_all(directory.join(format!(".{name}.unfinished")).join("in the way")).unwrap();
}

#[test]
fn without_its_weights_a_run_has_failed_and_its_record_says_so() {
    let root = tempfile::tempdir().unwrap();
    let failure = failed(root.path(), |directory| block(directory, "weights.safetensors"));
    assert!(failure.contains("results of the run could not be written: cannot write "), "{failure}");
    assert!(failure.contains("weights.safetensors: "), "{failure}");
    let record = run_json(&latest(root.path()));
    assert_eq!(record["status"], "failed", "{record}");
    assert!(record["error"].as_str().unwrap().contains("weights.safetensors"), "{record}");
}

#[test]
fn a_run_whose_end_cannot_be_recorded_has_failed() {
    let root = tempfile::tempdir().unwrap();
    let failure = failed(root.path(), |directory| block(directory, "run.json"));
    assert!(failure.contains("run.json: "), "{failure}");
}

#[test]
fn on_a_disk_that_is_full_at_the_end_a_run_fails_and_says_what_is_missing() {
    let small = std::env::var_os("TENTERHOOK_SMALL_DISK").map(PathBuf::from).filter(|path| path.is_dir());
    let Some(small) = small else {
        assert!(std::env::var_os("CI").is_none(), "CI must name a directory on a disk of 1 MiB");
        return eprintln!("SKIPPED: TENTERHOOK_SMALL_DISK names no directory on a disk of 1 MiB");
    };
    let root = tempfile::tempdir_in(small).unwrap();
    let failure = failed(root.path(), |directory| {
        fs::write(directory.join("filler"), vec![7; 4 << 20]).unwrap_err();
    });
    for hint in ["weights.safetensors: No space left on device", "run.json: No space left on device"] {
        assert!(failure.contains(hint), "{failure}");
    }
    let run = latest(root.path());
    let left: Vec<_> = fs::read_dir(&run).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().ends_with(".unfinished")), "{left:?}");
    assert_eq!(run_json(&run)["status"], "running", "it could not be replaced, and is whole");
}
