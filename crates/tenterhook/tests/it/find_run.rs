//! Finding the run and the checkpoint to resume from, and whether the run is finished.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde_json::json;
use tenterhook::checkpoint::OnUnreadable;
use tenterhook::config::{Config, Sources};
use tenterhook::hooks::{Checkpoint, CheckpointOptions};
use tenterhook::registry::Registry;
use tenterhook::run::ownership::Signer;
use tenterhook::run::resume::{ResumeConfig, ResumeTarget, find as find_or_skip};
use tenterhook::run::{RunDirectoryOptions, RunLock, Runs, holder};
use tenterhook::task::AnyTask;
use tenterhook::toy::{Toy, ToyData, ToyTask};
use tenterhook::{Decision, Registration, Settings, Trainer, closure};

use crate::lab::data;
use crate::run_directory::latest;

fn find(runs_dir: &Path, what: &str, config: Option<ResumeConfig<'_>>) -> Result<ResumeTarget, String> {
    find_or_skip(runs_dir, what, config, OnUnreadable::Stop).map_err(|error| error.to_string())
}

const CONFIG: &str = "task = \"toy\"\n[trainer]\nmax_epochs = 2\nmax_time = \"1 h\"\n[optimizer]\nlr = 0.25\n\
                      [[hooks]]\nuse = \"early_stopping\"\nmonitor = \"val/loss\"\n";

fn resolved(root: &Path, sets: &[&str]) -> Config {
    let file = root.join("my.toml");
    fs::write(&file, CONFIG).unwrap();
    let tasks: Vec<Box<dyn AnyTask>> = vec![Box::new(ToyTask)];
    let sets = sets.iter().map(|set| (*set).to_owned()).collect();
    let sources = Sources { sets, ..Sources::file(file) };
    sources.resolve(&tasks, &Registry::default()).unwrap()
}

/// A trainer of this configuration that saves at every step.
fn trainer(root: &Path, sets: &[&str]) -> Trainer {
    let resolved = resolved(root, sets);
    let plan = RunDirectoryOptions {
        config: resolved.to_toml(),
        signer: Signer::None,
        ..RunDirectoryOptions::in_dir(root.join("runs"))
    };
    let mut trainer = resolved.bare_trainer(&Registry::default()).unwrap().with_notices(|_| {});
    let options = CheckpointOptions {
        every_n_train_steps: Some(1),
        save_top_k: Some(-1),
        ..CheckpointOptions::default()
    };
    trainer.add_hook(Checkpoint::new(options).unwrap()).unwrap();
    trainer.with_run_directory(plan)
}

/// A run that failed in its third step.
fn failed(root: &Path, sets: &[&str]) -> PathBuf {
    let mut trainer = trainer(root, sets);
    let fail = closure::on_train_batch_start("fail", |cx| {
        assert!(cx.step < 2, "enough");
        Decision::CONTINUE
    });
    trainer.add_hook(fail).unwrap();
    trainer.fit(&mut Toy::default(), &mut data(4, 1)).unwrap_err();
    latest(root)
}

fn completed(root: &Path, sets: &[&str]) -> PathBuf {
    trainer(root, sets).fit(&mut Toy::default(), &mut data(2, 1)).unwrap();
    latest(root)
}

fn find_with(root: &Path, what: &str, sets: &[&str]) -> Result<ResumeTarget, String> {
    let resolved = resolved(root, sets);
    let rules = resolved.change_rules(&Registry::default());
    find(&root.join("runs"), what, Some((&resolved.to_json(), &rules)))
}

fn auto(root: &Path, sets: &[&str]) -> ResumeTarget {
    find_with(root, "auto", sets).unwrap()
}

/// Whether a new run begins.
fn nothing(found: &ResumeTarget) -> bool {
    found.run_dir.is_none() && found.lock.is_none() && found.checkpoint.is_none() && found.finished.is_none()
}

