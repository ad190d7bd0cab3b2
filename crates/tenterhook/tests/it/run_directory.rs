//! The run directory: its creation, its files, and write errors.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tenterhook::hooks::{Checkpoint, CheckpointOptions};
use tenterhook::run::ownership::{Signer, confirm};
use tenterhook::run::{CallEnd, JournalEntry, MetricsLine, Recorder, RunDirectoryOptions};
use tenterhook::toy::Toy;
use tenterhook::{BoxError, Decision, Outcome, RunError, RunNotice, Settings, TensorMap, Trainer, closure};

use crate::lab::{bits, data, epochs, trainer};

pub fn plan(root: &Path) -> RunDirectoryOptions {
    RunDirectoryOptions {
        config: "task = \"toy\"\n".into(),
        task: Some("toy".into()),
        device: Some("cpu:7".into()),
        signer: Signer::None,
        ..RunDirectoryOptions::in_dir(root.join("runs"))
    }
}

pub fn recorded(root: &Path, settings: Settings) -> Trainer {
    trainer(settings).with_run_directory(plan(root))
}

pub fn run_json(directory: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(directory.join("run.json")).unwrap()).unwrap()
}

/// The run directory that `latest` links to.
pub fn latest(root: &Path) -> PathBuf {
    let runs = root.join("runs");
    runs.join(std::fs::read_link(runs.join("latest")).unwrap())
}

fn listed(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_run_leaves_a_directory_with_everything_in_it() {
    let root = tempfile::tempdir().unwrap();
    let mut trainer = recorded(root.path(), Settings { seed: 5, ..epochs(2) });
    trainer.add_hook(Checkpoint::new(CheckpointOptions::default()).unwrap()).unwrap();
    let mut toy = Toy::default();
    trainer.fit(&mut toy, &mut data(4, 1)).unwrap();
    let directory = latest(root.path());
    assert_eq!(trainer.run_info().directory.as_ref(), Some(&directory));
    assert_eq!(
        listed(&directory),
        [
            "checkpoints",
            "config.toml",
            "events.jsonl",
            "lock",
            "metrics.jsonl",
            "run.json",
            "weights.safetensors"
        ]
    );
    assert_eq!(listed(&directory.join("checkpoints")), ["epoch=1-step=8", "latest"]);
    assert_eq!(listed(&root.path().join("runs")).len(), 2, "the run, the link, and nothing unfinished");
    assert_eq!(std::fs::read_to_string(directory.join("config.toml")).unwrap(), "task = \"toy\"\n");
    let weights = TensorMap::read(&directory.join("weights.safetensors")).unwrap();
    let of = |name: &str, size| weights.f32(name, &[size]).unwrap();
    let saved: Vec<_> = of("weight", 2).into_iter().chain(of("bias", 1)).map(f32::to_bits).collect();
    assert_eq!(saved, bits(&toy));
}

#[test]
fn run_json_says_what_the_run_was_and_how_it_ended() {
    let root = tempfile::tempdir().unwrap();
    let mut trainer = recorded(root.path(), Settings { seed: 5, ..epochs(2) });
    let during = root.path().to_owned();
    trainer
        .add_hook(closure::on_train_start("look", move |_| {
            let run = run_json(&latest(&during));
            assert_eq!(
                (&run["status"], &run["ended"], &run["steps"]),
                (&"running".into(), &Value::Null, &0.into())
            );
        }))
        .unwrap();
    trainer.fit(&mut Toy::default(), &mut data(4, 1)).unwrap();
    let directory = latest(root.path());
    let run = run_json(&directory);
    for (key, expected) in [
        ("format", Value::from(1)),
        ("id", directory.file_name().unwrap().to_str().unwrap().into()),
        ("status", "completed".into()),
        ("task", "toy".into()),
        ("device", "cpu:7".into()),
        ("seed", 5.into()),
        ("parameters", 3.into()),
        ("steps", 8.into()),
        ("epochs", 2.into()),
        ("samples", 32.into()),
        ("config_hash", "blake3:c0b2b780f0338964f4d02d93ee842fc54f1b38e96f962228ac769b365c7b4103".into()),
    ] {
        assert_eq!(run[key], expected, "{key}");
    }
    assert!(run["metrics"]["val/loss"].is_f64(), "{run}");
    assert_eq!(run["hooks"][0]["name"], "look");
    assert_eq!(
        (&run["hooks"][0]["enabled"], &run["hooks"][0]["on_error"]),
        (&true.into(), &"disable".into())
    );
    assert_eq!(run["versions"]["engine"], "toy");
    assert!(run["versions"]["rustc"].as_str().unwrap().starts_with("rustc "), "{}", run["versions"]);
    assert!(run["git"]["commit"].is_string() && run["machine"]["cpus"].as_u64() > Some(0), "{run}");
    assert!(run["created"].as_str().unwrap() <= run["ended"].as_str().unwrap());
    assert!(run["seconds"].as_f64().unwrap() >= 0.0);
    assert!(!run["command"].as_array().unwrap().is_empty());
}

#[test]
fn the_hash_of_a_configuration_is_that_of_the_plan() {
    let root = tempfile::tempdir().unwrap();
    let plan = RunDirectoryOptions { config_hash: Some("blake3:00ff".into()), ..plan(root.path()) };
    let mut trainer = trainer(epochs(1)).with_run_directory(plan);
    trainer.fit(&mut Toy::default(), &mut data(1, 0)).unwrap();
    assert_eq!(run_json(&latest(root.path()))["config_hash"], "blake3:00ff");
}

#[test]
fn without_a_configuration_the_settings_are_hashed() {
    let root = tempfile::tempdir().unwrap();
    let hash = |settings: Settings| {
        let plan = RunDirectoryOptions::in_dir(root.path().join("runs"));
        trainer(settings).with_run_directory(plan).fit(&mut Toy::default(), &mut data(1, 0)).unwrap();
        run_json(&latest(root.path()))["config_hash"].as_str().unwrap().to_owned()
    };
    assert_eq!(hash(epochs(1)), hash(epochs(1)));
    assert_ne!(hash(epochs(1)), hash(epochs(2)));
}

#[test]
fn a_latest_that_cannot_be_replaced_is_reported_and_the_run_continues() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(root.path().join("runs/latest/mine")).unwrap();
    let mut trainer = recorded(root.path(), epochs(1));
    let report = trainer.fit(&mut Toy::default(), &mut data(1, 0)).unwrap();
    let told: Vec<_> = report.notices.iter().map(ToString::to_string).collect();
    assert!(
        told.iter().any(|notice| notice.contains("cannot link") && notice.contains("latest")),
        "{told:?}"
    );
    let directory = trainer.run_info().directory.clone().unwrap();
    assert_eq!(run_json(&directory)["status"], "completed");
    assert_eq!(listed(&root.path().join("runs")).len(), 2, "the run, what was there, and nothing unfinished");
    let events = std::fs::read_to_string(directory.join("events.jsonl")).unwrap();
    assert!(events.contains("\"unwritten\""), "{events}");
}

