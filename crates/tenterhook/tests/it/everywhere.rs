//! A run that resumes from any checkpoint, wherever in the loop it was taken, gives the same weights and
//! byte-identical later checkpoints.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tenterhook::checkpoint::{ListedCheckpoint, OnUnreadable, list, newest_whole};
use tenterhook::hooks::{
    Checkpoint, CheckpointOptions, EarlyStopping, EarlyStoppingOptions, EmaWeights, EmaWeightsOptions,
    GradientNoise, GradientNoiseOptions, SaveLast,
};
use tenterhook::module::{Interval, SchedulerPlan};
use tenterhook::run_context::FixedClock;
use tenterhook::settings::{BatchLimit, ValInterval};
use tenterhook::toy::{Toy, ToyData};
use tenterhook::{
    Controller, Decision, HookExt, HookResult, Observer, Outcome, Registration, Report, Request, SaveRequest,
    Settings, State, StepEnd, TrainBatchEnd, TrainEnd, TrainEpochStart, Trainer, ValidationBatchEnd,
    ValidationEnd, closure, hook,
};

use crate::call_log::CallLog;
use crate::lab::{Lab, bits, data, epochs, trainer};

/// Draws random numbers and logs at many events, and keeps a count.
#[derive(Default)]
struct Busy(u64);

#[hook]
impl Observer for Busy {
    fn on_train_epoch_start(&mut self, cx: &TrainEpochStart) -> HookResult {
        self.0 += 1;
        cx.log("begun", self.0 as f64);
        Ok(())
    }
    fn on_train_batch_end(&mut self, cx: &TrainBatchEnd) -> HookResult {
        self.0 += 1;
        cx.log("drawn", cx.rng().uniform() + cx.loss.as_ref().map_or(0.0, tenterhook::Scalar::value));
        Ok(())
    }
    fn on_validation_batch_end(&mut self, cx: &ValidationBatchEnd) -> HookResult {
        self.0 += 100;
        cx.log("val/drawn", cx.rng().uniform());
        Ok(())
    }
    fn state_dict(&self) -> HookResult<State> {
        Ok(State::of(1, &self.0)?)
    }
    fn load_state_dict(&mut self, state: &State) -> HookResult {
        self.0 = state.read(1)?;
        Ok(())
    }
}

/// Requests saves, validations, learning rates and changes of hooks at many events.
#[derive(Default)]
struct Asking;

#[hook]
impl Controller for Asking {
    fn on_step_end(&mut self, cx: &StepEnd) -> HookResult<Decision> {
        Ok(match cx.step {
            2 => Decision::save_now(),
            3 => Decision::validate_now(),
            4 => Decision::scale_lr(0.5),
            _ => Decision::CONTINUE,
        })
    }
    fn on_train_epoch_start(&mut self, cx: &TrainEpochStart) -> HookResult<Decision> {
        Ok(if cx.epoch == 1 { Decision::save_now() } else { Decision::CONTINUE })
    }
    fn on_train_end(&mut self, _: &TrainEnd) -> HookResult<Decision> {
        let path = Some("end".into());
        Ok(Decision::CONTINUE.request(Request::Save(SaveRequest { path, ..SaveRequest::default() })))
    }
    fn on_validation_end(&mut self, cx: &ValidationEnd) -> HookResult<Decision> {
        match cx.epoch {
            0 => cx.hooks().disable("toggled"),
            _ => cx.hooks().enable("toggled"),
        }
        Ok(Decision::CONTINUE)
    }
}

fn saver(name: &str, options: CheckpointOptions) -> (Checkpoint, Registration) {
    let options = CheckpointOptions { filename: Some(format!("{name}-{{epoch}}-{{step}}")), ..options };
    let how = Registration { name: Some(name.into()), ..Registration::default() };
    (Checkpoint::new(options).expect("options that fit"), how)
}

