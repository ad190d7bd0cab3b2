use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tenterhook_core::{Outcome, RunInfo};
use tenterhook_testkit::{FitScript, Rig};

use super::*;

fn exec(on: &[&str], command: &str) -> Exec {
    Exec::from_options(ExecOptions::of(on.iter().copied(), command)).expect("the options fit")
}

fn rig(hook: Exec, directory: &Path) -> Rig<Exec> {
    let mut rig = Rig::new(hook);
    rig.run(RunInfo { id: "r1".into(), directory: Some(directory.to_owned()), ..RunInfo::default() });
    rig
}

/// The events that commands appended to the file.
fn written_events(directory: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(directory.join("events")).expect("it was run");
    text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
}

const APPEND_EVENT: &str = "cat >> $TENTER_RUN_DIR/events";

#[test]
fn a_command_reads_the_event_and_its_fields() {
    let dir = tempfile::tempdir().expect("a directory");
    let on = ["on_train_end", "on_checkpoint_saved", "on_hook_disabled", "on_exception", "on_train_start"];
    let mut rig = rig(exec(&on, APPEND_EVENT), dir.path());
    rig.step(4).epoch(1).metric("val/loss", 0.5).metric("bad", f64::NAN).on_train_start();
    rig.checkpoint(3, "/runs/a", "/runs").saved_epoch(0).saved_metric("val/loss", 0.75);
    rig.best_score(Some(0.75)).redelivered(true).on_checkpoint_saved();
    rig.disabled("console_log", "it failed").on_hook_disabled();
    rig.on_exception();
    rig.outcome(Outcome::Stopped { by: "me".into(), reason: "enough".into() }).on_train_end();
    rig.finish();
    let common = |event: &str, own: Value| {
        let mut all = json!({
            "event": event, "run": "r1", "directory": dir.path(), "stage": "fit", "phase": "train", "step": 4,
            "epoch": 1, "time": 0.0, "metrics": { "bad": "nan", "val/loss": 0.5 },
        });
        all.as_object_mut().expect("an object").extend(own.as_object().expect("an object").clone());
        all
    };
    let failure = json!({
        "origin": "module", "place": "training_step", "error": "a made-up failure", "panicked": false,
    });
    let saved = json!({
        "step": 3, "epoch": 0, "metrics": { "val/loss": 0.75 }, "path": "/runs/a", "root": "/runs", "best": true,
        "redelivered": true,
    });
    let expected = [
        common("on_train_start", json!({})),
        common("on_checkpoint_saved", saved),
        common("on_hook_disabled", json!({ "hook": "console_log", "reason": "it failed" })),
        common("on_exception", failure),
        common("on_train_end", json!({ "outcome": "stopped", "by": "me", "reason": "enough" })),
    ];
    assert_eq!(written_events(dir.path()), expected);
    assert_eq!(rig.delivery_stats().map(|sent| (sent.sent, sent.delivered)), Some((5, 5)));
}

#[test]
fn all_events_outside_of_batches_can_be_selected_and_no_others() {
    let dir = tempfile::tempdir().expect("a directory");
    let names: Vec<_> = EVENTS.iter().map(|event| event.handler()).collect();
    let mut rig = rig(exec(&names, APPEND_EVENT), dir.path());
    for event in Event::ALL {
        assert_eq!(rig.deliver(*event).delivered, EVENTS.contains(event), "{event}");
        let seldom = !event.is_within_train_batch() && !event.is_within_evaluation_batch();
        // The output of a command is a notice, so a command at every notice would cause an endless loop.
        let within =
            [Event::Activation, Event::Log, Event::SaveCheckpoint, Event::LoadCheckpoint, Event::Notice];
        let sane = [Event::SanityCheckStart, Event::SanityCheckEnd];
        assert_eq!(
            EVENTS.contains(event),
            seldom && !within.contains(event) && !sane.contains(event),
            "{event}"
        );
    }
    rig.finish();
    assert!(rig.failures().is_empty(), "{:?}", rig.failures());
    let mut one = self::rig(exec(&["on_test_end"], "true"), dir.path());
    assert!(!one.on_train_end().delivered, "what is not chosen is not received");
}

#[test]
fn the_environment_names_the_event_and_the_output_is_reported() {
    let dir = tempfile::tempdir().expect("a directory");
    let script = "echo $TENTER_EVENT $TENTER_STEP; echo ${TENTER_RUN_DIR:-none}";
    let mut first = rig(exec(&["on_train_epoch_end", "on_train_end"], script), dir.path());
    first.step(9).on_train_epoch_end();
    first.on_train_end();
    first.teardown();
    let here = dir.path().display();
    let said: Vec<_> = first.said().into_iter().map(|(_, text)| text).collect();
    assert_eq!(said, [format!("on_train_epoch_end 9\n{here}"), format!("on_train_end 9\n{here}")]);
    // `TENTER_RUN_DIR` is unset while the run directory does not exist.
    let mut early = rig(exec(&["setup"], script), &dir.path().join("unmade"));
    early.setup();
    early.teardown();
    assert_eq!(early.said()[0].1, "setup 0\nnone");
    let mut talkative = rig(exec(&["on_train_end"], "seq 1 3000"), dir.path());
    talkative.on_train_end();
    talkative.teardown();
    let said = talkative.said()[0].1.clone();
    assert_eq!(said.lines().count(), 21);
    assert!(
        said.starts_with("1\n2\n") && said.contains("\n20\n… (") && said.contains(" more lines and "),
        "{said}"
    );
}

