//! Hooks that export metrics: the lines that they receive, their `finish`, and the report at the end.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tenterhook::run::{Run, SinkDeliveries};
use tenterhook::toy::Toy;
use tenterhook::{
    DeliveryStats, HookDisabled, HookExt, HookResult, HookSpec, Log, Observer, OnError, Outcome, Phase,
    Policy, RunError, Settings, TrainStart, hook,
};

use crate::lab::{data, trainer};
use crate::run_directory::{latest, plan};

fn settings() -> Settings {
    Settings { max_epochs: Some(2), log_every_n_steps: 1, num_sanity_val_steps: 1, ..Settings::default() }
}

/// A line: step, epoch, phase, whether it ends an epoch, and its metrics.
type Line = (u64, u64, Phase, bool, BTreeMap<String, f64>);

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<Line>>>);

#[hook]
impl Observer for Lines {
    fn on_log(&mut self, cx: &Log) -> HookResult {
        let line = (cx.step, cx.epoch, cx.logged_in, cx.epoch_end, cx.metrics.clone());
        self.0.lock().unwrap().push(line);
        Ok(())
    }
}

impl Lines {
    fn seen(&self) -> Vec<Line> {
        self.0.lock().unwrap().clone()
    }
}

#[test]
fn on_log_delivers_the_recorded_lines() {
    let root = tempfile::tempdir().unwrap();
    let lines = Lines::default();
    let mut trainer = trainer(settings()).with_run_directory(plan(root.path()));
    trainer.add_hook(lines.clone()).unwrap();
    trainer.fit(&mut Toy::default(), &mut data(3, 2)).unwrap();
    let text = std::fs::read_to_string(latest(root.path()).join("metrics.jsonl")).unwrap();
    let written: Vec<Line> = text
        .lines()
        .map(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            let stage = serde_json::from_value(line["stage"].clone()).unwrap();
            let metrics = serde_json::from_value(line["metrics"].clone()).unwrap();
            let epoch_end = line["epoch_end"].as_bool().unwrap_or(false);
            (line["step"].as_u64().unwrap(), line["epoch"].as_u64().unwrap(), stage, epoch_end, metrics)
        })
        .collect();
    // Three batches, a validation and the end of the epoch, twice.
    assert_eq!(written.len(), 10);
    assert_eq!(lines.seen(), written);
}

#[test]
fn lines_are_delivered_without_a_run_directory_too() {
    let lines = Lines::default();
    let mut trainer = trainer(settings());
    trainer.add_hook(lines.clone()).unwrap();
    trainer.fit(&mut Toy::default(), &mut data(3, 2)).unwrap();
    assert_eq!(lines.seen().len(), 10);
    assert!(lines.seen().iter().all(|line| line.2 != Phase::SanityCheck));
}

#[test]
fn a_cadence_counts_the_lines_of_batches_and_lets_those_of_epochs_pass() {
    let lines = Lines::default();
    let mut trainer = trainer(settings());
    trainer.add_hook(lines.clone().every("2 steps").unwrap()).unwrap();
    trainer.fit(&mut Toy::default(), &mut data(3, 2)).unwrap();
    let seen: Vec<_> = lines.seen().iter().map(|line| (line.0, line.2, line.3)).collect();
    let (train, validate) = (Phase::Train, Phase::Validate);
    assert_eq!(
        seen,
        [
            (2, train, false),
            (3, validate, false),
            (3, train, true),
            (4, train, false),
            (6, train, false),
            (6, validate, false),
            (6, train, true),
        ]
    );
}

/// Fails at given places, and counts how often it finished.
#[derive(Clone)]
struct Sends {
    policy: Policy,
    fails_at_start: bool,
    fails_at_end: bool,
    finished: Arc<Mutex<u32>>,
}

#[hook]
impl Observer for Sends {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        spec.policy(self.policy)
    }
    fn on_train_start(&mut self, _: &TrainStart) -> HookResult {
        if self.fails_at_start { Err("it cannot begin".into()) } else { Ok(()) }
    }
    fn finish(&mut self) -> HookResult {
        *self.finished.lock().unwrap() += 1;
        if self.fails_at_end { Err("3 of 5 were lost".into()) } else { Ok(()) }
    }
    fn delivery_stats(&self) -> Option<DeliveryStats> {
        Some(DeliveryStats {
            sent: 5,
            delivered: 2,
            lost: 3,
            flushed: Duration::from_secs(1),
            ..DeliveryStats::default()
        })
    }
}