#[test]
fn a_stop_and_a_failure_are_recorded_in_run_json() {
    let root = tempfile::tempdir().unwrap();
    let mut trainer = recorded(root.path(), epochs(2));
    trainer.add_hook(closure::on_step_end("stop", |_| Decision::stop("enough"))).unwrap();
    trainer.fit(&mut Toy::default(), &mut data(2, 0)).unwrap();
    let run = run_json(&latest(root.path()));
    let said = (&run["status"], &run["by"], &run["reason"]);
    assert_eq!(said, (&"stopped".into(), &"stop".into(), &"enough".into()));

    let mut trainer = recorded(root.path(), epochs(2));
    trainer
        .add_hook(closure::on_step_end("break", |cx| {
            assert!(cx.step < 2, "too far");
            Decision::CONTINUE
        }))
        .unwrap();
    trainer.fit(&mut Toy::default(), &mut data(4, 0)).unwrap_err();
    let failed = latest(root.path());
    let run = run_json(&failed);
    assert_eq!((&run["status"], &run["steps"]), (&"failed".into(), &2.into()));
    assert!(run["error"].as_str().unwrap().contains("too far"), "{run}");
    assert!(!listed(&failed).contains(&"weights.safetensors".to_owned()), "a failed run has no result");
}

#[test]
fn nothing_is_created_before_all_checks() {
    let root = tempfile::tempdir().unwrap();
    let mut trainer = recorded(root.path(), epochs(1));
    trainer.add_hook(closure::on_step_end("reader", |_| ()).reads("val/los")).unwrap();
    trainer.fit(&mut Toy::default(), &mut data(2, 1)).unwrap_err();
    let mut trainer = recorded(root.path(), epochs(0));
    trainer.fit(&mut Toy::default(), &mut data(2, 1)).unwrap();
    let mut trainer = recorded(root.path(), epochs(1));
    trainer.validate(&mut Toy::default(), &mut data(2, 1)).unwrap();
    trainer.test(&mut Toy::default(), &mut data(2, 1)).unwrap();
    assert!(listed(root.path()).is_empty(), "refused, nothing to do, only evaluated");
}