#[test]
fn a_failed_command_is_reported_with_the_end_of_its_standard_error() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut rig = rig(exec(&["on_train_end"], "echo no such luck >&2; exit 7"), dir.path());
    rig.on_train_end();
    rig.finish();
    let [failed] = rig.failures() else { panic!("{:?}", rig.failures()) };
    let expected = "hook `exec` failed in finish (epoch 1, step 0): `echo no such luck >&2; exit 7`, run at on_train_end, \
                    ended with exit code 7; the end of its standard error: no such luck";
    assert_eq!(failed.failure.to_string(), expected);
}

#[test]
fn a_slow_command_is_killed_by_its_timeout_or_by_the_end_of_the_run() {
    let dir = tempfile::tempdir().expect("a directory");
    let of = |timeout, flush_timeout| {
        let [timeout, flush_timeout] = [timeout, flush_timeout].map(TimeSpan::from_secs);
        ExecOptions { timeout, flush_timeout, ..ExecOptions::of(["on_train_end"], "sleep 300") }
    };
    for (options, why) in [(of(1, 300), "longer than `timeout`"), (of(300, 1), "raise `flush_timeout`")] {
        let start = std::time::Instant::now();
        let mut rig = rig(Exec::from_options(options).expect("it fits"), dir.path());
        rig.on_train_end();
        rig.finish();
        assert!(start.elapsed() < Duration::from_mins(2));
        let [failed] = rig.failures() else { panic!("{:?}", rig.failures()) };
        assert!(failed.failure.to_string().contains(why), "{}", failed.failure);
        assert_eq!(rig.delivery_stats().map(|sent| (sent.failed, sent.lost)), Some((1, 0)));
    }
}

#[test]
fn nothing_is_run_in_a_dry_run_a_rehearsal_or_a_sanity_check() {
    let dir = tempfile::tempdir().expect("a directory");
    let on = ["on_train_start", "on_validation_end", "on_train_end"];
    for (fast_dev_run, rehearsal) in [(true, false), (false, true)] {
        let mut rig = rig(exec(&on, APPEND_EVENT), dir.path());
        let directory = Some(dir.path().to_owned());
        rig.run(RunInfo { fast_dev_run, rehearsal, directory, ..RunInfo::default() });
        rig.play(&FitScript::new(1, 1).validate(1).script());
        rig.finish();
    }
    let mut rig = rig(exec(&on, APPEND_EVENT), dir.path());
    for event in [Event::SanityCheckStart, Event::ValidationStart, Event::ValidationEnd] {
        rig.deliver(event);
    }
    rig.finish();
    assert_eq!(std::fs::read_dir(dir.path()).expect("it is there").count(), 0);
}

#[test]
fn a_program_gets_its_arguments_as_they_are() {
    let dir = tempfile::tempdir().expect("a directory");
    let command = ExecCommand::Program(["printf", "%s|", "a b", "$HOME", ""].map(str::to_owned).to_vec());
    let options = ExecOptions { command, ..ExecOptions::of(["on_train_end"], "") };
    let mut rig = rig(Exec::from_options(options).expect("it fits"), dir.path());
    rig.on_train_end();
    rig.teardown();
    assert_eq!(rig.said()[0].1, "a b|$HOME||");
}

#[test]
fn invalid_options_are_refused_by_name() {
    let refused = |on: &[&str], command: &str| {
        let options = ExecOptions::of(on.iter().copied(), command);
        Exec::from_options(options).expect_err("refused").to_string()
    };
    let often = refused(&["on_train_end", "on_step_end"], "true");
    assert!(often.starts_with("`on` has \"on_step_end\", which fires too often"), "{often}");
    assert!(often.contains("there are on_fit_start, ") && often.contains("on_checkpoint_saved"), "{often}");
    let slip = refused(&["on_training_end"], "true");
    assert!(slip.contains("did you mean \"on_train_end\"?"), "{slip}");
    assert!(refused(&[], "true").starts_with("`on` is empty"));
    assert!(refused(&["on_train_end"], " ").starts_with("`command` is empty"));
    let read = |text: &str| toml::from_str::<ExecOptions>(text).map(|options| options.command);
    assert_eq!(
        read("on = [\"on_train_end\"]\ncommand = [\"a\", \"b\"]").expect("it reads"),
        ExecCommand::Program(vec!["a".into(), "b".into()])
    );
    assert_eq!(read("on = []\ncommand = \"a b\"").expect("it reads"), ExecCommand::Shell("a b".into()));
}
