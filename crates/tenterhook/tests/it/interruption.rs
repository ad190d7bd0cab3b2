//! Interrupting a run: the current batch completes, and all end events are delivered.

use std::sync::{Arc, Mutex, mpsc};

use tenterhook::data::{Batches, DataLoaders, Dataset, Sample, StreamLoader};
use tenterhook::hooks::{Checkpoint, CheckpointOptions, EarlyStopping, EarlyStoppingOptions};
use tenterhook::module::SchedulerPlan;
use tenterhook::run::Interrupt;
use tenterhook::toy::{Toy, ToyBatch, ToyData};
use tenterhook::{BoxError, Outcome, Report, RunNotice, Settings, Status, Trainer, closure};

use crate::call_log::{CallLog, Recorder, SharedVec};
use crate::lab::{Lab, LabData, LabStrategy, data, epochs, trainer};
use crate::run_directory::{latest, recorded, run_json};

fn by(signal: &str) -> Outcome {
    Outcome::Interrupted { signal: signal.into() }
}

/// The report and the calls of a run that is interrupted at the n-th call of this method of the module.
fn interrupted_at(
    place: &'static str,
    time: u32,
    settings: Settings,
    toy: Toy,
    add: impl FnOnce(&mut Trainer),
) -> (Report, CallLog) {
    let call_log = CallLog::default();
    let root = tempfile::tempdir().unwrap();
    let mut trainer =
        trainer(settings).with_strategy(LabStrategy::new(&call_log)).with_checkpoints_in(root.path());
    let handle = trainer.interrupt_handle();
    trainer.add_hook(Recorder::new("all", &call_log)).unwrap();
    add(&mut trainer);
    let mut left = time;
    let mut lab = Lab::new(toy, &call_log).with_handler(move |at, _| {
        if at == place {
            left -= 1;
            if left == 0 {
                handle.request("SIGINT");
                handle.request("SIGTERM");
            }
            left = left.max(1);
        }
    });
    let report = trainer.fit(&mut lab, &mut LabData::new(data(4, 3), &call_log)).unwrap();
    (report, call_log)
}

fn count(call_log: &CallLog, place: &str) -> usize {
    call_log.places("hook:all").iter().filter(|at| **at == place).count()
}

/// The events that the hook received after the last event with this name, without those of the emergency
/// checkpoint.
fn after(call_log: &CallLog, place: &str) -> Vec<&'static str> {
    let places = call_log.places("hook:all");
    let at = places.iter().rposition(|other| *other == place).unwrap();
    let of_checkpoint = ["state_dict", "on_save_checkpoint", "on_checkpoint_saved"];
    places[at + 1..].iter().copied().filter(|place| !of_checkpoint.contains(place)).collect()
}

const ENDS: [&str; 5] = ["on_train_epoch_end", "on_log", "on_train_end", "on_fit_end", "teardown"];

#[test]
fn the_batch_completes_and_all_ends_happen_without_a_validation() {
    let (report, call_log) = interrupted_at("training_step", 2, epochs(3), Toy::default(), |_| ());
    assert_eq!(report.outcome, by("SIGINT"), "the first signal counts");
    assert_eq!((report.progress.step, report.progress.batches), (2, 0));
    assert_eq!(after(&call_log, "on_train_batch_end"), ENDS);
    assert_eq!(count(&call_log, "on_validation_start"), 0);
    assert_eq!(call_log.sources("teardown"), ["strategy", "data", "hook:all", "module"]);
    let told: Vec<_> = report.notices.iter().map(RunNotice::to_string).collect();
    assert_eq!(told, ["SIGINT: the run ends after the current batch"]);
}

#[test]
fn nothing_holds_it_back() {
    let settings = Settings { min_epochs: Some(3), min_steps: Some(9), ..epochs(5) };
    let (report, _) = interrupted_at("training_step", 1, settings, Toy::default(), |_| ());
    assert_eq!((report.outcome, report.progress.step), (by("SIGINT"), 1));
}

#[test]
fn after_the_last_batch_of_an_epoch_its_validation_is_left_out() {
    let (report, call_log) = interrupted_at("training_step", 4, epochs(3), Toy::default(), |_| ());
    assert_eq!((report.outcome, report.progress.step), (by("SIGINT"), 4));
    assert_eq!(after(&call_log, "on_train_batch_end"), ENDS);
}

