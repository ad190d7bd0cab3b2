//! The requested saves, and the handling of failed saves and missing checkpoints.

use std::fs;

use tenterhook_core::{Event, Progress, Registration, RunInfo, Status};
use tenterhook_testkit::{FitScript, Rig};

use super::*;

fn checkpoint(toml: &str) -> Checkpoint {
    Checkpoint::new(toml::from_str(toml).expect("options")).expect("they fit")
}

fn progress(step: u64) -> Progress {
    Progress {
        epoch: step - 1,
        epochs_done: step,
        step,
        batches: 1,
        total_batches: step,
        step_counted: true,
        ..Default::default()
    }
}

/// The end of an epoch of one step, with this score.
fn epoch(rig: &mut Rig<Checkpoint>, step: u64, score: f64) {
    rig.metrics().set_step(step);
    rig.metric("loss", score).progress(progress(step)).on_train_epoch_end();
}

/// The names of the requested saves, in order.
fn asked(rig: &Rig<Checkpoint>) -> Vec<String> {
    let decisions = rig.decisions();
    let requests = decisions.iter().flat_map(|(_, decision)| decision.requests());
    let paths = requests.filter_map(|request| match request {
        Request::Save(save) => save.path.as_ref(),
        _ => None,
    });
    paths.map(|path| path.display().to_string()).collect()
}

const BEST: &str = "monitor = \"loss\"\nsave_top_k = 2\nsave_last = true\nfilename = \"{step}\"\n\
                    auto_insert_metric_name = false";

#[test]
fn nothing_is_saved_while_a_signal_ends_the_run() {
    let script = FitScript::new(1, 2).validate(1).script();
    for toml in ["save_last = true", "every_n_train_steps = 1\nsave_on_exception = true", BEST] {
        let mut rig = Rig::new(checkpoint(toml));
        rig.play(&script[..3]).status(Status::Interrupted);
        for entry in &script[3..] {
            rig.play_entry(entry);
        }
        rig.deliver(Event::Exception);
        assert_eq!(asked(&rig), Vec::<String>::new(), "{toml}");
        assert!(rig.failures().is_empty());
    }
}

#[test]
fn a_failed_save_is_not_among_the_best() {
    let dir = tempfile::tempdir().expect("a directory");
    let run = |failed_saves: &[&str]| RunInfo {
        checkpoints: dir.path().into(),
        unsaved_checkpoints: failed_saves.iter().map(|name| dir.path().join(name)).collect(),
        ..RunInfo::default()
    };
    let mut rig = Rig::new(checkpoint(BEST));
    rig.run(run(&[])).on_train_start();
    epoch(&mut rig, 1, 1.0);
    assert_eq!(rig.hook().best(), Some((PathBuf::from("1"), Some(1.0))));
    epoch(&mut rig, 2, 3.0);
    rig.run(run(&["1", "last"]));
    epoch(&mut rig, 3, 4.0);
    assert_eq!(rig.hook().best(), Some((PathBuf::from("2"), Some(3.0))), "the first was never written");
    assert_eq!(asked(&rig), ["1", "last", "2", "last", "3", "last"], "there is room for a third");
    // The failure is handled only once: a later save under the same name is a different save.
    epoch(&mut rig, 4, 2.0);
    assert_eq!(rig.hook().best(), Some((PathBuf::from("4"), Some(2.0))));
    // The most recent `last` could not be written, so the end of training saves it again.
    rig.run(run(&["1", "last", "last"])).on_train_end();
    assert_eq!(asked(&rig)[6..], ["4", "last", "last"]);
}

#[test]
fn last_is_saved_every_epoch_independent_of_the_best() {
    for (toml, expected) in [
        (BEST.replace("save_top_k = 2", "save_top_k = 1"), ["1", "last", "last", "last"]),
        (BEST.replace("save_top_k = 2", "save_top_k = 0"), ["last", "last", "last", ""]),
        (
            BEST.replace("save_top_k = 2\nsave_last = true", "save_top_k = 1\nsave_last = \"link\""),
            ["1", "last", "last", ""],
        ),
    ] {
        let mut rig = Rig::new(checkpoint(&toml));
        rig.on_train_start();
        for (step, score) in [(1, 1.0), (2, 2.0), (3, 3.0)] {
            epoch(&mut rig, step, score);
        }
        let expected = expected.into_iter().filter(|name| !name.is_empty()).collect::<Vec<_>>();
        assert_eq!(asked(&rig), expected, "{toml}");
    }
    // The best checkpoints are chosen after validations, which are less frequent than epochs.
    let mut rig =
        Rig::new(checkpoint("monitor = \"loss\"\nmode = \"min\"\nsave_last = true\nfilename = \"{step}\""));
    let mut run = RunInfo::default();
    run.validation.every_n_epochs = Some(2);
    rig.run(run).on_train_start();
    epoch(&mut rig, 1, 1.0);
    assert_eq!(asked(&rig), ["last"]);
}

