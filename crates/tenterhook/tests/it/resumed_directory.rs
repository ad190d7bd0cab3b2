//! Resuming a run in its directory: what is truncated, what stays, and which process may write there.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tenterhook::run::{
    CallEnd, FilePosition, HookCosts, Identity, JournalEntry, JournalEvent, MetricsLine, Recorder, Run,
    RunDirectory, RunDirectoryOptions, RunLock, RunStart, RunStatus, StartReport, holder,
};
use tenterhook::toy::Toy;
use tenterhook::{Failures, Outcome, Phase, Progress, RunInfo, Settings, Stage};
use tenterhook_files::RelPath;

use crate::lab::{data, epochs, trainer};
use crate::run_directory::{latest, plan, recorded, run_json};

const ID: &str = "the-run";

fn planned(root: &Path, resume: bool) -> RunDirectoryOptions {
    let resume = resume.then(|| RunLock::acquire(directory(root)).unwrap());
    RunDirectoryOptions { id: Some(ID.into()), resume, ..plan(root) }
}

fn directory(root: &Path) -> PathBuf {
    root.join("runs").join(ID)
}

/// Begins at this step, from this checkpoint with these file positions.
fn begin(
    recorder: &mut RunDirectory,
    step: u64,
    from: Option<&Path>,
    file_positions: &[FilePosition],
) -> Result<StartReport, String> {
    let run = RunInfo { id: ID.into(), ..RunInfo::default() };
    let beginning = RunStart {
        stage: Stage::Fit,
        run: &run,
        seed: 0,
        identity: &Identity::default(),
        engine: None,
        hooks: Vec::new(),
        resumed_from: from,
        file_positions,
        progress: Progress { step, ..Progress::default() },
        time: step as f64,
    };
    recorder.begin(&beginning).map_err(|error| error.to_string())
}

fn log(recorder: &mut RunDirectory, step: u64) {
    let metrics = BTreeMap::from([("loss".to_owned(), step as f64)]);
    let (epoch, epoch_end, stage, time) = (0, false, Phase::Train, 0.0);
    recorder.metrics(&MetricsLine { step, epoch, epoch_end, stage, time, metrics: &metrics }).unwrap();
}

fn tell(recorder: &mut RunDirectory, what: JournalEvent) {
    recorder.event(JournalEntry { step: 0, epoch: 0, time: 0.0, what }).unwrap();
}

fn saved(recorder: &mut RunDirectory, path: &Path) {
    fs::create_dir_all(path).unwrap();
    tell(recorder, JournalEvent::Checkpoint { path: path.to_owned(), weights_only: false });
}

fn removed(recorder: &mut RunDirectory, path: &Path) {
    tell(recorder, JournalEvent::CheckpointRemoved { path: path.to_owned() });
}

fn end(recorder: &mut RunDirectory, outcome: &Outcome, time: f64) {
    end_of(Stage::Fit, recorder, outcome, time);
}

fn end_of(stage: Stage, recorder: &mut RunDirectory, outcome: &Outcome, time: f64) {
    let (metrics, progress) = (BTreeMap::new(), Progress::default());
    recorder
        .end(&CallEnd {
            best: None,
            stage,
            outcome,
            progress,
            metrics: &metrics,
            hooks: Vec::new(),
            identity: &Identity::default(),
            failures: &Failures::default(),
            hook_costs: HookCosts::default(),
            sinks: Vec::new(),
            time,
        })
        .unwrap();
}