#[test]
fn an_evaluation_has_a_directory_if_configured() {
    let root = tempfile::tempdir().unwrap();
    let plan = RunDirectoryOptions { for_evaluations: true, ..plan(root.path()) };
    let mut trainer = trainer(epochs(1)).with_run_directory(plan);
    trainer.test(&mut Toy::default(), &mut tenterhook::toy::ToyData::default()).unwrap();
    let tested = latest(root.path());
    let run = run_json(&tested);
    assert_eq!(run["status"], "completed");
    assert!(run["metrics"]["test/loss"].is_f64(), "{run}");
    trainer.fit(&mut Toy::default(), &mut data(2, 0)).unwrap();
    assert_ne!(latest(root.path()), tested, "the training is a run of its own");
}

#[test]
fn a_second_training_is_a_separate_run_and_latest_points_at_it() {
    let root = tempfile::tempdir().unwrap();
    let mut trainer = recorded(root.path(), epochs(1));
    trainer.fit(&mut Toy::default(), &mut data(2, 0)).unwrap();
    let first = latest(root.path());
    trainer.fit(&mut Toy::default(), &mut data(3, 0)).unwrap();
    let second = latest(root.path());
    assert_ne!(first, second);
    assert_eq!((&run_json(&first)["steps"], &run_json(&second)["steps"]), (&2.into(), &3.into()));
    assert!(first.file_name() < second.file_name(), "ids are sorted by time");
    assert_eq!(trainer.checkpoints(), second.join("checkpoints"));
}

#[test]
fn a_directory_that_cannot_be_made_ends_the_run_before_its_first_step() {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("runs"), "a file").unwrap();
    let error = recorded(root.path(), epochs(1)).fit(&mut Toy::default(), &mut data(2, 0)).unwrap_err();
    let RunError::Failed { failure, report, .. } = error else { panic!("{error}") };
    assert!(
        failure.to_string().starts_with("cannot make a run directory in ")
            && failure.to_string().contains("choose another `runs_dir`"),
        "{failure}"
    );
    assert_eq!(report.progress.step, 0);
}

/// A recorder that always fails.
struct FullDisk;

impl Recorder for FullDisk {
    fn metrics(&mut self, _: &MetricsLine<'_>) -> Result<(), BoxError> {
        Err("the disk is full".into())
    }
    fn event(&mut self, _: JournalEntry) -> Result<(), BoxError> {
        Err("the disk is full".into())
    }
    fn weights(&mut self, _: &TensorMap) -> Result<(), BoxError> {
        Err("the disk is full".into())
    }
    fn flush(&mut self) -> Result<(), BoxError> {
        Err("the disk is full".into())
    }
    fn end(&mut self, _: &CallEnd<'_>) -> Result<(), BoxError> {
        Err("the disk is full".into())
    }
    fn lost(&self) -> u64 {
        7
    }
}

#[test]
fn a_write_error_is_reported_once_and_fails_the_call_at_its_end() {
    let mut toy = Toy::default();
    let error = trainer(Settings { log_every_n_steps: 1, ..epochs(2) })
        .with_recorder(FullDisk)
        .fit(&mut toy, &mut data(4, 1))
        .unwrap_err();
    let RunError::Failed { failure, later, report } = error else { panic!("{error}") };
    let why = "results of the run could not be written: the disk is full; 7 lines of metrics and events are \
               lost (the disk is full)";
    assert!(failure.to_string().contains(why) && later.is_empty(), "{failure}");
    assert!(matches!(report.outcome, Outcome::Failed { .. }), "{:?}", report.outcome);
    assert_eq!((report.progress.epochs_done, report.lines_lost), (2, 7));
    let told: Vec<_> = report.notices.iter().map(RunNotice::to_string).collect();
    assert_eq!(told, ["the disk is full; the run continues, and lost lines are counted"]);
    let mut alone = Toy::default();
    trainer(epochs(2)).fit(&mut alone, &mut data(4, 1)).unwrap();
    assert_eq!(bits(&toy), bits(&alone));
}

