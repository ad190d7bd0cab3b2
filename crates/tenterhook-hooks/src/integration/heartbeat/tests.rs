use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use tenterhook_core::{Outcome, RunInfo};
use tenterhook_testkit::{FitScript, Rig};

use super::*;
use crate::support::http::loopback::{Answer, Server};

/// A timeout that a passing test never reaches.
const LONG: Duration = Duration::from_mins(1);

fn options() -> HeartbeatOptions {
    HeartbeatOptions { url_env: Some("TENTERHOOK_NEVER_SET".into()), ..HeartbeatOptions::default() }
}

fn rig(options: HeartbeatOptions, url: &str, directory: &Path) -> Rig<Heartbeat> {
    let hook = Heartbeat::from_options(options).expect("the options fit");
    let mut rig = Rig::new(hook.with_address(Secret::new(url)));
    rig.run(RunInfo { id: "r1".into(), directory: Some(directory.to_owned()), ..RunInfo::default() }).setup();
    rig
}

fn beats(server: &Server) -> Vec<(String, Value)> {
    let beat = |body: &str| serde_json::from_str(body).expect("it is JSON");
    server.received().into_iter().map(|request| (request.line, beat(&request.body))).collect()
}

/// Waits until the condition is true, up to [`LONG`].
#[track_caller]
fn until(happened: impl Fn() -> bool) {
    let start = Instant::now();
    while !happened() {
        assert!(start.elapsed() < LONG, "it never happens");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn heartbeats_are_sent_at_the_start_at_intervals_and_at_the_end() {
    let (server, dir) = (Server::start(&[Answer::Status(200)]), tempfile::tempdir().expect("a directory"));
    let options =
        HeartbeatOptions { interval: TimeSpan::from_secs(1), file: Some("beat.json".into()), ..options() };
    let mut rig = rig(options, &server.url("/T0K3N?a=b"), dir.path());
    rig.on_train_start();
    rig.step(3).epoch(1).on_train_batch_end();
    // No further event arrives, as in a long step.
    until(|| beats(&server).len() >= 3);
    let file = || -> Value {
        let text = std::fs::read(dir.path().join("beat.json")).expect("it is there");
        serde_json::from_slice(&text).expect("it is whole")
    };
    assert_eq!([&file()["status"], &file()["run"]], ["running", "r1"]);
    rig.outcome(Outcome::Interrupted { signal: "SIGTERM".into() }).teardown();
    rig.finish();
    let beats = beats(&server);
    assert!(beats.iter().all(|(line, _)| line == "POST /T0K3N?a=b"), "{beats:?}");
    let (last, before) = (&beats[beats.len() - 1].1, &beats[beats.len() - 2].1);
    assert_eq!(
        (&before["status"], &before["step"], &before["epoch"]),
        (&"running".into(), &3.into(), &1.into())
    );
    assert_eq!((&last["status"], &last["run"]), (&"interrupted".into(), &"r1".into()));
    assert!(last["time"].as_u64().expect("a number") > 1_700_000_000);
    assert_eq!(file(), *last);
    assert_eq!(std::fs::read_dir(dir.path()).expect("it is there").count(), 1, "nothing else is left");
    assert!(rig.failures().is_empty(), "{:?}", rig.failures());
    assert_eq!(rig.delivery_stats().map(|sent| (sent.sent, sent.delivered)), Some((2, 2)));
}

#[test]
fn a_failure_uses_the_suffix_of_the_address() {
    let (server, dir) = (Server::start(&[Answer::Status(200)]), tempfile::tempdir().expect("a directory"));
    for (suffix, expected) in [(Some("/fail"), "POST /T0K3N/fail"), (None, "POST /T0K3N")] {
        let options = HeartbeatOptions { fail_suffix: suffix.map(str::to_owned), ..options() };
        let mut rig = rig(options, &server.url("/T0K3N"), dir.path());
        // The run failed before training began.
        rig.outcome(Outcome::Failed { error: "no data".into() }).teardown();
        rig.finish();
        let beats = beats(&server);
        let (line, beat) = beats.last().expect("it is sent");
        assert_eq!((line.as_str(), &beat["status"]), (expected, &"failed".into()));
    }
}

#[test]
fn failures_in_a_row_are_reported_once() {
    let (bad, good) = (Answer::Status(500), Answer::Status(200));
    let server = Server::start(&[bad, bad, good, bad, bad, good]);
    let dir = tempfile::tempdir().expect("a directory");
    let options = HeartbeatOptions { interval: TimeSpan::from_secs(1), ..options() };
    let mut rig = rig(options, &server.url("/T0K3N"), dir.path());
    rig.on_train_start();
    until(|| beats(&server).len() >= 6);
    rig.on_train_batch_end();
    rig.teardown();
    rig.finish();
    let failures = rig.failures();
    let said: Vec<_> = failures.iter().map(|failed| failed.failure.to_string()).collect();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("did not get to the given address: the server answered 500"), "{said:?}");
    assert!(said[0].ends_with("(and 1 more since)"), "once for each silence: {said:?}");
    assert!(!format!("{failures:?} {:?}", rig.hook()).contains("T0K3N"));
    assert!(rig.is_enabled());
}

#[test]
fn the_last_heartbeat_is_retried() {
    let server = Server::start(&[Answer::Status(200), Answer::Reset, Answer::Status(200)]);
    let dir = tempfile::tempdir().expect("a directory");
    let mut rig = rig(options(), &server.url("/T0K3N"), dir.path());
    rig.on_train_start();
    rig.teardown();
    rig.finish();
    let statuses: Vec<_> = beats(&server).into_iter().map(|(_, beat)| beat["status"].clone()).collect();
    assert_eq!(statuses, ["running", "completed"]);
    assert!(rig.failures().is_empty());
}

#[test]
fn it_is_silent_in_a_dry_run_a_rehearsal_and_an_evaluation() {
    let (server, dir) = (Server::start(&[Answer::Status(200)]), tempfile::tempdir().expect("a directory"));
    let with_file = || HeartbeatOptions { file: Some("beat.json".into()), ..options() };
    for (fast_dev_run, rehearsal) in [(true, false), (false, true)] {
        let mut rig = rig(with_file(), &server.url("/T0K3N"), dir.path());
        let directory = Some(dir.path().to_owned());
        rig.run(RunInfo { fast_dev_run, rehearsal, directory, ..RunInfo::default() });
        rig.play(&FitScript::new(1, 2).script());
        rig.finish();
    }
    let mut rig = rig(with_file(), &server.url("/T0K3N"), dir.path());
    rig.stage(Stage::Test).teardown();
    rig.finish();
    assert_eq!(beats(&server).len(), 0);
    assert_eq!(std::fs::read_dir(dir.path()).expect("it is there").count(), 0);
}

#[test]
fn invalid_options_are_refused_by_name() {
    let refused = |options| Heartbeat::from_options(options).expect_err("refused").to_string();
    let default = HeartbeatOptions::default;
    assert!(refused(default()).contains("set `url_env`, such as \"HEALTHCHECK_URL\", or `file`"));
    let variable = |name: &str| HeartbeatOptions { url_env: Some(name.into()), ..default() };
    assert!(refused(variable("http://host/T0K3N")).starts_with("`url_env` must be the name"));
    let suffix = Some("/fail".to_owned());
    let without = HeartbeatOptions { file: Some("a".into()), fail_suffix: suffix, ..default() };
    assert!(refused(without).starts_with("`fail_suffix` has no effect"));
    assert!(
        refused(HeartbeatOptions { file: Some("run.json".into()), ..default() }).starts_with("`file` is")
    );
    assert!(
        refused(HeartbeatOptions { interval: TimeSpan::default(), ..variable("A") })
            .starts_with("`interval` is")
    );
    let mut rig = Rig::new(Heartbeat::from_options(variable("TENTERHOOK_NEVER_SET")).expect("it fits"));
    let failure = rig.setup().failure.clone().expect("it is not set");
    assert!(failure.contains("`TENTERHOOK_NEVER_SET` is not set"), "{failure}");
}