fn name(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

#[test]
fn the_configuration_in_a_run_directory_resolves_to_the_original() {
    let root = tempfile::tempdir().unwrap();
    let resolved = resolved(root.path(), &[]);
    let written: toml::Table = resolved.to_toml().parse().unwrap();
    let rules = resolved.change_rules(&Registry::default());
    let all = rules.changes(&serde_json::to_value(written).unwrap(), &resolved.to_json());
    assert!(all.is_empty(), "{all:?}");
}

#[test]
fn auto_selects_the_newest_run_with_a_compatible_configuration() {
    let root = tempfile::tempdir().unwrap();
    assert!(nothing(&auto(root.path(), &[])), "there are no runs");
    let first = failed(root.path(), &[]);
    let second = failed(root.path(), &["optimizer.lr=0.5"]);
    let found = auto(root.path(), &["trainer.log_every_n_steps=1"]);
    assert_eq!((found.run_dir.as_ref(), found.finished), (Some(&first), None));
    assert_eq!(name(found.checkpoint.as_ref().unwrap()), "epoch=0-step=2");
    assert_eq!(auto(root.path(), &["optimizer.lr=0.5"]).run_dir, Some(second));
    assert!(nothing(&auto(root.path(), &["optimizer.lr=0.75"])));
}

#[test]
fn the_newest_run_is_the_one_that_was_started_last() {
    let root = tempfile::tempdir().unwrap();
    let first = failed(root.path(), &[]);
    let second = failed(root.path(), &[]);
    assert_eq!(auto(root.path(), &[]).run_dir, Some(second));
    let mut record = crate::run_directory::run_json(&first);
    record["parts"].as_array_mut().unwrap().push(json!({ "started": "9999-01-01T00:00:00.000Z" }));
    fs::write(first.join("run.json"), record.to_string()).unwrap();
    assert_eq!(auto(root.path(), &[]).run_dir, Some(first));
}

#[test]
fn a_changed_option_of_a_controller_is_refused_like_any_other_change() {
    let root = tempfile::tempdir().unwrap();
    let noise = |std: f64| {
        let config = format!("hooks_config.hook_configs={{gradient_noise={{std={std}}}}}");
        ["hooks_config.hook_classes=[\"gradient_noise\"]".to_owned(), config]
    };
    let run = failed(root.path(), &noise(0.25).each_ref().map(String::as_str));
    let checkpoint = run.join("checkpoints/epoch=0-step=2");
    let resume = |std: f64, accepts: bool| {
        let trainer = trainer(root.path(), &noise(std).each_ref().map(String::as_str)).restoring(&checkpoint);
        let trainer = trainer.accepting_other_hooks();
        let mut trainer = if accepts { trainer.accepting_changes() } else { trainer };
        trainer.fit(&mut Toy::default(), &mut data(4, 1)).map(|_| ()).map_err(|error| error.to_string())
    };
    let refused = resume(0.5, false).unwrap_err();
    assert!(refused.contains("\n  hooks.gradient_noise.std: 0.25 -> 0.5\n"), "{refused}");
    resume(0.25, false).unwrap();
    resume(0.5, true).unwrap();
    assert!(nothing(&auto(root.path(), &noise(0.75).each_ref().map(String::as_str))));
}

#[test]
fn a_damaged_checkpoint_is_skipped_and_named() {
    let root = tempfile::tempdir().unwrap();
    let run = failed(root.path(), &[]);
    let newest = run.join("checkpoints/epoch=0-step=2");
    let weights = newest.join("weights.safetensors");
    let bytes = fs::read(&weights).unwrap();
    fs::write(&weights, &bytes[..bytes.len() - 1]).unwrap();
    let found = auto(root.path(), &[]);
    assert_eq!(name(found.checkpoint.as_ref().unwrap()), "epoch=0-step=1");
    assert_eq!((found.skipped.len(), &found.skipped[0].0), (1, &newest));
    drop(found);
    fs::remove_dir_all(run.join("checkpoints")).unwrap();
    let found = auto(root.path(), &[]);
    assert_eq!((found.run_dir, found.checkpoint), (Some(run), None), "it begins from the start, there");
}

#[test]
fn a_skipped_checkpoint_is_set_aside_so_that_the_resumed_run_can_save_under_its_name() {
    let root = tempfile::tempdir().unwrap();
    let run = failed(root.path(), &[]);
    let checkpoints = run.join("checkpoints");
    let newest = checkpoints.join("epoch=0-step=2");
    make_unreadable(&newest);
    let found = find_or_skip(&root.path().join("runs"), "latest", None, OnUnreadable::Skip).unwrap();
    assert_eq!(found.checkpoint, Some(checkpoints.join("epoch=0-step=1")));
    assert!(newest.is_dir(), "nothing changes before the resume is accepted");
    let resolved = resolved(root.path(), &[]);
    let plan = RunDirectoryOptions {
        config: resolved.to_toml(),
        signer: Signer::None,
        resume: found.lock,
        ..RunDirectoryOptions::in_dir(root.path().join("runs"))
    };
    let notices = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&notices);
    let trainer = trainer(root.path(), &[]).with_run_directory(plan).restoring(found.checkpoint.unwrap());
    let mut trainer = trainer
        .accepting_other_hooks()
        .with_notices(move |notice| told.lock().unwrap().push(notice.to_string()));
    trainer.fit(&mut Toy::default(), &mut data(4, 1)).unwrap();
    drop(trainer);
    let aside = checkpoints.join(".epoch=0-step=2.unreadable");
    assert!(aside.join("manifest.json").is_dir(), "it is kept");
    let notices = notices.lock().unwrap().join("\n");
    assert!(notices.contains(&format!("was set aside as {}", aside.display())), "{notices}");
    tenterhook::checkpoint::verify(&newest).expect("saved again");
    let found = auto(root.path(), &[]);
    assert!(found.finished.is_some() && found.skipped.is_empty(), "the next resume finds nothing unreadable");
}

