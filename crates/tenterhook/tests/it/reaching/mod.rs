//! Hooks that send to external services: whatever the server does, training is bit-identical, does not wait,
//! reports failures, and does not reveal the secret.

mod ends;
mod own_process;
mod secrets;

use std::path::Path;
use std::time::Duration;

use tenterhook::hooks::{
    Checkpoint, CheckpointOptions, Exec, ExecOptions, Heartbeat, HeartbeatOptions, Notify, NotifyOn,
    NotifyOptions, Secret,
};
use tenterhook::toy::Toy;
use tenterhook::{FromOptions, Report, Settings, TimeSpan};

use crate::call_log::SharedVec;
use crate::lab::{bits, data, epochs};
use crate::loopback::{Answer, Server};
use crate::run_directory::{latest, recorded, run_json};

/// A secret that must not appear anywhere.
pub const TOKEN: &str = "T0K3N-7f3a";

/// The address of a webhook at this server.
pub fn address(server: &Server) -> Secret {
    Secret::new(server.url(&format!("/services/{TOKEN}")))
}

fn notify(retries: u32, also_on: &[NotifyOn]) -> Notify {
    let options = NotifyOptions {
        notify_on: [&[NotifyOn::TrainingEnd, NotifyOn::Exception, NotifyOn::HookDisabled], also_on].concat(),
        timeout: TimeSpan::from_secs(1),
        flush_timeout: TimeSpan::from_secs(20),
        retries,
        ..NotifyOptions::new("WEBHOOK")
    };
    Notify::from_options(options).unwrap()
}

fn heartbeat() -> Heartbeat {
    let options = HeartbeatOptions {
        url_env: Some("WEBHOOK".into()),
        interval: TimeSpan::from_secs(1),
        timeout: TimeSpan::from_secs(1),
        flush_timeout: TimeSpan::from_secs(20),
        ..HeartbeatOptions::default()
    };
    Heartbeat::from_options(options).unwrap()
}

fn exec(on: &[&str], command: &str) -> Exec {
    Exec::from_options(ExecOptions::of(on.iter().copied(), command)).unwrap()
}

fn settings() -> Settings {
    Settings { log_every_n_steps: 1, ..epochs(2) }
}

/// The bits of the weights, and the logged lines without their times.
fn outcome(root: &Path, toy: &Toy) -> (Vec<u32>, Vec<String>) {
    let lines = std::fs::read_to_string(latest(root).join("metrics.jsonl")).unwrap();
    let timeless = |line: &str| {
        let mut line: serde_json::Value = serde_json::from_str(line).unwrap();
        line.as_object_mut().unwrap().remove("time");
        line.to_string()
    };
    (bits(toy), lines.lines().map(timeless).collect())
}

fn without() -> (Vec<u32>, Vec<String>) {
    let (root, mut toy) = (tempfile::tempdir().unwrap(), Toy::default());
    let mut trainer = recorded(root.path(), settings());
    trainer.add_hook(Checkpoint::new(CheckpointOptions::default()).unwrap()).unwrap();
    trainer.fit(&mut toy, &mut data(6, 2)).unwrap();
    outcome(root.path(), &toy)
}

/// Trains with hooks that send to this address, and compares the result with a run without them.
fn compared(address: &Secret, retries: u32) -> Report {
    let (root, mut toy, told) = (tempfile::tempdir().unwrap(), Toy::default(), SharedVec::new());
    let tell = told.clone();
    let trainer = recorded(root.path(), settings());
    let mut trainer = trainer.with_notices(move |notice| tell.push(format!("{notice} {notice:?}")));
    trainer.add_hook(Checkpoint::new(CheckpointOptions::default()).unwrap()).unwrap();
    trainer.add_hook(notify(retries, &[NotifyOn::Checkpoint]).with_address(address.clone())).unwrap();
    trainer.add_hook(heartbeat().with_address(address.clone())).unwrap();
    let report = trainer.fit(&mut toy, &mut data(6, 2)).unwrap();
    assert_eq!(outcome(root.path(), &toy), without());
    assert_eq!(
        report.sinks.iter().map(|sent| sent.hook.as_str()).collect::<Vec<_>>(),
        ["notify", "heartbeat"]
    );
    for sent in report.sinks.iter().map(|sent| sent.stats) {
        assert!(sent.waited.is_zero(), "training waits for nobody: {sent:?}");
        assert_eq!(sent.sent, sent.delivered + sent.failed + sent.dropped + sent.lost, "{sent:?}");
    }
    let listed = &run_json(&latest(root.path()))["sinks"];
    assert_eq!(
        (&listed[0]["hook"], &listed[0]["sent"]),
        (&"notify".into(), &report.sinks[0].stats.sent.into())
    );
    let shown = format!("{report:?} {:?} {}", trainer.list_hooks(), told.take().join("\n"));
    assert!(!shown.contains(TOKEN), "{shown}");
    secrets::not_below(root.path());
    report
}

/// The errors of a hook.
fn failures(report: &Report, hook: &str) -> Vec<String> {
    let by = format!("hook `{hook}`");
    let kinds = report.failures.kinds.iter().filter(|kind| kind.by == by);
    kinds.map(|kind| kind.error.clone()).collect()
}

