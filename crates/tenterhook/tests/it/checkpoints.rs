//! Checkpoints on disk: their files, their removal, and their announcement.

use std::path::Path;

use tenterhook::checkpoint::read;
use tenterhook::hooks::{Checkpoint, CheckpointOptions, Mode, SaveLast};
use tenterhook::run::RunDirectoryOptions;
use tenterhook::settings::FastDevRun;
use tenterhook::toy::Toy;
use tenterhook::{Decision, Registration, Request, SaveRequest, Settings, Trainer, closure};

use crate::call_log::{CallLog, Recorder, SharedVec};
use crate::lab::{Lab, bits, data, epochs, trainer};

fn saving(root: &Path, settings: Settings, options: CheckpointOptions) -> Trainer {
    let mut trainer = trainer(settings).with_checkpoints_in(root);
    trainer.add_hook(Checkpoint::new(options).unwrap()).unwrap();
    trainer
}

/// The names in a directory except `latest`, sorted.
fn listed(root: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(root) else { return Vec::new() };
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| name != "latest");
    names.sort();
    names
}

#[test]
fn a_checkpoint_is_a_complete_directory() {
    let root = tempfile::tempdir().unwrap();
    // A leftover of a killed run.
    std::fs::create_dir_all(root.path().join(".epoch=0-step=2.unfinished/junk")).unwrap();
    let mut trainer = saving(root.path(), epochs(1), CheckpointOptions::default());
    let call_log = CallLog::default();
    trainer.add_hook(Recorder::new("a", &call_log)).unwrap();
    trainer.add_hook(closure::on_save_checkpoint("entry", |cx| cx.entries.put("mine", &7).unwrap())).unwrap();
    trainer.fit(&mut Lab::new(Toy::default(), &call_log), &mut data(2, 1)).unwrap();
    assert_eq!(listed(root.path()), ["epoch=0-step=2"]);
    // The recorder reads the gradients before they are cleared, so the checkpoint must have them.
    let files = [
        "gradients.safetensors",
        "manifest.json",
        "optimizer.safetensors",
        "state.json",
        "weights.safetensors",
    ];
    assert_eq!(listed(&root.path().join("epoch=0-step=2")), files);
    let contents = read(&root.path().join("epoch=0-step=2")).unwrap();
    assert_eq!((contents.progress.step, contents.progress.epochs_done, contents.weights_only), (2, 1, false));
    assert_eq!(contents.hooks.keys().collect::<Vec<_>>(), ["a", "checkpoint", "entry"]);
    assert_eq!(contents.weights.names().collect::<Vec<_>>(), ["bias", "weight"]);
    assert_eq!(contents.entries["mine"], 7);
    assert_eq!(contents.entries["recording"], "was here");
}

#[test]
fn the_best_are_kept_and_the_others_deleted() {
    let root = tempfile::tempdir().unwrap();
    let options = CheckpointOptions {
        monitor: Some("score".into()),
        mode: Some(Mode::Min),
        save_top_k: Some(2),
        ..CheckpointOptions::default()
    };
    let mut module = Lab::new(Toy::default(), &CallLog::default()).with_handler(|place, cx| {
        if place == "on_train_epoch_end" {
            cx.log("score", [3.0, 1.0, 2.0, 5.0][usize::try_from(cx.epoch()).unwrap()]);
        }
    });
    saving(root.path(), epochs(4), options).fit(&mut module, &mut data(1, 0)).unwrap();
    assert_eq!(listed(root.path()), ["epoch=1-step=2", "epoch=2-step=3"]);
}

#[test]
fn a_checkpoint_that_the_user_has_deleted_is_not_an_error() {
    let root = tempfile::tempdir().unwrap();
    let mut trainer = saving(root.path(), epochs(2), CheckpointOptions::default());
    let first = root.path().join("epoch=0-step=1");
    trainer
        .add_hook(closure::on_checkpoint_saved("thief", move |_| {
            if first.exists() {
                std::fs::remove_dir_all(&first).unwrap();
            }
        }))
        .unwrap();
    trainer.fit(&mut Toy::default(), &mut data(1, 0)).unwrap();
    assert_eq!(listed(root.path()), ["epoch=1-step=2"]);
}