#[test]
fn a_damaged_checkpoint_without_a_manifest_is_set_aside_when_its_name_is_needed() {
    let root = tempfile::tempdir().unwrap();
    let run = failed(root.path(), &[]);
    let checkpoints = run.join("checkpoints");
    let [needed, other] = ["epoch=0-step=2", "older"].map(|name| checkpoints.join(name));
    fs::create_dir(&other).unwrap();
    for file in fs::read_dir(&needed).unwrap().map(|entry| entry.unwrap().path()) {
        fs::copy(&file, other.join(file.file_name().unwrap())).unwrap();
    }
    fs::remove_file(other.join("manifest.json")).unwrap();
    fs::write(needed.join("manifest.json"), "{").unwrap();
    let found = auto(root.path(), &[]);
    assert_eq!(found.checkpoint, Some(checkpoints.join("epoch=0-step=1")));
    let plan = RunDirectoryOptions {
        config: resolved(root.path(), &[]).to_toml(),
        signer: Signer::None,
        resume: found.lock,
        ..RunDirectoryOptions::in_dir(root.path().join("runs"))
    };
    let notices = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&notices);
    let trainer = trainer(root.path(), &[]).with_run_directory(plan).restoring(found.checkpoint.unwrap());
    let mut trainer = trainer
        .accepting_other_hooks()
        .with_notices(move |notice| told.lock().unwrap().push(notice.to_string()));
    trainer.fit(&mut Toy::default(), &mut data(4, 1)).unwrap();
    drop(trainer);
    let aside = checkpoints.join(".epoch=0-step=2.unreadable");
    assert_eq!(fs::read_to_string(aside.join("manifest.json")).unwrap(), "{", "it is kept");
    let notices = notices.lock().unwrap().join("\n");
    let told = format!("{} is damaged: it has no manifest", needed.display());
    assert!(
        notices.contains(&told) && notices.contains(&format!("set aside as {}", aside.display())),
        "{notices}"
    );
    tenterhook::checkpoint::verify(&needed).expect("saved again");
    assert!(other.join("state.json").is_file(), "no save needs its name");
}

/// Makes the manifest of a checkpoint unreadable, also for root.
fn make_unreadable(checkpoint: &Path) {
    fs::remove_file(checkpoint.join("manifest.json")).unwrap();
    fs::create_dir(checkpoint.join("manifest.json")).unwrap();
}

