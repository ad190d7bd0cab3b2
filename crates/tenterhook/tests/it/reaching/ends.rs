//! Every outcome of a run is reported to external services.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;
use tenterhook::hooks::{
    Checkpoint, CheckpointOptions, EarlyStopping, EarlyStoppingOptions, Notify, NotifyOn, NotifyOptions,
};
use tenterhook::toy::Toy;
use tenterhook::{FromOptions, Registration, RunError, Settings, StepOutput, closure};

use super::{address, exec, heartbeat, notify, settings};
use crate::call_log::CallLog;
use crate::clock::Hand;
use crate::lab::{Lab, data, epochs};
use crate::loopback::{Answer, Server};
use crate::run_directory::{latest, recorded};

/// The messages and the heartbeat statuses that the server received.
fn heard(server: &Server) -> (Vec<String>, Vec<String>) {
    let (mut texts, mut statuses) = (Vec::new(), Vec::new());
    for request in server.received() {
        let json: Value = serde_json::from_str(&request.body).unwrap();
        match &json["text"] {
            Value::String(text) => texts.push(text.clone()),
            _ => statuses.push(json["status"].as_str().unwrap().to_owned()),
        }
    }
    (texts, statuses)
}

const ENDS: [&str; 4] = ["on_train_end", "on_exception", "on_fit_end", "teardown"];