fn steps(root: &Path) -> Vec<u64> {
    let text = fs::read_to_string(directory(root).join("metrics.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["step"].as_u64().unwrap()).collect()
}

fn journal(root: &Path) -> Vec<Value> {
    let text = fs::read_to_string(directory(root).join("events.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A killed run with two lines, a checkpoint, and two more lines; returns the positions of the checkpoint.
fn killed(root: &Path) -> (PathBuf, Vec<FilePosition>) {
    let mut recorder = RunDirectory::new(planned(root, false));
    begin(&mut recorder, 0, None, &[]).unwrap();
    for step in [1, 2] {
        log(&mut recorder, step);
    }
    let file_positions = recorder.file_positions().unwrap();
    let checkpoint = directory(root).join("checkpoints/epoch=0-step=2");
    saved(&mut recorder, &checkpoint);
    for step in [3, 4] {
        log(&mut recorder, step);
    }
    drop(recorder);
    (checkpoint, file_positions)
}

#[test]
fn a_run_with_a_test_is_running_until_the_test_has_ended() {
    let stopped = Outcome::Stopped { by: "stop".into(), reason: "enough".into() };
    let interrupted = Outcome::Interrupted { signal: "SIGTERM".into() };
    let failed = Outcome::Failed { error: "no data".into() };
    let cases = [
        (Some(Outcome::default()), "stopped", false),
        (Some(interrupted), "interrupted", true),
        (Some(failed), "failed", true),
        // The test did not begin, but the process was not killed.
        (None, "failed", true),
    ];
    for (tested, status, untested) in cases {
        let root = tempfile::tempdir().unwrap();
        let plan = RunDirectoryOptions { then_test: true, ..planned(root.path(), false) };
        let mut recorder = RunDirectory::new(plan);
        begin(&mut recorder, 0, None, &[]).unwrap();
        end_of(Stage::Fit, &mut recorder, &stopped, 1.0);
        let record = run_json(&directory(root.path()));
        assert_eq!([&record["status"], &record["trained"]["status"]], ["running", "stopped"]);
        if let Some(outcome) = tested {
            end_of(Stage::Test, &mut recorder, &outcome, 2.0);
        }
        drop(recorder);
        let record = run_json(&directory(root.path()));
        assert_eq!(record["status"], status);
        assert_eq!(record["trained"]["status"] == "stopped", untested, "{status}");
        assert_eq!(record["by"] == "stop", status == "stopped", "{record}");
    }
}

#[test]
fn an_interrupted_training_ends_a_run_without_its_test() {
    let root = tempfile::tempdir().unwrap();
    let plan = RunDirectoryOptions { then_test: true, ..planned(root.path(), false) };
    let mut recorder = RunDirectory::new(plan);
    begin(&mut recorder, 0, None, &[]).unwrap();
    end(&mut recorder, &Outcome::Interrupted { signal: "SIGTERM".into() }, 1.0);
    let record = run_json(&directory(root.path()));
    assert_eq!((&record["status"], &record["trained"]), (&"interrupted".into(), &Value::Null));
}

#[test]
fn marks_are_the_lengths_of_files_with_everything_in_them() {
    let root = tempfile::tempdir().unwrap();
    let mut recorder = RunDirectory::new(planned(root.path(), false));
    assert!(recorder.file_positions().unwrap().is_empty(), "there is no directory yet");
    begin(&mut recorder, 0, None, &[]).unwrap();
    log(&mut recorder, 1);
    let file_positions = recorder.file_positions().unwrap();
    let text = fs::read_to_string(directory(root.path()).join("metrics.jsonl")).unwrap();
    assert!(text.ends_with('\n') && text.contains("\"step\":1"), "{text}");
    assert_eq!(
        file_positions,
        [FilePosition { file: RelPath::new("metrics.jsonl").unwrap(), length: text.len() as u64 }]
    );
    recorder.histograms(&histograms()).unwrap();
    let file_positions = recorder.file_positions().unwrap();
    let of_it = fs::metadata(directory(root.path()).join("histograms.jsonl")).unwrap().len();
    assert_eq!(
        file_positions[1],
        FilePosition { file: RelPath::new("histograms.jsonl").unwrap(), length: of_it }
    );
    assert!(of_it > 0 && file_positions.len() == 2, "{file_positions:?}");
}

fn histograms() -> tenterhook::run::HistogramLine<'static> {
    static NONE: BTreeMap<String, tenterhook::Histogram> = BTreeMap::new();
    tenterhook::run::HistogramLine { step: 1, epoch: 0, stage: Phase::Train, time: 0.0, histograms: &NONE }
}

#[test]
fn a_resumed_run_truncates_its_files_but_not_its_journal() {
    let root = tempfile::tempdir().unwrap();
    let (checkpoint, file_positions) = killed(root.path());
    let file = |name: &str| directory(root.path()).join(name);
    fs::write(file("updates.jsonl"), "{}\n{}\n").unwrap();
    let mut torn = fs::read_to_string(file("events.jsonl")).unwrap();
    let told = torn.lines().count();
    torn.push_str("{\"step\":4,\"ep");
    fs::write(file("events.jsonl"), torn).unwrap();
    let mut recorder = RunDirectory::new(planned(root.path(), true));
    let begun = begin(&mut recorder, 2, Some(&checkpoint), &file_positions).unwrap();
    assert!(begun.missing.is_empty());
    assert_eq!(steps(root.path()), [1, 2]);
    assert!(!file("updates.jsonl").exists(), "the checkpoint did not know it");
    let journal = journal(root.path());
    assert_eq!(journal.len(), told + 1, "all that happened, and a start");
    assert_eq!(journal[told]["resumed_from"], "checkpoints/epoch=0-step=2");
    log(&mut recorder, 3);
    recorder.flush().unwrap();
    assert_eq!(steps(root.path()), [1, 2, 3]);
}

#[test]
fn without_a_checkpoint_all_files_except_the_journal_are_emptied() {
    let root = tempfile::tempdir().unwrap();
    let (_, file_positions) = killed(root.path());
    let told = journal(root.path()).len();
    let mut recorder = RunDirectory::new(planned(root.path(), true));
    begin(&mut recorder, 0, None, &file_positions).unwrap();
    assert_eq!((steps(root.path()), journal(root.path()).len()), (Vec::new(), told + 1));
}

#[test]
fn a_file_that_lost_lines_before_the_checkpoint_is_reported_and_continued() {
    let root = tempfile::tempdir().unwrap();
    let (checkpoint, file_positions) = killed(root.path());
    let path = directory(root.path()).join("metrics.jsonl");
    let text = fs::read(&path).unwrap();
    fs::write(&path, &text[..usize::try_from(file_positions[0].length).unwrap() - 3]).unwrap();
    let mut recorder = RunDirectory::new(planned(root.path(), true));
    let lacks = begin(&mut recorder, 2, Some(&checkpoint), &file_positions).unwrap().missing.join("; ");
    assert!(lacks.contains("metrics.jsonl") && lacks.contains("is missing"), "{lacks}");
    assert_eq!(steps(root.path()), [1], "half a line goes");
}

#[test]
fn run_json_keeps_its_beginning_and_lists_its_parts() {
    let root = tempfile::tempdir().unwrap();
    let (checkpoint, file_positions) = killed(root.path());
    let path = directory(root.path());
    let first = run_json(&path);
    assert_eq!((first["parts"].as_array().unwrap().len(), &first["parts"][0]["step"]), (1, &0.into()));
    fs::write(path.join("weights.safetensors"), "of an earlier end").unwrap();
    std::os::unix::fs::symlink("elsewhere", root.path().join("runs/.latest-the-run")).unwrap();
    fs::remove_file(root.path().join("runs/latest")).unwrap();
    let plan = RunDirectoryOptions { config: "task = \"more\"\n".into(), ..planned(root.path(), true) };
    let mut recorder = RunDirectory::new(plan);
    begin(&mut recorder, 2, Some(&checkpoint), &file_positions).unwrap();
    let again = run_json(&path);
    assert_eq!((&again["status"], &again["created"]), (&"running".into(), &first["created"]));
    assert_eq!(
        (&again["ended"], &again["resumed_from"]),
        (&Value::Null, &"checkpoints/epoch=0-step=2".into())
    );
    let parts = again["parts"].as_array().unwrap();
    assert_eq!((parts.len(), &parts[0]), (2, &first["parts"][0]));
    assert_eq!(
        (&parts[1]["step"], &parts[1]["checkpoint"]),
        (&2.into(), &"checkpoints/epoch=0-step=2".into())
    );
    let text = |name: &str| fs::read_to_string(path.join(name)).unwrap();
    assert_eq!(
        (text("config.toml"), text("config.1.toml")),
        ("task = \"more\"\n".into(), plan_config(root.path()))
    );
    assert_eq!(text("weights.safetensors"), "of an earlier end");
    assert_eq!(latest(root.path()), path);
    end(&mut recorder, &Outcome::Completed, 9.5);
    let ended = run_json(&path);
    assert_eq!((&ended["status"], &ended["seconds"]), (&"completed".into(), &9.5.into()));
}

fn plan_config(root: &Path) -> String {
    plan(root).config
}

#[test]
fn a_damaged_run_json_does_not_prevent_a_resume() {
    let root = tempfile::tempdir().unwrap();
    let (checkpoint, file_positions) = killed(root.path());
    fs::write(directory(root.path()).join("run.json"), "{").unwrap();
    let mut recorder = RunDirectory::new(planned(root.path(), true));
    let begun = begin(&mut recorder, 2, Some(&checkpoint), &file_positions).unwrap();
    assert!(begun.missing.join("; ").contains("run.json was damaged"));
    assert_eq!(run_json(&directory(root.path()))["id"], ID);
}

#[test]
fn the_checkpoint_of_another_run_is_refused_and_nothing_is_cut() {
    let root = tempfile::tempdir().unwrap();
    let (_, file_positions) = killed(root.path());
    let elsewhere = root.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let mut recorder = RunDirectory::new(planned(root.path(), true));
    let error = begin(&mut recorder, 2, Some(&elsewhere), &file_positions).unwrap_err();
    assert!(error.contains("is not one of run the-run"), "{error}");
    assert_eq!(steps(root.path()), [1, 2, 3, 4]);
    assert_eq!(run_json(&directory(root.path()))["parts"].as_array().unwrap().len(), 1);
    drop(recorder);
    // A checkpoint that the run itself has saved elsewhere belongs to it.
    let mut recorder = RunDirectory::new(planned(root.path(), true));
    begin(&mut recorder, 0, None, &[]).unwrap();
    log(&mut recorder, 1);
    let file_positions = recorder.file_positions().unwrap();
    saved(&mut recorder, &elsewhere);
    log(&mut recorder, 2);
    drop(recorder);
    let mut recorder = RunDirectory::new(planned(root.path(), true));
    begin(&mut recorder, 1, Some(&elsewhere), &file_positions).unwrap();
    assert_eq!(steps(root.path()), [1]);
}

#[test]
fn a_run_that_does_not_exist_cannot_be_resumed() {
    let root = tempfile::tempdir().unwrap();
    let error = RunLock::acquire(directory(root.path())).unwrap_err().to_string();
    assert!(error.contains("is not a tenterhook run") && error.contains(ID), "{error}");
    assert!(!root.path().join("runs").exists());
}

#[test]
fn removed_checkpoints_of_all_parts_are_known_at_the_beginning_of_a_call() {
    let root = tempfile::tempdir().unwrap();
    let below = |name: &str| directory(root.path()).join("checkpoints").join(name);
    let elsewhere = root.path().join("elsewhere");
    let mut recorder = RunDirectory::new(planned(root.path(), false));
    begin(&mut recorder, 0, None, &[]).unwrap();
    for path in [&below("a"), &below("b"), &elsewhere] {
        saved(&mut recorder, path);
        removed(&mut recorder, path);
    }
    saved(&mut recorder, &below("b"));
    drop(recorder);
    let mut recorder = RunDirectory::new(planned(root.path(), true));
    let begun = begin(&mut recorder, 0, None, &[]).unwrap();
    assert_eq!(begun.removed_checkpoints, [below("a"), elsewhere.clone()], "b is there again");
    removed(&mut recorder, &below("b"));
    let begun = begin(&mut recorder, 0, None, &[]).unwrap();
    assert_eq!(begun.removed_checkpoints, [below("a"), elsewhere, below("b")]);
}

#[test]
fn one_trainer_at_a_time_writes_to_a_run() {
    let root = tempfile::tempdir().unwrap();
    let mut first = RunDirectory::new(planned(root.path(), false));
    begin(&mut first, 0, None, &[]).unwrap();
    log(&mut first, 1);
    first.flush().unwrap();
    let who = holder(&directory(root.path())).expect("it is held");
    assert_eq!(who.pid, std::process::id());
    let error = RunLock::acquire(directory(root.path())).unwrap_err().to_string();
    assert!(error.starts_with("run the-run is in use by another trainer of this process"), "{error}");
    assert_eq!(steps(root.path()), [1], "nothing was cut");
    assert_eq!(Run::read(directory(root.path())).unwrap().record.status, RunStatus::Running);
    drop(first);
    assert_eq!(holder(&directory(root.path())), None);
    let killed = Run::read(directory(root.path())).unwrap().record;
    assert_eq!((killed.status.as_str(), killed.steps), ("killed", 1));
    assert_eq!(run_json(&directory(root.path()))["status"], "running", "the file is as it was left");
    begin(&mut RunDirectory::new(planned(root.path(), true)), 0, None, &[]).unwrap();
}

#[test]
fn the_next_training_of_a_trainer_releases_the_previous_run() {
    let root = tempfile::tempdir().unwrap();
    let mut trainer = recorded(root.path(), epochs(1));
    trainer.fit(&mut Toy::default(), &mut data(1, 0)).unwrap();
    let first = latest(root.path());
    assert!(holder(&first).is_some(), "an evaluation would write there");
    trainer.fit(&mut Toy::default(), &mut data(1, 0)).unwrap();
    assert!(holder(&first).is_none() && holder(&latest(root.path())).is_some());
}

#[test]
fn a_resumed_trainer_keeps_its_directory_and_a_second_training_gets_a_new_one() {
    let root = tempfile::tempdir().unwrap();
    let settings = Settings { log_every_n_steps: 1, ..epochs(2) };
    let run = |resume| {
        let mut trainer = trainer(settings.clone()).with_run_directory(planned(root.path(), resume));
        trainer.fit(&mut Toy::default(), &mut data(3, 0)).unwrap();
        trainer
    };
    drop(run(false));
    let whole = steps(root.path());
    let mut trainer = run(true);
    assert_eq!(steps(root.path()), whole, "no doubles and no gaps");
    assert_eq!(latest(root.path()), directory(root.path()));
    trainer.fit(&mut Toy::default(), &mut data(3, 0)).unwrap();
    assert_ne!(latest(root.path()), directory(root.path()));
    assert_eq!(run_json(&latest(root.path()))["parts"].as_array().unwrap().len(), 1);
}

#[test]
fn an_evaluation_alone_leaves_a_run_to_be_resumed_as_it_is() {
    let root = tempfile::tempdir().unwrap();
    killed(root.path());
    let plan = RunDirectoryOptions { for_evaluations: true, ..planned(root.path(), true) };
    let mut trainer = trainer(epochs(1)).with_run_directory(plan);
    trainer.validate(&mut Toy::default(), &mut data(1, 1)).unwrap();
    assert_eq!(steps(root.path()), [1, 2, 3, 4]);
}

#[test]
fn hooks_see_the_whole_configuration() {
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Value::Null));
    let config = json!({ "task": "toy", "optimizer": { "lr": 0.1 } });
    let mut trainer = trainer(epochs(1)).with_config(config.clone());
    let into = seen.clone();
    trainer
        .add_hook(tenterhook::closure::on_train_start("look", move |cx| {
            *into.lock().unwrap() = cx.config.clone();
        }))
        .unwrap();
    trainer.fit(&mut Toy::default(), &mut data(1, 0)).unwrap();
    assert_eq!(*seen.lock().unwrap(), config);
}