#[test]
fn a_skipped_checkpoint_is_set_aside_in_every_directory_in_which_the_run_keeps_some() {
    let (root, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let elsewhere = elsewhere.path();
    let keeping = |resume: Option<RunLock>| {
        let plan = RunDirectoryOptions { resume, ..RunDirectoryOptions::in_dir(root.path().join("runs")) };
        let mut trainer = crate::lab::trainer(crate::lab::epochs(1)).with_run_directory(plan);
        for (name, dirpath) in [("near", None), ("far", Some(elsewhere.to_owned()))] {
            let (every_n_train_steps, save_top_k) = (Some(1), Some(-1));
            let options = CheckpointOptions {
                every_n_train_steps,
                save_top_k,
                dirpath,
                ..CheckpointOptions::default()
            };
            let how = Registration { name: Some(name.into()), ..Registration::default() };
            trainer.register(Checkpoint::new(options).unwrap(), how).unwrap();
        }
        trainer
    };
    let mut first = keeping(None);
    let fail = closure::on_train_batch_start("fail", |cx| {
        assert!(cx.step < 2, "enough");
        Decision::CONTINUE
    });
    first.add_hook(fail).unwrap();
    first.fit(&mut Toy::default(), &mut data(4, 1)).unwrap_err();
    drop(first);
    let near = latest(root.path()).join("checkpoints");
    let [one, two] = ["epoch=0-step=1", "epoch=0-step=2"];
    // Checkpoints of other runs are left alone.
    let foreign = elsewhere.join("foreign");
    fs::create_dir(&foreign).unwrap();
    fs::copy(elsewhere.join(one).join("manifest.json"), foreign.join("manifest.json")).unwrap();
    for unreadable in [&near.join(two), &elsewhere.join(one), &elsewhere.join(two), &foreign] {
        make_unreadable(unreadable);
    }
    let found = find_or_skip(&root.path().join("runs"), "latest", None, OnUnreadable::Skip).unwrap();
    assert_eq!(found.checkpoint, Some(near.join(one)));
    let mut again = keeping(found.lock).accepting_other_hooks().restoring(found.checkpoint.unwrap());
    again.fit(&mut Toy::default(), &mut data(4, 1)).unwrap();
    for aside in [near.join(two), elsewhere.join(one), elsewhere.join(two)] {
        let aside = aside.with_file_name(format!(".{}.unreadable", name(&aside)));
        assert!(aside.join("manifest.json").is_dir(), "{} is kept", aside.display());
    }
    assert!(foreign.join("manifest.json").is_dir());
    for saved in [near.join(two), elsewhere.join(two)] {
        tenterhook::checkpoint::verify(&saved).expect("saved again");
    }
}

#[test]
fn a_finished_run_is_reported_unless_its_limit_is_raised() {
    let root = tempfile::tempdir().unwrap();
    let run = completed(root.path(), &[]);
    let finished = auto(root.path(), &[]).finished.expect("it is");
    let text = finished.to_string();
    assert!(text.contains("is completed after 2 epochs and 4 steps"), "{text}");
    for limit in ["trainer.max_epochs=3", "trainer.max_steps=100", "trainer.max_time=\"2 h\""] {
        let found = auto(root.path(), &[limit]);
        assert_eq!((found.run_dir.as_ref(), found.finished), (Some(&run), None), "{limit}");
    }
    assert!(find(&root.path().join("runs"), "latest", None).unwrap().finished.is_some());
}

#[test]
fn a_run_is_found_by_its_name_and_by_a_path_and_a_checkpoint_by_its_path() {
    let root = tempfile::tempdir().unwrap();
    let runs = root.path().join("runs");
    let (first, second) = (failed(root.path(), &[]), failed(root.path(), &[]));
    let dir = |what: &str| find(&runs, what, None).unwrap().run_dir.unwrap().canonicalize().unwrap();
    let real = |path: &Path| path.canonicalize().unwrap();
    assert_eq!((dir("latest"), dir("latest~1")), (real(&second), real(&first)));
    assert_eq!((dir(name(&first)), dir(second.to_str().unwrap())), (real(&first), real(&second)));
    let checkpoint = first.join("checkpoints/epoch=0-step=1");
    let found = find(&runs, checkpoint.to_str().unwrap(), None).unwrap();
    assert_eq!((found.run_dir, found.checkpoint), (Some(real(&first)), Some(real(&checkpoint))));
    let outside = root.path().join("kept");
    fs::rename(&checkpoint, &outside).unwrap();
    let found = find(&runs, outside.to_str().unwrap(), None).unwrap();
    assert_eq!((found.run_dir, found.checkpoint), (None, Some(real(&outside))), "it begins a run of its own");
    let error = find(&runs, "nonsense", None).unwrap_err();
    assert!(error.contains("no run is called `nonsense`"), "{error}");
    let error = find(&runs, root.path().to_str().unwrap(), None).unwrap_err();
    assert!(error.contains("neither a checkpoint nor a run"), "{error}");
}

#[test]
fn resuming_a_run_in_use_is_refused_with_its_holder() {
    let root = tempfile::tempdir().unwrap();
    let mut trainer = trainer(root.path(), &[]);
    trainer.fit(&mut Toy::default(), &mut data(2, 1)).unwrap();
    let run = latest(root.path());
    assert!(holder(&run).is_some());
    let checkpoint = run.join("checkpoints/latest");
    for what in ["auto", "latest", checkpoint.to_str().unwrap()] {
        let error = find_with(root.path(), what, &[]).unwrap_err();
        assert!(error.contains(name(&run)) && error.contains("is in use by"), "{what}: {error}");
    }
    drop(trainer);
    assert!(find_with(root.path(), "auto", &[]).is_ok());
}

#[test]
fn a_found_run_is_locked_and_a_second_resume_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let run = failed(root.path(), &[]);
    let runs = root.path().join("runs");
    let first = auto(root.path(), &[]);
    let before = contents(&run);
    let checkpoint = run.join("checkpoints/latest");
    for what in ["auto", "latest", checkpoint.to_str().unwrap()] {
        let error = find_with(root.path(), what, &[]).unwrap_err();
        assert!(error.contains("is in use by"), "{what}: {error}");
    }
    let error = RunLock::acquire(&run).unwrap_err().to_string();
    assert!(error.contains("is in use by"), "{error}");
    assert_eq!(contents(&run), before);
    let plan = RunDirectoryOptions { resume: first.lock, ..RunDirectoryOptions::default() };
    let trainer = Trainer::new(Settings::default()).unwrap().with_run_directory(plan);
    assert_eq!(trainer.run_info().directory.as_ref(), Some(&run));
    assert!(find(&runs, "auto", None).is_err(), "the trainer holds it");
    drop(trainer);
    assert!(find(&runs, "auto", None).unwrap().lock.is_some());
}