/// A trainer with all kinds of state and of checkpoints.
fn full(settings: &Settings, root: &Path) -> Trainer {
    let clock = FixedClock(Duration::ZERO);
    let mut trainer = trainer(settings.clone()).with_checkpoints_in(root).with_clock(clock);
    trainer.add_hook(Busy::default()).unwrap();
    trainer.add_hook(Asking).unwrap();
    trainer.add_hook(closure::on_train_batch_end("toggled", |cx| cx.log("toggled", cx.step as f64))).unwrap();
    trainer
        .add_hook(closure::on_step_end("sampled", |cx| cx.log("sampled", cx.step as f64)).sampled(0.5))
        .unwrap();
    trainer.add_hook(closure::on_step_end("once", |cx| cx.log("once", cx.step as f64)).once()).unwrap();
    let noise = GradientNoiseOptions::new(0.01);
    trainer.add_hook_type::<GradientNoise>(noise).unwrap();
    let ema = EmaWeightsOptions { decay: 0.9, ..EmaWeightsOptions::default() };
    trainer.add_hook_type::<EmaWeights>(ema).unwrap();
    let stop = EarlyStoppingOptions { patience: 2, ..EarlyStoppingOptions::new("val/loss") };
    trainer.add_hook(EarlyStopping::new(stop).unwrap()).unwrap();
    let all = CheckpointOptions { save_top_k: Some(-1), ..CheckpointOptions::default() };
    let every_step =
        CheckpointOptions { every_n_train_steps: Some(1), save_last: SaveLast::Copy(true), ..all.clone() };
    let validated = CheckpointOptions {
        monitor: Some("val/loss".into()),
        save_on_train_epoch_end: Some(false),
        ..all.clone()
    };
    for (name, options) in [("steps", every_step), ("best", validated), ("epochs", all)] {
        let (checkpoint, how) = saver(name, options);
        trainer.register(checkpoint, how).unwrap();
    }
    trainer
}

fn module() -> Toy {
    Toy::default()
        .with_scheduler(SchedulerPlan::every(Interval::Step))
        .with_scheduler(SchedulerPlan::on_plateau_of("val/loss"))
}

fn several_loaders() -> ToyData {
    ToyData { train: vec![3, 2], validate: vec![2, 1], ..ToyData::default() }
}

fn fit(mut trainer: Trainer, data: &mut ToyData) -> (Vec<u32>, Report) {
    let mut toy = module();
    let report = trainer.fit(&mut toy, data).unwrap();
    (bits(&toy), report)
}

/// All files of a checkpoint.
fn files(checkpoint: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files: Vec<_> = std::fs::read_dir(checkpoint)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_name().unwrap().into(), std::fs::read(path).unwrap()))
        .collect();
    // The manifest differs if any file differs.
    files.retain(|(name, _)| name != Path::new("manifest.json"));
    files.sort();
    files
}

fn number(of: &ListedCheckpoint) -> u64 {
    of.summary.as_ref().unwrap().number
}

/// A directory with the checkpoints that existed when this one was taken.
fn as_it_was(saved: &[ListedCheckpoint], then: &ListedCheckpoint) -> tempfile::TempDir {
    let elsewhere = tempfile::tempdir().unwrap();
    // `last` was another checkpoint then.
    let last = saved.iter().find(|saved| saved.name == "last").unwrap();
    std::fs::create_dir(elsewhere.path().join("last")).unwrap();
    let manifest = Path::new("last/manifest.json");
    std::fs::copy(last.path.join("manifest.json"), elsewhere.path().join(manifest)).unwrap();
    for earlier in saved.iter().filter(|earlier| number(earlier) <= number(then)) {
        let copy = elsewhere.path().join(&earlier.name);
        std::fs::create_dir_all(&copy).unwrap();
        for entry in std::fs::read_dir(&earlier.path).unwrap() {
            let file = entry.unwrap().path();
            std::fs::copy(&file, copy.join(file.file_name().unwrap())).unwrap();
        }
    }
    elsewhere
}

