//! Failed and interrupted saves: no older checkpoint is lost, and the resume finishes an interrupted save.

use std::fs;
use std::path::{Path, PathBuf};

use tenterhook::checkpoint::{OnUnreadable, list, newest_whole};
use tenterhook::hooks::{Checkpoint, CheckpointOptions};
use tenterhook::run::{RunDirectoryOptions, RunLock};
use tenterhook::settings::OnSaveError;
use tenterhook::toy::Toy;
use tenterhook::{Decision, Report, Request, RunError, RunNotice, SaveRequest, Settings, Trainer, closure};

use crate::call_log::{CallLog, SharedVec};
use crate::lab::{Lab, data, epochs, trainer};
use crate::run_directory::plan;

fn names(root: &Path) -> Vec<String> {
    let mut names: Vec<_> = list(root).unwrap().into_iter().map(|listed| listed.name).collect();
    names.sort();
    names
}

fn saving(options: CheckpointOptions) -> Checkpoint {
    Checkpoint::new(options).expect("options that fit")
}

/// Replaces the directory by a file, so that even root cannot write there.
fn block(root: &Path) {
    fs::rename(root, root.with_extension("away")).unwrap();
    fs::write(root, "").unwrap();
}

fn unblock(root: &Path) {
    fs::remove_file(root).unwrap();
    fs::rename(root.with_extension("away"), root).unwrap();
}

/// Three epochs of two steps, where the save of the second fails. Also returns the checkpoints between the epochs.
fn second_fails(root: &Path, settings: Settings) -> (Result<Report, RunError>, Vec<Vec<String>>) {
    let mut trainer = trainer(settings).with_checkpoints_in(root);
    let (place, seen) = (root.to_owned(), SharedVec::new());
    let between = seen.clone();
    trainer
        .add_hook(closure::on_train_epoch_start("in_the_way", move |cx| match cx.epoch {
            1 => block(&place),
            2 => {
                unblock(&place);
                between.push(names(&place));
            }
            _ => {}
        }))
        .unwrap();
    trainer.add_hook(saving(CheckpointOptions::default())).unwrap();
    (trainer.fit(&mut Toy::default(), &mut data(2, 0)), seen.take())
}

fn root() -> (tempfile::TempDir, PathBuf) {
    let above = tempfile::tempdir().unwrap();
    let root = above.path().join("checkpoints");
    (above, root)
}

#[test]
fn with_warn_a_failed_save_is_a_notice_and_older_checkpoints_stay_until_a_later_one_is_durable() {
    let (_above, root) = root();
    let settings = Settings { on_save_error: OnSaveError::Warn, ..epochs(3) };
    let (fitted, between) = second_fails(&root, settings);
    let told: Vec<_> = fitted.unwrap().notices.iter().map(RunNotice::to_string).collect();
    let unsaved = told.iter().filter(|notice| notice.contains("epoch=1-step=4")).collect::<Vec<_>>();
    assert_eq!(unsaved.len(), 1, "{told:?}");
    assert!(unsaved[0].ends_with("the run continues, and older checkpoints are kept"), "{unsaved:?}");
    assert_eq!(between, [["epoch=0-step=2"]]);
    assert_eq!(names(&root), ["epoch=2-step=6"], "it made way in the end");
}

#[test]
fn with_stop_the_run_fails_and_the_older_checkpoint_is_whole() {
    let (_above, root) = root();
    let (fitted, _) = second_fails(&root, epochs(3));
    let error = fitted.unwrap_err().to_string();
    assert!(error.contains("epoch=1-step=4"), "{error}");
    unblock(&root);
    assert_eq!(newest_whole(&root, OnUnreadable::Stop).unwrap().path, Some(root.join("epoch=0-step=2")));
}

#[test]
fn a_worse_one_does_not_replace_the_best_because_a_better_one_could_not_be_written() {
    let (_above, root) = root();
    let settings = Settings { on_save_error: OnSaveError::Warn, ..epochs(3) };
    let mut trainer = trainer(settings).with_checkpoints_in(&root);
    let place = root.clone();
    trainer
        .add_hook(closure::on_train_epoch_end("score", move |cx| {
            cx.log("score", [0.5, 0.4, 0.9][usize::try_from(cx.epoch).unwrap()]);
            match cx.epoch {
                1 => block(&place),
                2 => unblock(&place),
                _ => {}
            }
        }))
        .unwrap();
    let options = CheckpointOptions {
        monitor: Some("score".into()),
        mode: Some(tenterhook::hooks::Mode::Min),
        ..CheckpointOptions::default()
    };
    trainer.add_hook(saving(options)).unwrap();
    trainer.lenient().fit(&mut Toy::default(), &mut data(2, 0)).unwrap();
    assert_eq!(names(&root), ["epoch=0-step=2"], "0.4 could not be written, and 0.9 is worse than 0.5");
}

#[test]
fn the_first_of_several_failed_saves_ends_the_run_and_the_others_are_listed() {
    let (_above, root) = root();
    let settings = Settings { background_saves: true, ..epochs(1) };
    let mut trainer = trainer(settings).with_checkpoints_in(&root);
    let place = root.clone();
    trainer.add_hook(closure::on_train_start("in_the_way", move |_| fs::write(&place, "").unwrap())).unwrap();
    let save = |name: &str| Request::Save(SaveRequest { path: Some(name.into()), ..SaveRequest::default() });
    let all = ["first", "second", "third"].map(save).into_iter().fold(Decision::CONTINUE, Decision::request);
    trainer.add_hook(closure::on_train_epoch_end("asks", move |_| all.clone())).unwrap();
    let error = trainer.fit(&mut Toy::default(), &mut data(2, 0)).unwrap_err();
    let RunError::Failed { failure, later, report } = error else { panic!("{error}") };
    let all: Vec<_> = std::iter::once(&failure).chain(&later).map(ToString::to_string).collect();
    for (failed, filename) in all.iter().zip(["first", "second", "third"]) {
        assert!(failed.contains(filename), "{all:?}");
    }
    assert_eq!((all.len(), report.failures.kinds[0].count), (3, 3), "{all:?}");
}