/// Every file below a directory, with its content.
fn contents(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(contents(&path));
        } else {
            all.push((path.clone(), fs::read(&path).unwrap()));
        }
    }
    all.sort();
    all
}

#[test]
fn an_evaluation_cannot_be_resumed() {
    let root = tempfile::tempdir().unwrap();
    let resolved = resolved(root.path(), &[]);
    let plan = RunDirectoryOptions {
        config: resolved.to_toml(),
        for_evaluations: true,
        ..RunDirectoryOptions::in_dir(root.path().join("runs"))
    };
    let mut trainer =
        resolved.bare_trainer(&Registry::default()).unwrap().with_notices(|_| {}).with_run_directory(plan);
    trainer.test(&mut Toy::default(), &mut ToyData::default()).unwrap();
    drop(trainer);
    assert!(nothing(&auto(root.path(), &[])));
}

#[test]
fn auto_stops_at_an_unreadable_run_and_skips_a_damaged_one() {
    for file in ["run.json", "config.toml", "events.jsonl"] {
        let root = tempfile::tempdir().unwrap();
        let older = failed(root.path(), &[]);
        let run = failed(root.path(), &[]);
        let path = run.join(file);
        let bytes = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        let error = find_with(root.path(), "auto", &[]).unwrap_err();
        assert!(error.contains(&format!("cannot read {}: is a directory", path.display())), "{error}");
        assert!(error.contains("`--skip-unreadable`"), "{error}");
        let skipping = || {
            let resolved = resolved(root.path(), &[]);
            let rules = resolved.change_rules(&Registry::default());
            let config = Some((&resolved.to_json(), &rules));
            find_or_skip(&root.path().join("runs"), "auto", config, OnUnreadable::Skip)
        };
        let found = skipping().unwrap();
        assert_eq!((found.run_dir.as_ref(), found.skipped.len()), (Some(&older), 1), "{file}");
        assert_eq!(found.skipped[0].0, path);
        drop(found);
        fs::remove_dir_all(&older).unwrap();
        skipping().expect_err("that no run fits is not known");
        fs::remove_dir(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        let found = auto(root.path(), &[]);
        assert_eq!(found.run_dir, (file == "events.jsonl").then_some(run), "{file} is damaged");
    }
}

#[test]
fn a_finished_run_whose_configuration_cannot_be_read_is_not_resumed_as_if_it_had_none() {
    let root = tempfile::tempdir().unwrap();
    let path = completed(root.path(), &[]).join("config.toml");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let error = find_with(root.path(), "latest", &[]).unwrap_err();
    assert!(error.contains(&format!("cannot read {}", path.display())), "{error}");
}

#[test]
fn a_path_to_latest_leads_to_the_run_whose_start_was_killed_before_the_link_did() {
    let root = tempfile::tempdir().unwrap();
    let [first, second] = [(); 2].map(|()| failed(root.path(), &[]));
    let link = root.path().join("runs/latest");
    fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(name(&first), &link).unwrap();
    let resolve = |what: &str| Runs::resolve(&root.path().join("runs"), what).unwrap().directory;
    assert_eq!([resolve("latest"), resolve(link.to_str().unwrap())], [first.clone(), first]);
    let pending = root.path().join(format!("runs/.latest-{}", name(&second)));
    std::os::unix::fs::symlink(name(&second), pending).unwrap();
    assert_eq!([resolve("latest"), resolve(link.to_str().unwrap())], [second.clone(), second.clone()]);
    let found = find(root.path(), link.to_str().unwrap(), None).unwrap();
    assert_eq!(found.run_dir, Some(second));
}