#[test]
fn an_interrupted_validation_ends_early_with_its_end_events() {
    let (report, call_log) = interrupted_at("validation_step", 2, epochs(3), Toy::default(), |_| ());
    assert_eq!((report.outcome, report.progress.step), (by("SIGINT"), 4));
    assert_eq!(count(&call_log, "on_validation_batch_start"), 2, "of three");
    let ends = ["on_validation_epoch_end", "on_validation_end"];
    assert_eq!(after(&call_log, "on_validation_batch_end"), [&ends[..], &ENDS].concat());
}

#[test]
fn in_the_sanity_check_no_training_begins() {
    let settings = Settings { num_sanity_val_steps: 2, ..epochs(1) };
    let (report, call_log) = interrupted_at("validation_step", 1, settings, Toy::default(), |_| ());
    assert_eq!((report.outcome, report.progress.step), (by("SIGINT"), 0));
    assert_eq!(after(&call_log, "on_sanity_check_end"), ["on_fit_end", "teardown"]);
}

#[test]
fn a_request_during_the_last_moments_of_training_changes_nothing() {
    let (report, _) = interrupted_at("on_train_end", 1, epochs(1), Toy::default(), |_| ());
    assert_eq!(report.outcome, Outcome::Completed);
}

#[test]
fn hooks_that_wait_for_a_missing_validation_do_not_fail() {
    let toy = Toy::default().with_scheduler(SchedulerPlan::on_plateau_of("val/loss"));
    let (report, call_log) = interrupted_at("training_step", 4, epochs(3), toy, |trainer| {
        trainer.add_hook(EarlyStopping::new(EarlyStoppingOptions::new("val/loss")).unwrap()).unwrap();
    });
    assert_eq!(report.outcome, by("SIGINT"));
    assert!(!call_log.places("module").contains(&"lr_scheduler_step"));
}