#[test]
fn every_n_epochs_without_a_monitor_keeps_all_checkpoints_by_default() {
    let keeps = |toml: &str| checkpoint(toml).options.top_k();
    assert_eq!((keeps("every_n_epochs = 1"), keeps("save_every_n_epochs = 2")), (-1, -1));
    assert_eq!((keeps(""), keeps("every_n_train_steps = 5")), (1, 1), "as Lightning");
    assert_eq!(keeps("every_n_epochs = 1\nsave_top_k = 1"), 1);
    assert_eq!(keeps("every_n_epochs = 1\nmonitor = \"val/loss\""), 1);
    assert_eq!(CheckpointOptions::from(1).top_k(), -1);
}

#[test]
fn a_resumed_run_reports_an_existing_best_checkpoint() {
    let dir = tempfile::tempdir().expect("a directory");
    let run = |removed: &[&str]| RunInfo {
        checkpoints: dir.path().into(),
        removed_checkpoints: removed.iter().map(|name| dir.path().join(name)).collect(),
        ..RunInfo::default()
    };
    let mut rig = Rig::new(checkpoint(BEST));
    rig.run(run(&[])).on_train_start();
    for (step, score) in [(1, 1.0), (2, 2.0)] {
        epoch(&mut rig, step, score);
        fs::create_dir(dir.path().join(step.to_string())).expect("it is saved");
    }
    fs::remove_dir(dir.path().join("1")).expect("it was there");
    // The run itself removed it later: its decisions stay the same, but the checkpoint cannot be loaded.
    let mut own = rig.resumed(checkpoint(BEST));
    own.run(run(&["1"])).on_train_start();
    assert_eq!(own.hook().best(), Some((PathBuf::from("2"), Some(2.0))));
    epoch(&mut own, 3, 5.0);
    assert_eq!(asked(&own), ["last"], "worse than both");
    assert!(own.said().is_empty());
    // A user removed it: there is room for another one.
    let mut others = rig.resumed(checkpoint(BEST));
    others.run(run(&[])).on_train_start();
    assert!(others.said()[0].1.starts_with("`1` no longer exists"), "{:?}", others.said());
    epoch(&mut others, 3, 5.0);
    assert_eq!(asked(&others), ["3", "last"]);
}

#[test]
fn names_depend_on_the_run_and_not_on_the_disk() {
    let dir = tempfile::tempdir().expect("a directory");
    let all = "save_top_k = -1\nfilename = \"model\"";
    let shared = RunInfo { checkpoints: dir.path().into(), ..RunInfo::default() };
    fs::create_dir(dir.path().join("model")).expect("another run's");
    let mut rig = Rig::new(checkpoint(all));
    rig.run(shared.clone()).on_train_start();
    epoch(&mut rig, 1, 0.0);
    // The run is killed after another save.
    let mut resumed = rig.resumed(checkpoint(all));
    epoch(&mut rig, 2, 0.0);
    for name in asked(&rig) {
        fs::create_dir(dir.path().join(name)).expect("a name of its own");
    }
    resumed.run(shared.clone()).on_train_start();
    epoch(&mut resumed, 2, 0.0);
    assert_eq!(asked(&rig), ["model-v1", "model-v2"]);
    assert_eq!(asked(&resumed), ["model-v2"], "it is written again under its name");
    // A run that restarts in its own directory overwrites its own checkpoints.
    let own = RunInfo { directory: Some(dir.path().into()), ..shared };
    let mut again = Rig::new(checkpoint(all));
    again.run(own).on_train_start();
    epoch(&mut again, 1, 0.0);
    assert_eq!(asked(&again), ["model"]);
}

#[test]
fn a_name_taken_by_another_hook_gets_a_version_before_it_is_written() {
    let first = Registration { name: Some("first".into()), ..Registration::default() };
    let mut rig = Rig::registered(checkpoint("filename = \"model\""), first);
    rig.add_hook(checkpoint("filename = \"model\"")).on_train_start();
    epoch(&mut rig, 1, 0.0);
    assert_eq!(asked(&rig), ["model"]);
    let names: Vec<_> = rig.board().to_json().expect("a board")["checkpoint/names"]
        .as_object()
        .expect("names")
        .iter()
        .map(|(path, hook)| format!("{path} of {}", hook.as_str().unwrap_or_default()))
        .collect();
    assert_eq!(names, ["model of first", "model-v1 of checkpoint"]);
}