#[test]
fn the_newest_is_kept_as_last_too_as_a_copy_or_a_link() {
    for (save_last, is_link) in [(SaveLast::Copy(true), false), (SaveLast::LINK, true)] {
        let root = tempfile::tempdir().unwrap();
        let last = root.path().join("last");
        let options = CheckpointOptions { save_last, ..CheckpointOptions::default() };
        let mut trainer = saving(root.path(), epochs(2), options);
        // A second fit replaces the checkpoint of the first.
        for _ in 0..2 {
            trainer.fit(&mut Toy::default(), &mut data(1, 0)).unwrap();
            assert_eq!(last.symlink_metadata().unwrap().is_symlink(), is_link);
            assert_eq!(read(&last).unwrap().progress.step, 2);
            assert!(!root.path().join("last-v1").exists());
        }
        if is_link {
            assert!(std::fs::read_link(&last).unwrap().is_relative(), "the directory can be moved");
        }
    }
}

#[test]
fn last_of_another_run_is_kept_and_that_of_the_same_run_replaced_also_after_a_resume() {
    for save_last in [SaveLast::Copy(true), SaveLast::LINK] {
        let (root, shared) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let run = |epochs_of_it: i64, from: Option<&str>| {
            let options = CheckpointOptions {
                save_last,
                dirpath: Some(shared.path().into()),
                save_top_k: Some(-1),
                ..CheckpointOptions::default()
            };
            let mut trainer = saving(root.path(), epochs(epochs_of_it), options);
            if let Some(from) = from {
                trainer = trainer.restoring(shared.path().join(from));
            }
            trainer.fit(&mut Toy::default(), &mut data(1, 0)).unwrap();
        };
        let steps = |names: &[&str]| -> Vec<u64> {
            names.iter().map(|name| read(&shared.path().join(name)).unwrap().progress.step).collect()
        };
        run(2, None);
        run(3, None);
        assert_eq!(steps(&["last", "last-v1"]), [2, 3]);
        run(4, Some("last-v1"));
        assert_eq!(steps(&["last", "last-v1"]), [2, 4]);
        assert!(!shared.path().join("last-v2").exists());
        // A dangling link also takes a name.
        std::os::unix::fs::symlink("nowhere", shared.path().join("last-v2")).unwrap();
        run(1, None);
        assert_eq!(steps(&["last", "last-v1", "last-v3"]), [2, 4, 1]);
    }
}

#[test]
fn last_is_saved_at_the_end_of_training_whenever_the_previous_save_was() {
    for save_last in [SaveLast::Copy(true), SaveLast::LINK] {
        let left = |options: CheckpointOptions| {
            let root = tempfile::tempdir().unwrap();
            let mut lab = Lab::new(Toy::default(), &CallLog::default()).with_handler(|place, cx| {
                if place == "on_train_epoch_end" {
                    cx.log("score", if cx.epoch() == 0 { 1.0 } else { 0.0 });
                }
            });
            saving(root.path(), epochs(5), options).fit(&mut lab, &mut data(2, 1)).unwrap();
            let last = read(&root.path().join("last")).unwrap();
            let weights =
                [("weight", 2), ("bias", 1)].map(|(name, size)| last.weights.f32(name, &[size]).unwrap());
            assert_eq!(
                weights.concat().iter().map(|value| value.to_bits()).collect::<Vec<_>>(),
                bits(&lab.toy)
            );
            (listed(root.path()), last.progress.step)
        };
        let options = || CheckpointOptions { save_last, ..CheckpointOptions::default() };
        let seldom = left(CheckpointOptions { every_n_epochs: Some(2), ..options() });
        assert_eq!(seldom, (["epoch=1-step=4", "epoch=3-step=8", "last"].map(Into::into).to_vec(), 10));
        let never_better =
            left(CheckpointOptions { monitor: Some("score".into()), mode: Some(Mode::Max), ..options() });
        assert_eq!(never_better, (vec!["epoch=0-step=2".into(), "last".into()], 10));
        let by_steps = left(CheckpointOptions { every_n_train_steps: Some(4), ..options() });
        assert_eq!(by_steps, (vec!["epoch=3-step=8".into(), "last".into()], 10));
    }
}