#[test]
fn a_checkpoint_of_an_interrupted_validation_is_not_the_best() {
    for (place, time) in [("training_step", 6), ("training_step", 8), ("validation_step", 4)] {
        let root = tempfile::tempdir().unwrap();
        let (report, _) = interrupted_at(place, time, epochs(3), Toy::default(), |trainer| {
            let options = CheckpointOptions {
                monitor: Some("val/loss".into()),
                save_top_k: Some(-1),
                dirpath: Some(root.path().to_owned()),
                ..CheckpointOptions::default()
            };
            trainer.add_hook(Checkpoint::new(options).unwrap()).unwrap();
        });
        assert_eq!(report.outcome, by("SIGINT"));
        let kept: Vec<_> =
            std::fs::read_dir(root.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(kept, ["epoch=0-step=4"], "{place} {time}");
    }
}

#[test]
fn the_end_events_say_interrupted() {
    let seen = SharedVec::new();
    let ends = seen.clone();
    let (_, _) = interrupted_at("training_step", 2, epochs(3), Toy::default(), |trainer| {
        let (train, fit, down) = (ends.clone(), ends.clone(), ends.clone());
        trainer
            .add_hook(closure::on_train_end("1", move |cx| train.push((cx.status, cx.outcome.clone()))))
            .unwrap();
        trainer
            .add_hook(closure::on_fit_end("2", move |cx| fit.push((cx.status, cx.outcome.clone()))))
            .unwrap();
        trainer
            .add_hook(closure::teardown("3", move |cx| down.push((cx.status, cx.outcome.clone()))))
            .unwrap();
    });
    assert_eq!(seen.take(), vec![(Status::Interrupted, by("SIGINT")); 3]);
}

#[test]
fn an_evaluation_without_training_can_be_interrupted_too() {
    let handle = Interrupt::new();
    let mut trainer = trainer(epochs(1)).with_interrupt(handle.clone());
    let (call_log, asked) = (CallLog::default(), handle.clone());
    trainer.add_hook(Recorder::new("all", &call_log)).unwrap();
    trainer
        .add_hook(closure::on_test_batch_end("ask", move |cx| {
            if cx.batch.index == 0 {
                asked.request("SIGTERM");
            }
        }))
        .unwrap();
    let report =
        trainer.test(&mut Toy::default(), &mut ToyData { test: vec![3], ..ToyData::default() }).unwrap();
    assert_eq!(report.outcome, by("SIGTERM"));
    assert_eq!(after(&call_log, "on_test_batch_end"), ["on_test_epoch_end", "on_test_end", "teardown"]);
    handle.clear();
    let report = trainer.validate(&mut Toy::default(), &mut data(1, 2)).unwrap();
    assert_eq!(report.outcome, Outcome::Completed);
    assert_eq!(count(&call_log, "on_validation_batch_end"), 2);
}

#[test]
fn the_run_directory_says_interrupted_and_keeps_the_weights() {
    let root = tempfile::tempdir().unwrap();
    let mut trainer = recorded(root.path(), epochs(2));
    let handle = trainer.interrupt_handle();
    trainer.add_hook(closure::on_step_end("ask", move |_| handle.request("SIGINT"))).unwrap();
    trainer.fit(&mut Toy::default(), &mut data(4, 1)).unwrap();
    let directory = latest(root.path());
    let run = run_json(&directory);
    let said = (&run["status"], &run["signal"], &run["steps"]);
    assert_eq!(said, (&"interrupted".into(), &"SIGINT".into(), &1.into()));
    assert!(directory.join("weights.safetensors").exists());
    let events = std::fs::read_to_string(directory.join("events.jsonl")).unwrap();
    assert!(events.contains(r#""event":"interruption","signal":"SIGINT""#), "{events}");
}

/// A dataset with one sample that blocks until the end of the test. The run is interrupted when it waits for
/// this sample.
#[derive(Clone)]
struct Stuck {
    handle: Interrupt,
    at: usize,
    needed: Arc<Mutex<mpsc::Receiver<()>>>,
    over: Arc<Mutex<mpsc::Receiver<()>>>,
}

type ToySample = ([f32; 2], f32);

impl Dataset for Stuck {
    type Item = ToySample;

    fn len(&self) -> usize {
        8
    }

    fn load(&self, sample: Sample) -> Result<ToySample, BoxError> {
        if sample.index == self.at {
            self.needed.lock().unwrap().recv()?;
            self.handle.request("SIGTERM");
            let _ = self.over.lock().unwrap().recv();
        }
        Ok(([0.1, 0.2], 0.3))
    }
}

/// Batches of two samples, loaded ahead: from a dataset, or as a stream.
fn ahead(train: Stuck, val: Stuck, stream: bool) -> DataLoaders<ToyBatch> {
    let collate = |samples| Ok(ToyBatch::of(samples));
    if !stream {
        let batches = |name, stuck| Batches::new(name, stuck, collate).size(2).threads(1).prefetch(1);
        return DataLoaders::new().train(batches("train", train)).validate(batches("val", val));
    }
    let stream = |name, stuck: Stuck| {
        let open = move |_| {
            let stuck = stuck.clone();
            (0..8).map(move |index| stuck.load(Sample { index, seed: 0 }))
        };
        StreamLoader::new(name, open, collate).size(2).prefetch(1)
    };
    DataLoaders::new().train(stream("train", train)).validate(stream("val", val))
}

#[test]
fn a_run_that_waits_for_blocked_data_can_be_interrupted() {
    const NONE: usize = usize::MAX;
    // A stream is read one batch ahead to detect the last batch.
    for (stream, train_at, val_at, steps) in
        [(false, 5, NONE, 2), (false, NONE, 3, 4), (true, 5, NONE, 1), (true, NONE, 3, 4)]
    {
        let mut trainer = trainer(epochs(2));
        let ((need, needed), (end, over)) = (mpsc::channel(), mpsc::channel());
        let (needed, over) = (Arc::new(Mutex::new(needed)), Arc::new(Mutex::new(over)));
        let handle = trainer.interrupt_handle();
        let stuck = |at| Stuck { handle: handle.clone(), at, needed: needed.clone(), over: over.clone() };
        let mut data = ahead(stuck(train_at), stuck(val_at), stream);
        if val_at == NONE {
            let at_batch = closure::on_train_batch_end("need", move |cx| {
                if cx.step == steps {
                    need.send(()).unwrap();
                }
            });
            trainer.add_hook(at_batch).unwrap();
        } else {
            let at_start = closure::on_validation_start("need", move |_| need.send(()).unwrap());
            trainer.add_hook(at_start).unwrap();
        }
        let report = trainer.fit(&mut Toy::default(), &mut data).unwrap();
        assert_eq!((report.outcome, report.progress.step), (by("SIGTERM"), steps), "a stream: {stream}");
        drop(end);
    }
}