fn run(root: &Path, resume: bool) -> Trainer {
    let resume = resume.then(|| RunLock::acquire(root.join("runs/the-run")).unwrap());
    let directory = RunDirectoryOptions { id: Some("the-run".into()), resume, ..plan(root) };
    let mut trainer = trainer(epochs(3)).with_run_directory(directory);
    trainer
        .add_hook(saving(CheckpointOptions { save_on_exception: true, ..CheckpointOptions::default() }))
        .unwrap();
    trainer
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let file = entry.unwrap().path();
        fs::copy(&file, to.join(file.file_name().unwrap())).unwrap();
    }
}

#[test]
fn removals_and_links_that_a_kill_prevented_are_finished_by_the_resume() {
    let root = tempfile::tempdir().unwrap();
    let checkpoints = root.path().join("runs/the-run/checkpoints");
    let (of_first, kept) = (checkpoints.clone(), root.path().join("kept"));
    let mut trainer = run(root.path(), false);
    trainer
        .add_hook(closure::on_train_epoch_start("keep", move |cx| {
            if cx.epoch == 2 {
                copy(&of_first.join("epoch=1-step=4"), &kept);
            }
        }))
        .unwrap();
    trainer.fit(&mut Toy::default(), &mut data(2, 0)).unwrap();
    drop(trainer);
    assert_eq!(names(&checkpoints), ["epoch=2-step=6"]);
    // As if the process had been killed right after the rename.
    copy(&root.path().join("kept"), &checkpoints.join("epoch=1-step=4"));
    fs::remove_file(checkpoints.join("latest")).unwrap();
    std::os::unix::fs::symlink("epoch=1-step=4", checkpoints.join("latest")).unwrap();
    let newest = newest_whole(&checkpoints, OnUnreadable::Stop).unwrap().path.unwrap();
    assert!(newest.ends_with("epoch=2-step=6"), "{}", newest.display());
    let mut trainer = run(root.path(), true).restoring(&newest).accepting_other_hooks();
    trainer.fit(&mut Toy::default(), &mut data(2, 0)).unwrap();
    assert_eq!(names(&checkpoints), ["epoch=2-step=6"]);
    assert_eq!(fs::read_link(checkpoints.join("latest")).unwrap(), Path::new("epoch=2-step=6"));
}

#[test]
fn a_resumed_run_that_fails_before_its_resume_point_saves_nothing() {
    let root = tempfile::tempdir().unwrap();
    let checkpoints = root.path().join("runs/the-run/checkpoints");
    let mut trainer = run(root.path(), false);
    let handle = trainer.interrupt_handle();
    trainer
        .add_hook(closure::on_step_end("ask", move |cx| {
            if cx.step == 3 {
                handle.request("SIGTERM");
            }
        }))
        .unwrap();
    trainer.fit(&mut Toy::default(), &mut data(2, 0)).unwrap();
    drop(trainer);
    let before = names(&checkpoints);
    let newest = newest_whole(&checkpoints, OnUnreadable::Stop).unwrap().path.unwrap();
    assert!(newest.ends_with("emergency-epoch=1-step=3"), "{before:?}");
    for event in ["fit", "train"] {
        let mut trainer = run(root.path(), true).restoring(&newest).accepting_other_hooks();
        let fails = |_: &tenterhook::RunContext<'_>| -> tenterhook::HookResult { Err("no luck".into()) };
        let how = tenterhook::Registration {
            policy: Some(tenterhook::Policy::ABORT),
            ..tenterhook::Registration::default()
        };
        if event == "fit" {
            trainer.register(closure::on_fit_start("fails", move |cx| fails(cx)), how).unwrap();
        } else {
            trainer.register(closure::on_train_start("fails", move |cx| fails(cx)), how).unwrap();
        }
        trainer.fit(&mut Toy::default(), &mut data(2, 0)).unwrap_err();
        assert_eq!(names(&checkpoints), before, "{event}");
        assert_eq!(
            newest_whole(&checkpoints, OnUnreadable::Stop).unwrap().path.as_ref(),
            Some(&newest),
            "{event}"
        );
    }
}

#[test]
fn a_panic_on_the_writing_thread_is_a_failed_save_with_a_backtrace() {
    for background_saves in [false, true] {
        let (_above, root) = root();
        let settings = Settings { background_saves, debug: true, ..epochs(1) };
        let mut trainer = trainer(settings).with_checkpoints_in(&root);
        trainer.add_hook(saving(CheckpointOptions::default())).unwrap();
        let mut lab = Lab::new(Toy::default(), &CallLog::default()).with_failing_snapshot();
        let error = trainer.fit(&mut lab, &mut data(2, 0)).unwrap_err();
        let RunError::Failed { failure, .. } = error else { panic!("{error}") };
        assert_eq!((failure.place, failure.panicked), ("save", true), "{failure}");
        assert!(failure.to_string().contains("the snapshot panics"), "{failure}");
        let trace = failure.trace.unwrap().to_string();
        assert!(trace.contains("snapshot"), "{trace}");
        assert_eq!(names(&root), Vec::<String>::new());
    }
}