/// Checks that both hooks report this failure and deliver nothing.
#[track_caller]
fn fails(address: &Secret, retries: u32, why: &str) {
    let report = compared(address, retries);
    for (sent, what) in report.sinks.iter().zip(["the message about", "the heartbeat"]) {
        let failures = failures(&report, &sent.hook);
        assert!(failures.iter().any(|error| error.contains(why)), "{}: {failures:?}", sent.hook);
        assert!(failures.iter().all(|error| error.contains(what)), "{}: {failures:?}", sent.hook);
        assert_eq!(sent.stats.delivered, 0, "{sent:?}");
        assert!(sent.stats.failed > 0, "{sent:?}");
    }
}

/// Checks that everything is delivered in the end.
#[track_caller]
fn arrives(server: &Server) {
    let report = compared(&address(server), 3);
    assert_eq!(report.failures.kinds, [], "{:?}", report.failures);
    assert!(
        report.sinks.iter().all(|sent| sent.stats.delivered == sent.stats.sent && sent.stats.sent > 0),
        "{:?}",
        report.sinks
    );
}

#[test]
fn a_server_that_hangs() {
    let server = Server::start(&[Answer::Hang]);
    fails(&address(&server), 0, "there was no answer within 1 s");
}

#[test]
fn a_server_that_is_not_there() {
    fails(&Secret::new(Server::nobody(TOKEN)), 0, "the connection was refused");
}

#[test]
fn a_server_that_resets_the_connection_in_the_middle() {
    let server = Server::start(&[Answer::Reset]);
    fails(&address(&server), 1, "connection");
}

#[test]
fn a_server_that_answers_byte_by_byte_and_too_slowly() {
    let server = Server::start(&[Answer::Slowly(200, Duration::from_millis(100))]);
    fails(&address(&server), 0, "there was no answer within 1 s");
}

#[test]
fn a_server_that_knows_nothing() {
    let server = Server::start(&[Answer::Status(404)]);
    fails(&address(&server), 3, "the server answered 404");
    let messages = server.received().iter().filter(|request| request.body.starts_with("{\"text\"")).count();
    assert_eq!(messages, 2, "a checkpoint and the end, and neither is tried again");
}

#[test]
fn a_server_that_answers_byte_by_byte_in_time() {
    arrives(&Server::start(&[Answer::Slowly(200, Duration::from_millis(1))]));
}

#[test]
fn a_server_that_recovers() {
    // The first request is rejected. A message is sent again; a heartbeat is followed by the next one.
    let server = Server::start(&[Answer::Status(500), Answer::Status(200)]);
    let report = compared(&address(&server), 3);
    let notify = &report.sinks[0].stats;
    assert_eq!((notify.delivered, notify.failed), (notify.sent, 0));
    let errors: Vec<_> = report.failures.kinds.iter().map(|kind| kind.error.as_str()).collect();
    assert!(errors.iter().all(|error| error.contains("the server answered 500")), "{errors:?}");
}

#[test]
fn a_server_that_asks_to_retry_later() {
    let server = Server::start(&[Answer::With(429, "Retry-After: 2"), Answer::Status(200)]);
    let (root, mut toy) = (tempfile::tempdir().unwrap(), Toy::default());
    let mut trainer = recorded(root.path(), settings());
    trainer.add_hook(notify(1, &[]).with_address(address(&server))).unwrap();
    let report = trainer.fit(&mut toy, &mut data(6, 2)).unwrap();
    assert_eq!((report.sinks[0].stats.delivered, server.received().len()), (1, 2), "{:?}", report.failures);
    assert!(
        report.sinks[0].stats.flushed >= Duration::from_millis(1900),
        "it asked for two seconds: {:?}",
        report.sinks
    );
    assert!(report.sinks[0].stats.waited.is_zero());
}

#[test]
fn a_queue_that_is_full_drops_the_oldest_or_makes_training_wait() {
    let command = "sleep 0.3";
    let trained = |when_full| {
        let mut options = ExecOptions::of(["on_train_epoch_end"], command);
        (options.queue_size, options.when_full) = (1, when_full);
        let (root, mut toy) = (tempfile::tempdir().unwrap(), Toy::default());
        let mut trainer = recorded(root.path(), epochs(5));
        trainer.add_hook(Exec::from_options(options).unwrap()).unwrap();
        let report = trainer.fit(&mut toy, &mut data(1, 0)).unwrap();
        (bits(&toy), report.sinks[0].stats)
    };
    let (dropping, dropped) = trained(tenterhook::hooks::worker::WhenFull::DropOldest);
    let (blocking, blocked) = trained(tenterhook::hooks::worker::WhenFull::Block);
    assert_eq!(dropping, blocking);
    assert_eq!((dropped.sent, dropped.waited.is_zero()), (5, true), "{dropped:?}");
    assert!(dropped.dropped > 0 && dropped.delivered + dropped.dropped == 5, "{dropped:?}");
    assert_eq!((blocked.delivered, blocked.dropped), (5, 0), "{blocked:?}");
    assert!(blocked.waited > Duration::from_millis(200), "{blocked:?}");
}