#[test]
fn a_recorded_run_computes_the_same_as_an_unrecorded_one() {
    let root = tempfile::tempdir().unwrap();
    let (mut written, mut not) = (Toy::default(), Toy::default());
    recorded(root.path(), epochs(3)).fit(&mut written, &mut data(4, 2)).unwrap();
    trainer(epochs(3)).fit(&mut not, &mut data(4, 2)).unwrap();
    assert_eq!(bits(&written), bits(&not));
}

/// The id of the run, and the headers that a plain trainer reports in one training run.
fn introductions(make: impl Fn(Trainer) -> Trainer, settings: Settings) -> (String, Vec<String>) {
    let (sender, told) = std::sync::mpsc::channel();
    let mut trainer = make(Trainer::new(settings).unwrap()).with_notices(move |notice| {
        if let RunNotice::Started(introduction) = notice {
            sender.send(introduction.to_string()).unwrap();
        }
    });
    trainer.add_hook(closure::on_fit_end("on", |_| ())).unwrap();
    trainer.add_hook(closure::on_fit_end("off", |_| ())).unwrap();
    trainer.disable_hook("off").unwrap();
    trainer.fit(&mut Toy::default(), &mut data(1, 1)).unwrap();
    (trainer.run_info().id.clone(), told.try_iter().collect())
}

#[test]
fn a_plain_trainer_prints_the_header_of_the_run_unless_disabled() {
    let (id, told) = introductions(|trainer| trainer, epochs(1));
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with(&format!("run {id}\n  commit ")), "{}", told[0]);
    for part in [", config blake3:", ", seed 0", "hooks: on, off (disabled)"] {
        assert!(told[0].contains(part), "{part}: {}", told[0]);
    }
    assert!(introductions(Trainer::without_run_header, epochs(1)).1.is_empty());
    let dry = Settings { fast_dev_run: tenterhook::settings::FastDevRun(1), ..epochs(1) };
    assert!(introductions(|trainer| trainer, dry).1.is_empty(), "a dry run is none to look for later");
}

const OWN_PROCESS: &str = "TENTERHOOK_TEST_RUNS_BELOW";

/// Runs a test of this file again, in a process whose key is below this directory.
fn in_own_process(test: &str, root: &Path) {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("run_directory::{test}"), "--nocapture"]);
    let output = command.env(OWN_PROCESS, root).env("XDG_CONFIG_HOME", root.join("home")).output().unwrap();
    let printed = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && printed.contains("1 passed"), "{printed}");
}

#[test]
fn a_trainer_of_a_configuration_keeps_its_signed_run_below_runs_dir() {
    let Some(root) = std::env::var_os(OWN_PROCESS).map(PathBuf::from) else {
        let root = tempfile::tempdir().unwrap();
        return in_own_process(
            "a_trainer_of_a_configuration_keeps_its_signed_run_below_runs_dir",
            root.path(),
        );
    };
    let (file, runs, key) = (root.join("c.toml"), root.join("my_runs"), root.join("home/tenterhook/key"));
    std::fs::write(
        &file,
        format!("runs_dir = {:?}\n[trainer]\nmax_epochs = 1\n", runs.display().to_string()),
    )
    .unwrap();
    let config = tenterhook::config::Config::read(&file).unwrap();
    let registry = tenterhook::registry::Registry::default();
    let mut dry = config.clone();
    (dry.trainer.fast_dev_run, dry.runs_dir) = (tenterhook::settings::FastDevRun(1), root.join("none"));
    dry.trainer(&registry).unwrap().fit(&mut Toy::default(), &mut data(1, 1)).unwrap();
    assert!(!root.join("none").exists());
    let evaluation = RunDirectoryOptions { for_evaluations: true, ..config.run_directory() };
    let mut tested = config.bare_trainer(&registry).unwrap().with_run_directory(evaluation);
    tested.test(&mut Toy::default(), &mut data(1, 1)).unwrap();
    assert!(!key.exists(), "dry runs and evaluations need no key");
    let mut trainer = config.trainer(&registry).unwrap().with_notices(|_| {});
    trainer.fit(&mut Toy::default(), &mut data(1, 1)).unwrap();
    let run = run_json(&runs.join("latest"));
    assert_eq!(run["config_hash"], config.hash());
    assert_eq!(run["id"], *trainer.run_info().id);
    assert!(std::fs::read_to_string(runs.join("latest/config.toml")).unwrap().contains("max_epochs = 1"));
    assert!(key.exists());
    confirm(&runs.join("latest/config.toml")).expect("it is the user's own");
}
