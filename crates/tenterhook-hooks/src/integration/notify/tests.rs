use std::time::Duration;

use tenterhook_core::{Hook as _, Progress, RunInfo, Stage, TimeSpan};
use tenterhook_testkit::{FailureEffect, FitScript, Rig};

use super::*;
use crate::support::http::loopback::{Answer, Server};

fn options(on: &[NotifyOn]) -> NotifyOptions {
    NotifyOptions { notify_on: on.to_vec(), ..NotifyOptions::new("TENTERHOOK_NEVER_SET") }
}

fn notify(options: NotifyOptions) -> Notify {
    Notify::from_options(options).expect("the options fit")
}

/// A rig whose hook sends to this server, set up.
fn rig(options: NotifyOptions, server: &Server) -> Rig<Notify> {
    let mut rig = Rig::new(notify(options).with_address(Secret::new(server.url("/T0K3N"))));
    rig.run(RunInfo { id: "r1".into(), ..RunInfo::default() }).setup();
    rig
}

/// The texts of the received messages, after the hook has finished.
fn texts(rig: &mut Rig<Notify>, server: &Server) -> Vec<String> {
    rig.finish();
    let texts = server.received().into_iter().map(|request| {
        assert_eq!(request.line, "POST /T0K3N");
        let json: serde_json::Value = serde_json::from_str(&request.body).expect("it is JSON");
        assert_eq!(json.as_object().map(serde_json::Map::len), Some(1), "{json}");
        json["text"].as_str().expect("a text").to_owned()
    });
    texts.collect()
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn there_is_a_message_for_every_selected_event() {
    let server = Server::start(&[Answer::Status(200)]);
    let mut rig = rig(options(&NotifyOn::ALL), &server);
    rig.progress(Progress { step: 7, epoch: 2, batches: 1, ..Progress::default() });
    rig.checkpoint(6, "runs/r1/checkpoints/a", "runs/r1/checkpoints");
    rig.best_score(Some(0.5)).on_checkpoint_saved();
    rig.elapsed(seconds(5)).best_score(None).redelivered(true).on_checkpoint_saved();
    rig.elapsed(seconds(10)).disabled("console_log", "it failed").on_hook_disabled();
    rig.on_exception();
    rig.on_train_end();
    rig.outcome(Outcome::Stopped { by: "early_stopping".into(), reason: "no better".into() }).on_train_end();
    rig.outcome(Outcome::Interrupted { signal: "SIGINT".into() }).on_train_end();
    let expected = [
        "r1: the best model so far, of step 6: runs/r1/checkpoints/a",
        "r1: a checkpoint of step 6: runs/r1/checkpoints/a (may have been sent before)",
        "r1: console_log is disabled at step 7: it failed",
        "r1: failed at step 7 (epoch 3): module failed in training_step (epoch 1, step 0): a made-up failure",
        "r1: training completed at step 7 (epoch 3): all epochs or steps are done",
        "r1: stopped at step 7 (epoch 3) by early_stopping: no better",
        "r1: training interrupted at step 7 (epoch 3): SIGINT",
    ];
    assert_eq!(texts(&mut rig, &server), expected);
    let sent = rig.delivery_stats().expect("it has a worker");
    assert_eq!(
        (sent.sent, sent.delivered, sent.failed, sent.lost, sent.waited),
        (7, 7, 0, 0, Duration::ZERO)
    );
    assert!(rig.failures().is_empty(), "{:?}", rig.failures());
}

#[test]
fn other_events_are_not_delivered() {
    let server = Server::start(&[Answer::Status(200)]);
    let mut rig = rig(options(&[NotifyOn::EarlyStop, NotifyOn::BestModel]), &server);
    assert!(!rig.on_exception().delivered);
    assert!(!rig.on_hook_disabled().delivered);
    assert!(rig.on_train_end().delivered, "it may have been stopped");
    assert!(rig.on_checkpoint_saved().delivered, "it may be the best");
    assert_eq!(texts(&mut rig, &server), [""; 0]);
    assert_eq!(rig.delivery_stats(), None, "no thread was started");
}

#[test]
fn an_early_stop_is_a_training_end_if_only_that_is_selected() {
    let server = Server::start(&[Answer::Status(200)]);
    let mut rig = rig(options(&[NotifyOn::TrainingEnd]), &server);
    rig.outcome(Outcome::Stopped { by: "timer".into(), reason: "late".into() }).on_train_end();
    assert_eq!(texts(&mut rig, &server), ["r1: training stopped at step 0 (epoch 1): late"]);
}

#[test]
fn a_template_has_the_metrics_that_it_names() {
    let server = Server::start(&[Answer::Status(200)]);
    let templates = NotifyTemplates {
        training_end: Some("{run} {val/loss:.2f} {missing}".into()),
        ..NotifyTemplates::default()
    };
    let mut rig = rig(NotifyOptions { templates, ..options(&[NotifyOn::TrainingEnd]) }, &server);
    rig.metric("val/loss", 0.126).on_train_end();
    assert_eq!(texts(&mut rig, &server), ["r1 0.13 n/a"]);
}

#[test]
fn a_message_about_a_checkpoint_has_the_numbers_of_its_save() {
    let server = Server::start(&[Answer::Status(200)]);
    let text = "{step} {epoch} {epoch_label} {val/loss} best {best:.2f} {best_path}";
    let templates = NotifyTemplates {
        best_model: Some(text.into()),
        training_end: Some("{val/loss} best {best} {best_path}".into()),
        ..NotifyTemplates::default()
    };
    let on = [NotifyOn::BestModel, NotifyOn::TrainingEnd];
    let options = NotifyOptions { templates, monitor: Some("val/loss".into()), ..options(&on) };
    let mut rig = rig(NotifyOptions { min_interval: TimeSpan::default(), ..options }, &server);
    rig.step(9).epoch(2).metric("val/loss", 7.0);
    rig.checkpoint(3, "a", ".").saved_epoch(0).saved_metric("val/loss", 0.5).on_checkpoint_saved();
    rig.checkpoint(6, "b", ".").saved_epoch(1).saved_metric("val/loss", 0.75).on_checkpoint_saved();
    rig.on_train_end();
    assert_eq!(texts(&mut rig, &server), ["3 0 epoch 1 0.5 best 0.50 a", "7 best 0.5 a"]);
}

#[test]
fn a_checkpoint_is_not_scored_by_a_value_of_older_weights() {
    let server = Server::start(&[Answer::Status(200)]);
    let own = NotifyOptions {
        monitor: Some("val/loss".into()),
        min_interval: TimeSpan::default(),
        ..options(&[NotifyOn::BestModel])
    };
    let mut rig = rig(own, &server);
    rig.checkpoint(4, "a", ".").saved_metric("val/loss", 0.5).on_checkpoint_saved();
    rig.saved_metric("val/loss", 0.25).checkpoint(6, "b", ".").on_checkpoint_saved();
    rig.saved_metric("val/loss", 0.125).on_checkpoint_saved();
    rig.teardown();
    assert_eq!(rig.said(), []);
    let received = ["r1: the best model so far, of step 4: a", "r1: the best model so far, of step 6: b"];
    assert_eq!(texts(&mut rig, &server), received);
}

#[test]
fn a_metric_that_is_never_logged_at_a_checkpoints_step_is_reported_at_the_end() {
    let server = Server::start(&[Answer::Status(200)]);
    let mut rig =
        rig(NotifyOptions { monitor: Some("val/loss".into()), ..options(&[NotifyOn::BestModel]) }, &server);
    rig.checkpoint(4, "a", ".").saved_metric("val/loss", 0.5).checkpoint(6, "b", ".").on_checkpoint_saved();
    rig.teardown();
    let [(_, said)] = &rig.said()[..] else { panic!("{:?}", rig.said()) };
    assert!(
        said.contains("a value of `val/loss` of its own step") && said.contains("set `monitor`"),
        "{said}"
    );
    assert_eq!(texts(&mut rig, &server), [""; 0]);
}

#[test]
fn the_best_checkpoint_of_a_message_is_the_last_that_was_announced() {
    let server = Server::start(&[Answer::Status(200)]);
    let text = Some("{step} {best} {best_path} {redelivered}".to_owned());
    let templates = NotifyTemplates {
        training_end: Some("{step} {best} {best_path}".into()),
        best_model: text.clone(),
        checkpoint: text,
        ..NotifyTemplates::default()
    };
    let on = [NotifyOn::TrainingEnd, NotifyOn::BestModel, NotifyOn::Checkpoint];
    let options = NotifyOptions { templates, min_interval: TimeSpan::default(), ..options(&on) };
    let mut first = rig(options.clone(), &server);
    first.on_train_end();
    // A later save is requested, but neither durable nor announced yet.
    let best =
        BestCheckpoint { hook: "c".into(), monitor: "val/loss".into(), score: 0.125, path: "c".into() };
    first.board().put(BEST, best);
    first.checkpoint(3, "a", ".").best_score(Some(0.5)).on_checkpoint_saved();
    first.checkpoint(4, "b", ".").best_score(None).on_checkpoint_saved();
    let mut resumed = first.resumed(notify(options).with_address(Secret::new(server.url("/T0K3N"))));
    let received = texts(&mut first, &server);
    assert_eq!(received, ["0 n/a n/a", "3 0.5 a", "4 0.5 a"]);
    // The process was killed before the next checkpoints were announced: the resumed run announces them in order.
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(directory.path().join("c")).expect("made");
    resumed.run(RunInfo { checkpoints: directory.path().into(), ..RunInfo::default() }).setup();
    resumed.on_checkpoint_loaded();
    resumed.checkpoint(5, "d", ".").redelivered(true).on_checkpoint_saved();
    resumed.checkpoint(6, "c", ".").best_score(Some(0.125)).on_checkpoint_saved();
    resumed.step(7).on_train_end();
    let received = texts(&mut resumed, &server).split_off(received.len());
    let again = "(may have been sent before)";
    assert_eq!(received, [format!("5 0.5 a {again}"), format!("6 0.125 c {again}"), "7 0.125 c".into()]);
}

#[test]
fn a_run_that_had_ended_resumes_with_the_best_of_its_checkpoint() {
    let server = Server::start(&[Answer::Status(200)]);
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(directory.path().join("c")).expect("made");
    let templates = NotifyTemplates { training_end: Some("{best}".into()), ..NotifyTemplates::default() };
    let mut rig = rig(NotifyOptions { templates, ..options(&[NotifyOn::TrainingEnd]) }, &server);
    rig.run(RunInfo { checkpoints: directory.path().into(), ..RunInfo::default() });
    let best = |score, path: &str| BestCheckpoint {
        hook: "c".into(),
        monitor: "val/loss".into(),
        score,
        path: path.into(),
    };
    rig.board().put(BEST, best(0.125, "gone"));
    rig.on_checkpoint_loaded();
    rig.on_train_end();
    rig.board().put(BEST, best(0.25, "c"));
    rig.on_checkpoint_loaded();
    rig.on_train_end();
    assert_eq!(texts(&mut rig, &server), ["n/a", "0.25"]);
}

#[test]
fn requirements_of_messages_about_checkpoints_are_declared() {
    let access = |options: NotifyOptions| {
        let HookSpec { requires, monitors, .. } = notify(options).spec();
        (requires.into_iter().map(|required| required.what).collect::<Vec<_>>(), monitors)
    };
    let best = || options(&[NotifyOn::BestModel]);
    let (chosen, saved) = (checkpoint::PROVIDED.to_owned(), SAVES_CHECKPOINTS.to_owned());
    let monitor = || Some("val/loss".to_owned());
    assert_eq!(access(best()), (vec![chosen], None));
    assert_eq!(access(NotifyOptions { monitor: monitor(), ..best() }), (vec![saved.clone()], monitor()));
    assert_eq!(access(options(&[NotifyOn::Checkpoint])), (vec![saved], None));
    assert_eq!(access(options(&[NotifyOn::TrainingEnd])), (vec![], None));
    let unclear = NotifyOptions { monitor: Some("score".into()), ..best() };
    assert!(
        Notify::from_options(unclear).expect_err("no direction").to_string().contains("`mode` must be set")
    );
}

#[test]
fn suppressed_messages_are_counted_in_the_next_and_ends_are_never_suppressed() {
    let server = Server::start(&[Answer::Status(200)]);
    let on = [NotifyOn::Checkpoint, NotifyOn::TrainingEnd];
    let mut first = rig(NotifyOptions { max_per_hour: 2, ..options(&on) }, &server);
    first.on_checkpoint_saved();
    first.on_checkpoint_saved();
    first.elapsed(seconds(1)).on_checkpoint_saved();
    first.elapsed(seconds(100)).on_checkpoint_saved();
    // Messages of the last hour still count after a resume.
    let mut resumed = first.resumed(notify(options(&on)).with_address(Secret::new(server.url("/T0K3N"))));
    let received = texts(&mut first, &server);
    assert_eq!(received.len(), 2);
    assert!(received[1].ends_with("\n(1 message before this not sent: rate limit)"), "{received:?}");
    resumed.setup();
    resumed.elapsed(seconds(200)).on_train_end();
    assert!(texts(&mut resumed, &server)[2].ends_with("(1 message before this not sent: rate limit)"));
}

#[test]
fn the_last_suppressed_messages_are_reported_at_the_end() {
    let server = Server::start(&[Answer::Status(200)]);
    let mut rig = rig(options(&[NotifyOn::Checkpoint]), &server);
    for _ in 0..3 {
        rig.on_checkpoint_saved();
    }
    rig.teardown();
    let said = rig.said();
    assert_eq!(said.len(), 1);
    assert_eq!(said[0].1, "2 messages not sent because of `min_interval` or `max_per_hour`");
}

#[test]
fn nothing_is_sent_in_a_dry_run_or_a_rehearsal() {
    let server = Server::start(&[Answer::Status(200)]);
    for (fast_dev_run, rehearsal) in [(true, false), (false, true)] {
        let mut rig = rig(options(&NotifyOn::ALL), &server);
        rig.run(RunInfo { fast_dev_run, rehearsal, ..RunInfo::default() });
        rig.play(&FitScript::new(1, 2).script());
        rig.on_exception();
        assert_eq!((texts(&mut rig, &server).len(), rig.delivery_stats()), (0, None));
    }
}

#[test]
fn a_variable_that_is_missing_is_a_failure_at_setup_and_a_rehearsal_does_not_need_it() {
    let mut rig = Rig::new(notify(options(&NotifyOn::ALL)));
    let failure = rig.setup().failure.clone().expect("it fails");
    assert!(
        failure.contains("in setup") && failure.contains("`TENTERHOOK_NEVER_SET` is not set"),
        "{failure}"
    );
    assert_eq!(rig.failures()[0].effect, FailureEffect::Warned);
    rig.on_train_end();
    rig.finish();
    assert_eq!((rig.failures().len(), rig.delivery_stats()), (1, None), "nothing is sent, and that is known");
    let mut rehearsed = Rig::new(notify(options(&NotifyOn::ALL)));
    rehearsed.run(RunInfo { rehearsal: true, ..RunInfo::default() });
    assert_eq!(rehearsed.setup().failure, None);
    let mut given =
        Rig::new(notify(options(&NotifyOn::ALL)).with_address(Secret::new("hooks.example/T0K3N")));
    let failure = given.setup().failure.clone().expect("no address");
    assert!(failure.contains("begins with https://") && !failure.contains("T0K3N"), "{failure}");
}

#[test]
fn a_refused_message_is_retried_and_its_failure_does_not_show_the_address() {
    let server = Server::start(&[Answer::Status(503), Answer::Status(200), Answer::Status(404)]);
    let mut rig = rig(options(&[NotifyOn::Exception]), &server);
    rig.on_exception();
    rig.on_exception();
    assert_eq!(texts(&mut rig, &server).len(), 3);
    let sent = rig.delivery_stats().expect("it has a worker");
    assert_eq!((sent.delivered, sent.failed), (1, 1));
    let [failed] = rig.failures() else { panic!("{:?}", rig.failures()) };
    assert!(
        failed.failure.to_string().ends_with(
            "the message about exception did not get to the given address: the server answered 404"
        )
    );
    let shown = format!("{failed:?} {:?} {:?}", rig.hook(), rig.deliveries());
    assert!(!shown.contains("T0K3N") && shown.contains("***"), "{shown}");
}

#[test]
fn the_end_waits_no_longer_than_flush_timeout() {
    let server = Server::start(&[Answer::Hang]);
    let options = NotifyOptions {
        timeout: TimeSpan::from_secs(3600),
        flush_timeout: TimeSpan::from_secs(1),
        ..options(&[NotifyOn::Exception])
    };
    let mut rig = rig(options, &server);
    let start = std::time::Instant::now();
    rig.on_exception();
    rig.on_exception();
    rig.finish();
    assert!(start.elapsed() < seconds(60));
    let sent = rig.delivery_stats().expect("it has a worker");
    assert_eq!((sent.sent, sent.delivered, sent.failed + sent.lost), (2, 0, 2));
    assert_eq!(rig.failures().len(), 1, "{:?}", rig.failures());
}

#[test]
fn a_second_call_has_its_own_worker() {
    let server = Server::start(&[Answer::Status(200)]);
    let mut rig = rig(options(&NotifyOn::ALL), &server);
    rig.on_train_end();
    assert_eq!(texts(&mut rig, &server).len(), 1);
    rig.stage(Stage::Test).setup();
    assert_eq!(rig.delivery_stats(), None, "nothing in this call so far");
    rig.on_exception();
    assert_eq!(texts(&mut rig, &server).len(), 2);
    assert_eq!(rig.delivery_stats().map(|sent| sent.sent), Some(1));
}

#[test]
fn invalid_options_are_refused_by_name() {
    let bad = |change: fn(&mut NotifyOptions)| {
        let mut options = NotifyOptions::new("SLACK_WEBHOOK_URL");
        change(&mut options);
        Notify::from_options(options).expect_err("refused").to_string()
    };
    assert!(
        bad(|o| o.url_env = "https://hooks.example/T0K3N".into()).starts_with("`url_env` must be the name")
    );
    assert!(bad(|o| o.notify_on.clear()).starts_with("`notify_on` is empty"));
    assert!(bad(|o| o.timeout = TimeSpan::default()).starts_with("`timeout` is 0 s"));
    assert!(bad(|o| o.max_per_hour = 0).starts_with("`max_per_hour` must be 1"));
    assert!(bad(|o| o.queue_size = 0).starts_with("`queue_size` must be 1"));
    assert!(bad(|o| o.flush_timeout = TimeSpan::default()).starts_with("`flush_timeout` is"));
    assert!(
        bad(|o| o.templates.checkpoint = Some("{error}".into()))
            .starts_with("`templates` has for checkpoint")
    );
}
