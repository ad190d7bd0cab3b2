//! A hook that saves only weights removes checkpoints after the one that a run resumes from. Its state must
//! be that of an uninterrupted run.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;
use tenterhook::hooks::{Checkpoint, CheckpointOptions};
use tenterhook::run::{RunDirectoryOptions, RunLock};
use tenterhook::toy::Toy;
use tenterhook::{HookResult, Observer, Policy, Registration, StepEnd, Trainer, closure, hook};

use crate::lab::{data, epochs, trainer};
use crate::run_directory::{latest, plan};

/// Logs a score for each step.
struct Score([f64; 12]);

#[hook(writes = ["score"])]
impl Observer for Score {
    fn on_step_end(&mut self, cx: &StepEnd) -> HookResult {
        cx.log("score", self.0[usize::try_from(cx.step).unwrap() - 1]);
        Ok(())
    }
}

/// A trainer for twelve steps with these scores. One hook keeps the weights of the best two steps, another
/// saves a full checkpoint at every step.
fn saving(plan: RunDirectoryOptions, scores: [f64; 12], dies: &Arc<AtomicBool>) -> Trainer {
    let mut trainer = trainer(epochs(1)).with_run_directory(plan);
    trainer.add_hook(Score(scores)).unwrap();
    let dies = Arc::clone(dies);
    let end = move |cx: &tenterhook::TrainBatchStart<'_>| {
        let dies = cx.step == 7 && dies.load(Ordering::Relaxed);
        if dies { Err("killed".into()) } else { Ok(()) }
    };
    let abort = Registration { policy: Some(Policy::ABORT), ..Registration::default() };
    trainer.register(closure::on_train_batch_start("end", end), abort).unwrap();
    let weights = CheckpointOptions {
        monitor: Some("score".into()),
        mode: Some(tenterhook::hooks::Mode::Min),
        save_top_k: Some(2),
        save_weights_only: true,
        every_n_train_steps: Some(1),
        filename: Some("weights-{step}".into()),
        ..CheckpointOptions::default()
    };
    let full = CheckpointOptions {
        every_n_train_steps: Some(1),
        save_top_k: Some(-1),
        filename: Some("full-{step}".into()),
        ..CheckpointOptions::default()
    };
    for (name, options) in [("weights", weights), ("full", full)] {
        let named = Registration { name: Some(name.into()), ..Registration::default() };
        trainer.register(Checkpoint::new(options).unwrap(), named).unwrap();
    }
    trainer
}

fn state(directory: &Path, step: u64) -> [Value; 2] {
    let path = directory.join(format!("checkpoints/full-step={step}/state.json"));
    let mut state: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    for hook in ["weights", "full"] {
        state["hooks"][hook]["data"]["last_time_ns"].take();
    }
    ["hooks", "board"].map(|key| state[key].clone())
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let (from, to) = (entry.as_ref().unwrap().path(), to.join(entry.unwrap().file_name()));
        if let Ok(target) = std::fs::read_link(&from) {
            std::os::unix::fs::symlink(target, to).unwrap();
        } else if from.is_dir() {
            copy(&from, &to);
        } else {
            std::fs::copy(&from, &to).unwrap();
        }
    }
}

/// Trains until the process "dies" at step 7, or to the end.
fn trained(root: &Path, scores: [f64; 12], dies: bool) -> PathBuf {
    let mut trainer = saving(plan(root), scores, &Arc::new(AtomicBool::new(dies)));
    let fitted = trainer.fit(&mut Toy::default(), &mut data(12, 0));
    assert_eq!(fitted.is_err(), dies, "{:?}", fitted.err());
    latest(root)
}

#[test]
fn the_state_of_a_resumed_run_does_not_depend_on_what_it_recorded_before_it_was_killed() {
    let better = std::array::from_fn(|step| 12.0 - step as f64);
    let mixed = [7.0, 5.0, 9.0, 9.0, 6.0, 3.0, 2.0, 8.0, 4.0, 2.5, 1.0, 0.5];
    for scores in [better, mixed] {
        let (root, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let untouched = trained(root.path(), scores, false);
        let killed = trained(other.path(), scores, true);
        let events = std::fs::read_to_string(killed.join("events.jsonl")).unwrap();
        let lines: Vec<_> = events.split_inclusive('\n').collect();
        // The process may have been killed before it recorded the last save and the removals.
        let saved = lines.iter().position(|line| line.contains("weights-step=7")).expect("it was saved");
        assert!(lines[saved..].iter().any(|line| line.contains("removed")), "{events}");
        for recorded in saved..=lines.len() {
            let resumed = other.path().join(format!("{recorded}")).join("runs").join("run");
            copy(&killed, &resumed);
            std::fs::write(resumed.join("events.jsonl"), lines[..recorded].concat()).unwrap();
            let resume = Some(RunLock::acquire(resumed.clone()).unwrap());
            let plan = RunDirectoryOptions { resume, ..plan(other.path()) };
            let mut trainer = saving(plan, scores, &Arc::default());
            trainer = trainer.restoring(resumed.join("checkpoints/full-step=4"));
            trainer.fit(&mut Toy::default(), &mut data(12, 0)).unwrap();
            drop(trainer);
            for step in 5..=12 {
                let states = [&resumed, &untouched].map(|directory| state(directory, step));
                assert_eq!(states[0], states[1], "step {step}, {recorded} of {}", lines.len());
            }
        }
    }
}