#[test]
fn a_name_that_last_needs_is_refused_or_gets_a_version() {
    for save_last in [SaveLast::Copy(true), SaveLast::LINK] {
        let named = |filename: &str| CheckpointOptions {
            filename: Some(filename.into()),
            save_last,
            ..CheckpointOptions::default()
        };
        for filename in ["last", "last/{epoch}"] {
            let error = Checkpoint::new(named(filename)).unwrap_err().to_string();
            assert!(error.starts_with("`filename` is \"last"), "{error}");
            let without = CheckpointOptions { save_last: SaveLast::Copy(false), ..named(filename) };
            Checkpoint::new(without).unwrap();
        }
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("last")).unwrap();
        // Another run has taken `last`, so this run uses `last-v1`, the name that the second epoch would
        // have.
        let options = CheckpointOptions { auto_insert_metric_name: false, ..named("last-v{epoch}") };
        saving(root.path(), epochs(2), options).fit(&mut Toy::default(), &mut data(1, 0)).unwrap();
        assert_eq!(listed(root.path()), ["last", "last-v1", "last-v1-v1"]);
        assert_eq!(read(&root.path().join("last-v1-v1")).unwrap().progress.step, 2);
        assert_eq!(read(&root.path().join("last-v1")).unwrap().progress.step, 2);
    }
}

#[test]
fn a_name_that_is_taken_gets_a_version() {
    let root = tempfile::tempdir().unwrap();
    let options = || CheckpointOptions {
        filename: Some("model".into()),
        save_top_k: Some(-1),
        ..CheckpointOptions::default()
    };
    saving(root.path(), epochs(2), options()).fit(&mut Toy::default(), &mut data(1, 0)).unwrap();
    assert_eq!(listed(root.path()), ["model", "model-v1"]);
    saving(root.path(), epochs(1), options()).fit(&mut Toy::default(), &mut data(1, 0)).unwrap();
    assert_eq!(listed(root.path()), ["model", "model-v1", "model-v2"]);
}

#[test]
fn a_dry_run_saves_nothing() {
    let root = tempfile::tempdir().unwrap();
    let settings = Settings { fast_dev_run: FastDevRun(1), ..Settings::default() };
    let options = CheckpointOptions {
        every_n_train_steps: Some(1),
        save_last: SaveLast::Copy(true),
        ..CheckpointOptions::default()
    };
    saving(root.path(), settings, options).fit(&mut Toy::default(), &mut data(2, 1)).unwrap();
    assert!(listed(root.path()).is_empty());
    let plan = RunDirectoryOptions::in_dir(root.path().join("runs"));
    let settings = Settings { fast_dev_run: FastDevRun(1), ..Settings::default() };
    trainer(settings).with_run_directory(plan).fit(&mut Toy::default(), &mut data(2, 1)).unwrap();
    assert!(listed(root.path()).is_empty());
}

