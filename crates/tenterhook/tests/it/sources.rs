//! `Event::receivers` is the order in which every event actually reaches hooks, module, strategy and data.

use std::path::Path;

use tenterhook::hooks::{Checkpoint, CheckpointOptions};
use tenterhook::toy::Toy;
use tenterhook::{Event, EventReceiver, HookGroup, Settings, Tier, Trainer, closure, sources};

use crate::call_log::{CallLog, Recorder};
use crate::lab::{Lab, LabData, LabStrategy, data, trainer};

/// A trainer with two recording hooks, one of them a monitor, and a checkpoint.
fn recorded(call_log: &CallLog, checkpoints: &Path) -> (Trainer, Lab, LabData) {
    let settings = Settings { max_epochs: Some(2), ..Settings::default() };
    let mut trainer =
        trainer(settings).with_checkpoints_in(checkpoints).with_strategy(LabStrategy::new(call_log));
    trainer.add_hook(Recorder::new("monitor", call_log).with_tier(Tier::Monitor)).unwrap();
    trainer.add_hook(Recorder::new("user", call_log)).unwrap();
    let options = CheckpointOptions { save_top_k: Some(-1), ..CheckpointOptions::default() };
    trainer.add_hook(Checkpoint::new(options).unwrap()).unwrap();
    (trainer, Lab::new(Toy::default(), call_log), LabData::new(data(2, 1), call_log))
}

type Run = fn(Trainer, Lab, LabData, &Path);

/// The calls of all four entry points, of a resumed run and of one that fails.
fn traces() -> Vec<(&'static str, CallLog)> {
    let checkpoints = tempfile::tempdir().unwrap();
    let runs: [(&'static str, Run); 7] = [
        ("fit", |mut trainer, mut module, mut data, _| {
            trainer.fit(&mut module, &mut data).unwrap();
        }),
        ("validate", |mut trainer, mut module, mut data, _| {
            trainer.validate(&mut module, &mut data).unwrap();
        }),
        ("test", |mut trainer, mut module, mut data, _| {
            trainer.test(&mut module, &mut data).unwrap();
        }),
        ("predict", |mut trainer, mut module, mut data, _| {
            trainer.predict(&mut module, &mut data).unwrap();
        }),
        ("a resumed fit", |trainer, mut module, mut data, checkpoints| {
            let mut trainer = trainer.restoring(checkpoints.join("epoch=0-step=2"));
            trainer.fit(&mut module, &mut data).unwrap();
        }),
        ("a fit in which a hook is disabled", |mut trainer, mut module, mut data, _| {
            trainer
                .add_hook(closure::on_train_start("panics", |_| -> () { panic!("as it should") }))
                .unwrap();
            trainer.fit(&mut module, &mut data).unwrap();
        }),
        ("a fit that fails", |mut trainer, mut module, mut data, _| {
            module.call_log.fails_at("module", "backward");
            trainer.fit(&mut module, &mut data).unwrap_err();
        }),
    ];
    let traces = runs.into_iter().map(|(name, run)| {
        let call_log = CallLog::default();
        let (trainer, module, data) = recorded(&call_log, checkpoints.path());
        run(trainer, module, data, checkpoints.path());
        (name, call_log)
    });
    traces.collect()
}

/// The published order of one event, in the words of the call log.
fn published(event: Event) -> Vec<String> {
    let names = event.receivers().iter().flat_map(|source| match source {
        EventReceiver::Data => &["data"][..],
        EventReceiver::Module => &["module"],
        EventReceiver::Strategy => &["strategy"],
        EventReceiver::Hooks(HookGroup::All) => &["hook:user", "hook:monitor"],
        EventReceiver::Hooks(HookGroup::BeforeModule) => &["hook:user"],
        EventReceiver::Hooks(HookGroup::Monitors) => &["hook:monitor"],
    });
    names.map(|name| (*name).to_owned()).collect()
}

#[test]
fn every_event_reaches_the_published_sources_in_the_published_order() {
    let traces = traces();
    // The recorders do not receive `on_notice`.
    for event in Event::ALL.iter().filter(|event| **event != Event::Notice) {
        let order = published(*event);
        let mut fired = 0;
        for (run, call_log) in &traces {
            for round in call_log.sources(event.handler()).chunks(order.len()) {
                assert_eq!(round, order, "{event} in {run}");
                fired += 1;
            }
        }
        assert!(fired > 0, "{event} fired in none of the runs");
    }
}

#[test]
fn the_receivers_of_the_plan_are_those_of_the_trace() {
    let checkpoints = tempfile::tempdir().unwrap();
    let call_log = CallLog::default();
    let (mut trainer, mut module, mut data) = recorded(&call_log, checkpoints.path());
    let planned = |trainer: &Trainer, event| -> Vec<String> {
        let receivers = sources::receivers(event, trainer.hooks());
        receivers.into_iter().map(|one| one.source).filter(|name| name != "hook:checkpoint").collect()
    };
    for event in [Event::Setup, Event::TrainEpochEnd, Event::StepEnd] {
        assert_eq!(planned(&trainer, event), published(event), "{event}");
    }
    trainer.disable_hook("user").unwrap();
    trainer.fit(&mut module, &mut data).unwrap();
    let receivers = planned(&trainer, Event::StepEnd);
    assert_eq!(receivers, ["hook:monitor", "module"]);
    for step in call_log.sources("on_step_end").chunks(receivers.len()) {
        assert_eq!(step, receivers);
    }
}
