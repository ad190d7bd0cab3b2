//! The pseudocode in the doc comment of `Event` is the loop as it runs.

use tenterhook::hooks::{Checkpoint, CheckpointOptions};
use tenterhook::module::{Interval, SchedulerPlan};
use tenterhook::toy::Toy;
use tenterhook::{Event, Settings};

use crate::call_log::{CallLog, Recorder};
use crate::lab::{Lab, LabData, LabStrategy, data, trainer};

const SOURCE: &str = include_str!("../../../tenterhook-core/src/event.rs");
const RESUMING: &str = "if resuming:";
const SANITY_CHECK: &str = "if num_sanity_val_steps > 0, unless resuming:";
const VALIDATION: &str = "if a validation is due:";
const VALIDATION_AGAIN: &str = "validation, as below";

/// The lines of the pseudocode.
fn doc() -> Vec<&'static str> {
    let text = SOURCE.lines().map(|line| line.trim_start().trim_start_matches("///"));
    let from_fit = text.skip_while(|line| line.trim() != "fit:");
    from_fit.take_while(|line| line.trim() != "```").collect()
}

fn indentation(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// The lines after this one with a deeper indentation.
fn block<'a>(lines: &[&'a str], header: usize) -> Vec<&'a str> {
    let depth = indentation(lines[header]);
    lines[header + 1..].iter().take_while(|line| indentation(line) > depth).copied().collect()
}

/// The calls of the pseudocode when every loop runs once, without the blocks of these headers.
fn documented(leave_out: &[&str]) -> Vec<String> {
    let lines = doc();
    for header in leave_out.iter().chain(&[VALIDATION, VALIDATION_AGAIN]) {
        assert!(lines.iter().any(|line| line.trim() == *header), "`{header}` is not in the text");
    }
    let validation = lines.iter().position(|line| line.trim() == VALIDATION).unwrap();
    let validation = block(&lines, validation);
    let mut calls = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let line = lines[at].trim();
        if leave_out.contains(&line) {
            at += block(&lines, at).len();
        } else if line == VALIDATION_AGAIN {
            calls.extend(validation.iter().filter_map(|line| call_of(line)));
        } else {
            calls.extend(call_of(line));
        }
        at += 1;
    }
    calls
}

/// The call on a line: `▶ event`, or `module.action`, before the explanation.
fn call_of(line: &str) -> Option<String> {
    let mut words = line.split_whitespace();
    let first = words.next()?;
    if first == "▶" {
        let event = words.next()?;
        assert!(Event::of_handler(event).is_some(), "there is no event `{event}`");
        return Some(format!("▶ {event}"));
    }
    let (whose, _) = first.split_once('.')?;
    ["module", "strategy", "hooks"].contains(&whose).then(|| first.to_owned())
}

/// The actual calls of a run, in the words of the pseudocode.
fn traced(call_log: &CallLog) -> Vec<String> {
    let rows = call_log.rows().into_iter();
    rows.filter_map(|(source, place)| {
        let event = Event::of_handler(place);
        match (source.as_str(), event) {
            ("hook:all", Some(_)) => Some(format!("▶ {place}")),
            ("hook:all", None) => Some(format!("hooks.{place}")),
            ("module", None) | ("strategy", Some(Event::Setup | Event::Teardown)) => {
                Some(format!("{source}.{place}"))
            }
            _ => None,
        }
    })
    .collect()
}

/// A run in which every loop runs once.
fn once(epochs: i64, checkpoints: &std::path::Path, resume: Option<&str>) -> CallLog {
    let call_log = CallLog::default();
    let settings = Settings {
        max_epochs: Some(epochs),
        gradient_clip_val: Some(1.0),
        background_saves: false,
        log_every_n_steps: 1,
        ..Settings::default()
    };
    let mut trainer =
        trainer(settings).with_checkpoints_in(checkpoints).with_strategy(LabStrategy::new(&call_log));
    if let Some(checkpoint) = resume {
        trainer = trainer.restoring(checkpoints.join(checkpoint));
    }
    trainer.add_hook(Recorder::new("all", &call_log)).unwrap();
    let options = CheckpointOptions { save_top_k: Some(-1), ..CheckpointOptions::default() };
    trainer.add_hook(Checkpoint::new(options).unwrap()).unwrap();
    let toy = Toy::default()
        .with_scheduler(SchedulerPlan::every(Interval::Step))
        .with_scheduler(SchedulerPlan::on_plateau_of("val/loss"));
    trainer.fit(&mut Lab::new(toy, &call_log), &mut LabData::new(data(1, 1), &call_log)).unwrap();
    call_log
}

#[test]
fn the_pseudocode_of_the_events_is_a_real_trace() {
    let checkpoints = tempfile::tempdir().unwrap();
    assert_eq!(documented(&[RESUMING]), traced(&once(1, checkpoints.path(), None)));
}

#[test]
fn the_pseudocode_of_a_resumed_run_is_a_real_trace() {
    let checkpoints = tempfile::tempdir().unwrap();
    once(1, checkpoints.path(), None);
    let resumed = once(2, checkpoints.path(), Some("epoch=0-step=1"));
    assert_eq!(documented(&[SANITY_CHECK]), traced(&resumed));
}

#[test]
fn every_event_of_fit_is_in_the_pseudocode() {
    let documented = documented(&[]);
    let of_fit = Event::ALL.iter().filter(|event| {
        let name = event.handler();
        !(name.starts_with("on_test")
            || name.starts_with("on_predict")
            || [Event::Exception, Event::HookDisabled, Event::Notice].contains(event))
    });
    let missing: Vec<_> = of_fit.filter(|event| !documented.contains(&format!("▶ {event}"))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