#[test]
fn weights_only_are_loaded_without_hooks_and_training_starts_from_step_0() {
    let root = tempfile::tempdir().unwrap();
    let call_log = CallLog::default();
    let options = CheckpointOptions { save_weights_only: true, ..CheckpointOptions::default() };
    let mut trainer = saving(root.path(), epochs(1), options);
    trainer.add_hook(Recorder::new("a", &call_log)).unwrap();
    let mut toy = Toy::default();
    trainer.fit(&mut toy, &mut data(2, 0)).unwrap();
    assert!(!call_log.places("hook:a").contains(&"state_dict"));
    assert_eq!(
        listed(&root.path().join("epoch=0-step=2")),
        ["manifest.json", "state.json", "weights.safetensors"]
    );

    let mut trainer = crate::lab::trainer(epochs(1)).restoring(root.path().join("epoch=0-step=2"));
    trainer.add_hook(Recorder::new("b", &call_log)).unwrap();
    let seen = SharedVec::new();
    let starts = seen.clone();
    trainer
        .add_hook(closure::on_train_start("start", move |cx| {
            starts.push((cx.step, cx.params().by_name("bias").unwrap().to_vec()));
        }))
        .unwrap();
    trainer.fit(&mut Toy::default(), &mut data(2, 0)).unwrap();
    assert_eq!(seen.take(), [(0, toy.param("bias").to_vec())]);
    let places = call_log.places("hook:b");
    assert!(!places.contains(&"load_state_dict") && places.contains(&"on_checkpoint_loaded"));
}

#[test]
fn a_save_is_announced_at_the_next_step_boundary_with_its_place() {
    let root = tempfile::tempdir().unwrap();
    let options = CheckpointOptions {
        every_n_train_steps: Some(2),
        save_top_k: Some(-1),
        ..CheckpointOptions::default()
    };
    let mut trainer = saving(root.path(), epochs(1), options);
    let seen = SharedVec::new();
    let (steps, ends, saves) = (seen.clone(), seen.clone(), seen.clone());
    let here = root.path().to_owned();
    trainer.add_hook(closure::on_step_end("step", move |cx| steps.push(("step", cx.step)))).unwrap();
    trainer
        .add_hook(closure::on_checkpoint_saved("saved", move |cx| {
            assert_eq!(cx.root, here);
            assert_eq!(cx.path, here.join(format!("epoch=0-step={}", cx.saved_step)));
            assert!(cx.path.join("state.json").is_file());
            saves.push(("saved", cx.saved_step));
        }))
        .unwrap();
    trainer.add_hook(closure::on_train_end("end", move |cx| ends.push(("end", cx.step)))).unwrap();
    trainer.fit(&mut Toy::default(), &mut data(4, 1)).unwrap();
    assert_eq!(
        seen.take(),
        [("step", 1), ("step", 2), ("saved", 2), ("step", 3), ("step", 4), ("saved", 4), ("end", 4)]
    );
}

#[test]
fn every_save_is_announced_also_at_the_end_and_after_a_failure() {
    let root = tempfile::tempdir().unwrap();
    let call_log = CallLog::default();
    let mut trainer = trainer(epochs(1)).with_checkpoints_in(root.path());
    trainer.add_hook(Recorder::new("a", &call_log)).unwrap();
    let save = |name: &str| SaveRequest { path: Some(name.into()), ..SaveRequest::default() };
    let at_end = Decision::CONTINUE.request(Request::Save(save("end")));
    trainer.add_hook(closure::on_train_end("saver", move |_| at_end.clone())).unwrap();
    trainer.fit(&mut Toy::default(), &mut data(1, 0)).unwrap();
    let places = call_log.places("hook:a");
    let saved = places.iter().position(|place| *place == "on_checkpoint_saved").unwrap();
    assert_eq!(places[saved - 1..], ["on_save_checkpoint", "on_checkpoint_saved", "on_fit_end", "teardown"]);

    let call_log = CallLog::default();
    let options = CheckpointOptions { save_on_exception: true, ..CheckpointOptions::default() };
    let mut trainer = saving(root.path(), epochs(1), options);
    trainer.add_hook(Recorder::new("a", &call_log)).unwrap();
    call_log.fails_at("module", "on_step_end");
    trainer.fit(&mut Lab::new(Toy::default(), &call_log), &mut data(1, 0)).unwrap_err();
    let places = call_log.places("hook:a");
    let told = places.iter().position(|place| *place == "on_exception").unwrap();
    assert_eq!(
        places[told..],
        ["on_exception", "state_dict", "on_save_checkpoint", "on_checkpoint_saved", "teardown"]
    );
    assert_eq!(listed(root.path()), ["end", "epoch=0-step=1"]);
}