const GIVE_UP: Policy = Policy { on_error: OnError::Disable, max_failures: 1 };

fn sends(policy: Policy) -> Sends {
    Sends { policy, fails_at_start: false, fails_at_end: false, finished: Arc::default() }
}

#[test]
fn a_disabled_hook_finishes_too_and_its_account_is_in_the_report_and_in_run_json() {
    let root = tempfile::tempdir().unwrap();
    let hook = Sends { fails_at_start: true, ..sends(GIVE_UP) };
    let mut trainer = trainer(settings()).with_run_directory(plan(root.path()));
    trainer.add_hook(hook.clone()).unwrap();
    let report = trainer.fit(&mut Toy::default(), &mut data(1, 1)).unwrap();
    assert_eq!(*hook.finished.lock().unwrap(), 1);
    let SinkDeliveries { hook, stats, .. } = &report.sinks[0];
    assert_eq!((&**hook, stats.sent, stats.delivered, stats.lost), ("sends", 5, 2, 3));
    assert_eq!(stats.flushed, Duration::from_secs(1));
    let run = Run::read(latest(root.path())).unwrap();
    assert_eq!(run.record.sinks, report.sinks);
}

#[test]
fn a_failure_at_the_end_follows_the_policy() {
    let root = tempfile::tempdir().unwrap();
    let run = |policy| {
        let hook = Sends { fails_at_end: true, ..sends(policy) };
        let mut trainer = trainer(settings()).with_run_directory(plan(root.path()));
        trainer.add_hook(hook).unwrap();
        trainer.fit(&mut Toy::default(), &mut data(1, 1))
    };
    let report = run(Policy::WARN).unwrap();
    assert_eq!(report.outcome, Outcome::Completed);
    let kind = &report.failures.kinds[0];
    assert_eq!((&*kind.by, &*kind.at, &*kind.error), ("hook `sends`", "finish", "3 of 5 were lost"));
    let Err(RunError::Failed { failure, report, .. }) = run(Policy::ABORT) else { panic!("it aborts") };
    assert_eq!(failure.place, "finish");
    assert_eq!(report.outcome, Outcome::Failed { error: failure.to_string() });
}

#[derive(Clone, Default)]
struct Hears(Arc<Mutex<Vec<(String, String)>>>);

#[hook]
impl Observer for Hears {
    fn on_hook_disabled(&mut self, cx: &HookDisabled) -> HookResult {
        self.0.lock().unwrap().push((cx.hook.to_owned(), cx.reason.to_owned()));
        Ok(())
    }
}

#[test]
fn hooks_that_disable_and_enable_each_other_do_not_loop_forever() {
    let hears = Hears::default();
    let mut trainer = trainer(settings());
    trainer.add_hook(hears.clone()).unwrap();
    trainer.add_hook(Lines::default()).unwrap();
    let asks = |cx: &tenterhook::RunContext<'_>| {
        cx.hooks().enable("lines");
        cx.hooks().disable("lines");
    };
    trainer.add_hook(tenterhook::closure::on_hook_disabled("again", move |cx| asks(cx))).unwrap();
    trainer.add_hook(tenterhook::closure::on_train_start("begins", move |cx| asks(cx))).unwrap();
    let report = trainer.fit(&mut Toy::default(), &mut data(2, 1)).unwrap();
    assert_eq!(report.outcome, Outcome::Completed);
    assert!(hears.0.lock().unwrap().len() > 4);
}

#[test]
fn the_other_hooks_receive_the_disabled_hook_and_the_reason() {
    let ears = Hears::default();
    let mut trainer = trainer(settings());
    trainer.add_hook(ears.clone()).unwrap();
    trainer.add_hook(Sends { fails_at_start: true, ..sends(GIVE_UP) }).unwrap();
    trainer.add_hook(Lines::default()).unwrap();
    let asks = tenterhook::closure::on_step_end("asks", |cx| cx.hooks().disable("lines"));
    trainer.add_hook(asks.once()).unwrap();
    trainer.fit(&mut Toy::default(), &mut data(2, 1)).unwrap();
    let heard = ears.0.lock().unwrap();
    assert_eq!(heard.len(), 2, "{heard:?}");
    assert_eq!(heard[0].0, "sends");
    assert!(heard[0].1.contains("it cannot begin"), "{heard:?}");
    assert_eq!(heard[1], ("lines".to_owned(), "requested by `asks`".to_owned()));
}