#[test]
fn an_interruption() {
    let (server, root) = (Server::start(&[Answer::Status(200)]), tempfile::tempdir().unwrap());
    let mut trainer = recorded(root.path(), settings());
    let handle = trainer.interrupt_handle();
    trainer
        .add_hook(closure::on_step_end("user", move |cx| {
            if cx.step == 3 {
                handle.request("SIGINT");
            }
        }))
        .unwrap();
    trainer.add_hook(notify(3, &[]).with_address(address(&server))).unwrap();
    trainer.add_hook(heartbeat().with_address(address(&server))).unwrap();
    trainer.add_hook(exec(&ENDS, "cat >> $TENTER_RUN_DIR/told")).unwrap();
    let report = trainer.fit(&mut Toy::default(), &mut data(6, 2)).unwrap();
    assert_eq!(report.failures.kinds, [], "{:?}", report.failures);
    let (texts, statuses) = heard(&server);
    let last = texts.last().unwrap();
    assert!(
        last.contains(": training interrupted at step 3 (epoch ") && last.ends_with(": SIGINT"),
        "{last}"
    );
    assert_eq!(statuses.last().unwrap(), "interrupted");
    let told = std::fs::read_to_string(latest(root.path()).join("told")).unwrap();
    let told: Vec<Value> = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let events: Vec<_> = told.iter().map(|told| told["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["on_train_end", "on_fit_end", "teardown"]);
    assert!(
        told.iter().all(|told| told["outcome"] == "interrupted" && told["signal"] == "SIGINT"),
        "{told:?}"
    );
}

#[test]
fn a_failure() {
    let (server, root) = (Server::start(&[Answer::Status(200)]), tempfile::tempdir().unwrap());
    let mut trainer = recorded(root.path(), settings());
    trainer.add_hook(notify(3, &[]).with_address(address(&server))).unwrap();
    trainer.add_hook(heartbeat().with_address(address(&server))).unwrap();
    trainer.add_hook(exec(&ENDS, "cat >> $TENTER_RUN_DIR/told")).unwrap();
    let mut lab = Lab::new(Toy::default(), &CallLog::default()).with_step(|lab, batch, cx| {
        if cx.progress().step == 2 {
            Err("out of <memory>".into())
        } else {
            Ok(StepOutput::Loss(lab.toy.loss(batch)))
        }
    });
    let Err(RunError::Failed { report, .. }) = trainer.fit(&mut lab, &mut data(6, 2)) else {
        panic!("it fails")
    };
    let (texts, statuses) = heard(&server);
    let [text] = &texts[..] else { panic!("{texts:?}") };
    assert!(text.contains(": failed at step 2 (epoch 1/2): module failed in training_step"), "{text}");
    assert!(text.ends_with("out of &lt;memory&gt;"), "{text}");
    assert_eq!(statuses.last().unwrap(), "failed");
    assert!(report.sinks.iter().all(|sent| sent.stats.delivered == sent.stats.sent), "{:?}", report.sinks);
    let told = std::fs::read_to_string(latest(root.path()).join("told")).unwrap();
    let told: Vec<Value> = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let seen: Vec<_> = told.iter().map(|told| (&told["event"], &told["error"])).collect();
    assert_eq!(seen[0], (&"on_exception".into(), &"out of <memory>".into()));
    assert_eq!(seen[1].0, "teardown");
}

#[test]
fn the_best_model_a_disabled_hook_and_an_early_stop_are_reported() {
    let (server, root) = (Server::start(&[Answer::Status(200)]), tempfile::tempdir().unwrap());
    // A minute between batches, so that no message is suppressed as too frequent.
    let hand = Hand::at(0);
    let mut trainer =
        recorded(root.path(), Settings { background_saves: false, ..epochs(9) }).with_clock(hand.clone());
    trainer.add_hook(closure::on_train_batch_end("time", move |_| hand.turn(60))).unwrap();
    trainer.add_hook(closure::on_train_epoch_start("bad", |_| panic_quietly())).unwrap();
    let stopping =
        EarlyStoppingOptions { stopping_threshold: Some(1e9), ..EarlyStoppingOptions::new("val/loss") };
    trainer.add_hook(EarlyStopping::new(stopping).unwrap()).unwrap();
    let saving = CheckpointOptions { monitor: Some("val/loss".into()), ..CheckpointOptions::default() };
    trainer.add_hook(Checkpoint::new(saving).unwrap()).unwrap();
    let all = [NotifyOn::BestModel, NotifyOn::EarlyStop, NotifyOn::HookDisabled, NotifyOn::TrainingEnd];
    let options = NotifyOptions { notify_on: all.to_vec(), ..NotifyOptions::new("WEBHOOK") };
    let chat = Notify::from_options(options).unwrap().with_address(address(&server));
    trainer.register(chat, Registration { name: Some("chat".into()), ..Registration::default() }).unwrap();
    let report = trainer.fit(&mut Toy::default(), &mut data(3, 1)).unwrap();
    let (texts, _) = heard(&server);
    let [disabled, best, stopped] = &texts[..] else { panic!("{texts:?} {:?}", report.failures) };
    assert!(disabled.contains(": bad is disabled at step 0: ") && disabled.contains("a panic"), "{disabled}");
    assert!(
        best.contains(": the best model so far, of step 3: ") && best.contains("/checkpoints/"),
        "{best}"
    );
    assert!(stopped.contains(": stopped at step 3 (epoch 1/9) by early_stopping: "), "{stopped}");
    assert_eq!(report.sinks[0].hook, "chat");
}

fn panic_quietly() {
    std::panic::resume_unwind(Box::new("a panic that prints nothing"));
}

#[test]
fn heartbeats_are_sent_during_a_long_step() {
    let (server, root) = (Arc::new(Server::start(&[Answer::Status(200)])), tempfile::tempdir().unwrap());
    let mut trainer = recorded(root.path(), settings());
    trainer.add_hook(heartbeat().with_address(address(&server))).unwrap();
    let (other_side, beats) = (Arc::clone(&server), Arc::new(Mutex::new(0)));
    let counted = Arc::clone(&beats);
    let mut lab = Lab::new(Toy::default(), &CallLog::default()).with_step(move |lab, batch, cx| {
        let start = Instant::now();
        // The second step lasts until three heartbeats have arrived.
        let before = other_side.received().len();
        while cx.progress().step == 1 && *counted.lock().unwrap() < 3 {
            assert!(start.elapsed() < Duration::from_mins(1), "it does not beat");
            std::thread::sleep(Duration::from_millis(10));
            *counted.lock().unwrap() = other_side.received().len() - before;
        }
        Ok(StepOutput::Loss(lab.toy.loss(batch)))
    });
    trainer.fit(&mut lab, &mut data(3, 0)).unwrap();
    assert!(*beats.lock().unwrap() >= 3);
    let (_, statuses) = heard(&server);
    assert_eq!(statuses.first().zip(statuses.last()), Some((&"running".into(), &"completed".into())));
}