#[test]
fn an_error_of_a_restore_names_the_file_and_the_cause() {
    let root = tempfile::tempdir().unwrap();
    let refusal = |path: &Path| {
        let mut trainer = trainer(epochs(1)).restoring(path);
        trainer.fit(&mut Toy::default(), &mut data(1, 0)).unwrap_err().to_string()
    };
    let nowhere = refusal(&root.path().join("nowhere"));
    assert!(nowhere.contains("there is no checkpoint ") && nowhere.contains("nowhere"), "{nowhere}");
    std::fs::write(root.path().join("state.json"), "{").unwrap();
    let damaged = refusal(root.path());
    assert!(damaged.contains("state.json is damaged"), "{damaged}");
}

#[test]
fn a_run_that_has_diverged_can_be_restored() {
    let root = tempfile::tempdir().unwrap();
    let mut trainer = saving(root.path(), epochs(1), CheckpointOptions::default());
    trainer
        .add_hook(closure::on_train_batch_end("diverge", |cx| {
            cx.log("nan", f64::NAN);
            cx.log("inf", f64::INFINITY);
        }))
        .unwrap();
    trainer.fit(&mut Toy::default(), &mut data(1, 0)).unwrap();
    let mut trainer =
        crate::lab::trainer(epochs(1)).accepting_other_hooks().restoring(root.path().join("epoch=0-step=1"));
    let report = trainer.fit(&mut Toy::default(), &mut data(1, 0)).unwrap();
    assert!(report.metrics["nan"].is_nan() && report.metrics["inf"].is_infinite());
}

#[test]
fn two_checkpoint_hooks_of_a_run_use_different_names() {
    let root = tempfile::tempdir().unwrap();
    let options = CheckpointOptions {
        save_top_k: Some(-1),
        save_last: SaveLast::Copy(true),
        ..CheckpointOptions::default()
    };
    let mut trainer = saving(root.path(), epochs(2), options.clone());
    let second = Registration { name: Some("second".into()), ..Registration::default() };
    trainer.register(Checkpoint::new(options).unwrap(), second).unwrap();
    trainer.fit(&mut Toy::default(), &mut data(1, 0)).unwrap();
    let each = ["epoch=0-step=1", "epoch=0-step=1-v1", "epoch=1-step=2", "epoch=1-step=2-v1"];
    assert_eq!(listed(root.path()), [&each[..], &["last", "last-v1"]].concat());
}

#[test]
fn a_resumed_run_drops_deleted_checkpoints_and_reports_them() {
    let root = tempfile::tempdir().unwrap();
    let options = || CheckpointOptions { save_top_k: Some(-1), ..CheckpointOptions::default() };
    saving(root.path(), epochs(2), options()).fit(&mut Toy::default(), &mut data(1, 0)).unwrap();
    std::fs::remove_dir_all(root.path().join("epoch=0-step=1")).unwrap();
    let mut trainer = saving(root.path(), epochs(3), options()).restoring(root.path().join("epoch=1-step=2"));
    let report = trainer.fit(&mut Toy::default(), &mut data(1, 0)).unwrap();
    let said: Vec<_> = report.notices.iter().map(ToString::to_string).collect();
    assert!(said.iter().any(|said| said.contains("`epoch=0-step=1` no longer exists")), "{said:?}");
    assert_eq!(listed(root.path()), ["epoch=1-step=2", "epoch=2-step=3"]);
}