/// Resumes from every checkpoint of a complete run, each time in a new directory, and compares the results.
fn check(settings: &Settings, mut data: impl FnMut() -> ToyData) {
    let root = tempfile::tempdir().unwrap();
    let whole = fit(full(settings, root.path()), &mut data());
    let saved = list(root.path()).unwrap();
    let places: std::collections::BTreeSet<_> = saved
        .iter()
        .map(|saved| format!("{:?}", tenterhook::checkpoint::read(&saved.path).unwrap().resume_point))
        .collect();
    assert!(
        ["BatchEnd", "EpochStart", "TrainEnd", "ValidationEnd"].iter().all(|place| places.contains(*place)),
        "{places:?}"
    );
    for from in &saved {
        let elsewhere = as_it_was(&saved, from);
        let resumed = fit(full(settings, elsewhere.path()).restoring(&from.path), &mut data());
        assert_eq!(resumed.0, whole.0, "{}", from.name);
        assert_eq!(resumed.1.metrics, whole.1.metrics, "{}", from.name);
        assert_eq!(resumed.1.progress, whole.1.progress, "{}", from.name);
        assert_eq!(resumed.1.outcome, whole.1.outcome, "{}", from.name);
        for later in saved.iter().filter(|later| number(later) > number(from)) {
            let (then, again) = (files(&later.path), files(&elsewhere.path().join(&later.name)));
            for ((name, then), (_, again)) in then.iter().zip(&again) {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                if then != again && name.ends_with("state.json") {
                    let lines = |text: String| text.lines().map(str::to_owned).collect::<Vec<_>>();
                    let (then, again) = (lines(text(then)), lines(text(again)));
                    let at = then.iter().zip(&again).position(|(then, again)| then != again).unwrap_or(0);
                    let around = at.saturating_sub(3)..(at + 4).min(then.len()).min(again.len());
                    panic!(
                        "{} -> {}: {:#?}\n{:#?}",
                        from.name,
                        later.name,
                        &then[around.clone()],
                        &again[around]
                    );
                }
                assert!(then == again, "{} -> {}: {}", from.name, later.name, name.display());
            }
            assert_eq!(then.len(), again.len(), "{} -> {}", from.name, later.name);
        }
    }
}

#[test]
fn whole_batches_are_steps() {
    check(&epochs(3), || data(4, 2));
}

#[test]
fn accumulation_windows_are_cut_in_two() {
    let settings = Settings {
        accumulate_grad_batches: 3,
        val_check_interval: Some(ValInterval::Batches(BatchLimit::Count(2))),
        ..epochs(3)
    };
    check(&settings, || data(5, 2));
}

#[test]
fn several_loaders_take_turns() {
    let settings = Settings { log_every_n_steps: 2, gradient_clip_val: Some(0.1), ..epochs(3) };
    check(&settings, several_loaders);
}

#[test]
fn training_ends_in_the_middle_of_an_epoch() {
    let settings = Settings { max_steps: 7, ..epochs(3) };
    check(&settings, || data(4, 2));
}

/// Interrupts a run at the n-th call of this method of the module, and resumes from its checkpoint.
fn interrupted(settings: &Settings, place: &'static str, time: u32) {
    let whole = fit(full(settings, tempfile::tempdir().unwrap().path()), &mut data(5, 3));
    let root = tempfile::tempdir().unwrap();
    let mut trainer = full(settings, root.path());
    let handle = trainer.interrupt_handle();
    let (call_log, mut left) = (CallLog::default(), time);
    let mut lab = Lab::new(module(), &call_log).with_handler(move |at, _| {
        left = left.saturating_sub(u32::from(at == place));
        if left == 0 {
            handle.request("SIGTERM");
        }
    });
    let report = trainer.fit(&mut lab, &mut data(5, 3)).unwrap();
    assert!(matches!(report.outcome, Outcome::Interrupted { .. }), "{place} {time}");
    let newest = newest_whole(root.path(), OnUnreadable::Stop).unwrap().path.expect("one that is whole");
    assert!(newest.file_name().unwrap().to_string_lossy().starts_with("emergency-"), "{}", newest.display());
    let resumed = fit(full(settings, root.path()).restoring(&newest), &mut data(5, 3));
    assert_eq!(resumed.0, whole.0, "{place} {time}");
    assert_eq!(resumed.1.metrics, whole.1.metrics, "{place} {time}");
    assert_eq!(resumed.1.progress, whole.1.progress, "{place} {time}");
    assert_eq!(resumed.1.outcome, whole.1.outcome, "{place} {time}");
}

#[test]
fn a_signal_leaves_a_checkpoint_from_which_nothing_is_lost() {
    let windows = Settings { accumulate_grad_batches: 2, ..epochs(3) };
    for time in [1, 5, 6] {
        interrupted(&windows, "training_step", time);
    }
    for time in [1, 3] {
        interrupted(&windows, "validation_step", time);
    }
    for place in ["on_train_batch_end", "on_validation_end", "on_train_epoch_end", "on_train_epoch_start"] {
        interrupted(&windows, place, 2);
    }
}
