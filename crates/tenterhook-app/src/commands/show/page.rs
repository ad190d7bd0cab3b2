//! The text page of one run.

use serde_json::Value;
use tenterhook::data::Fingerprint;
use tenterhook::run::reading::EventLog;
use tenterhook::run::{
    JournalEntry, JournalEvent, Run, RunRecord, RunStatus, command_line, holder, named_versions,
};

use super::super::{costs, sinks};
use super::checkpoints::{CheckpointState, SavedCheckpoint};
use super::{counts, without_repeats};
use crate::failures::lines;
use crate::format::{Side, duration, metric, one_line, plural, table, utc_time};

/// Maximum number of failures, and of decisions.
const MAX_ENTRIES: usize = 5;

pub(super) fn page(run: &Run, event_log: &EventLog, saved: &[SavedCheckpoint]) -> String {
    let mut sections = vec![head(run)];
    sections.push(section("hooks", hooks(&run.record)));
    let costs = &run.record.hook_costs;
    sections.push(section(&costs::title(costs), costs::lines(costs, false)));
    sections.push(section(sinks::TITLE, sinks::lines(&run.record.sinks)));
    sections.push(section("final metrics", metrics(&run.record)));
    sections.push(section("checkpoints", checkpoints(saved)));
    let journal = without_repeats(event_log);
    sections.push(section("failures", failures(&journal)));
    sections.push(section("decisions", decisions(&journal)));
    let counts = counts(event_log).into_iter().map(|(name, count)| format!("{name} {count}"));
    sections.push(section("events", vec![counts.collect::<Vec<_>>().join(", ")]));
    sections.concat().trim_end().to_owned()
}

/// A title and its lines, or nothing if there are no lines.
fn section(title: &str, mut lines: Vec<String>) -> String {
    lines.retain(|line| !line.is_empty());
    if lines.is_empty() {
        return String::new();
    }
    format!("\n{title}\n  {}\n", lines.join("\n  "))
}

/// How a run ended, and why.
pub(in crate::commands) fn outcome(record: &RunRecord) -> String {
    match &record.status {
        RunStatus::Running if record.trained.is_some() => "running: test after training".to_owned(),
        RunStatus::Killed if record.trained.is_some() => {
            "killed in the test after training: its process is gone".to_owned()
        }
        RunStatus::Killed => "killed: its process is gone and recorded no outcome".to_owned(),
        RunStatus::Stopped { by, reason } => format!("stopped by `{}`: {}", one_line(by), one_line(reason)),
        RunStatus::Interrupted { signal } => format!("interrupted by {}", one_line(signal)),
        RunStatus::Failed { error } => format!("failed: {}", one_line(error)),
        other => other.as_str().to_owned(),
    }
}

fn head(run: &Run) -> String {
    let record = &run.record;
    let RunRecord { git, machine, .. } = record;
    let known = |text: &str| if text.is_empty() { "unknown".to_owned() } else { one_line(text) };
    let dirty = match git.dirty {
        Some(true) => ", with uncommitted changes",
        Some(false) => ", clean",
        None => "",
    };
    let seconds = record.seconds.map(|seconds| format!(", {}", duration(seconds))).unwrap_or_default();
    // If `trained` is set, training has ended, but the test after it has not.
    let ended = record.ended.as_deref().filter(|_| record.trained.is_none());
    let ended = ended.map(|ended| format!(" to {}", utc_time(ended))).unwrap_or_default();
    let seen = [(record.samples, "sample"), (record.tokens, "token")];
    let seen = seen.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| plural(count, what));
    let done = [plural(record.epochs, "epoch"), plural(record.steps, "step")].into_iter().chain(seen);
    let mut rows = vec![
        ("outcome", outcome(record)),
        ("id", one_line(&record.id)),
        ("directory", one_line(&run.directory.display().to_string())),
        ("when", format!("{}{ended} UTC{seconds}", utc_time(&record.created))),
        ("done", done.collect::<Vec<_>>().join(", ")),
        ("task", known(record.task.as_deref().unwrap_or_default())),
        ("device", known(&record.device)),
        ("seed", record.seed.to_string()),
        ("parameters", record.parameters.to_string()),
        ("commit", format!("{}{dirty}", known(&git.commit))),
        ("config hash", known(&record.config_hash)),
        ("versions", one_line(&named_versions(&record.versions).join(", "))),
        (
            "machine",
            one_line(&format!(
                "{}: {} {}, {} cpus",
                machine.hostname, machine.os, machine.arch, machine.cpus
            )),
        ),
        ("processor", known(&record.identity.processor)),
        ("program", known(record.identity.program.as_ref().map_or("", Fingerprint::as_str))),
        ("command", one_line(&command_line(&record.command))),
    ];
    let data = record.identity.data.iter().enumerate();
    rows.extend(data.map(|(index, (loader, fingerprint))| {
        (if index == 0 { "data" } else { "" }, one_line(&format!("{loader}: {fingerprint}")))
    }));
    for (index, row) in parts(record).into_iter().enumerate() {
        rows.insert(4 + index, row);
    }
    if let Some(holder) = holder(&run.directory).filter(|_| record.status == RunStatus::Running) {
        rows.insert(1, ("held by", one_line(&holder.to_string())));
    }
    let rows: Vec<_> = rows.into_iter().map(|(name, text)| vec![name.to_owned(), text]).collect();
    table(&rows, &[]).join("\n") + "\n"
}

/// When and from which checkpoint a run was resumed.
fn parts(record: &RunRecord) -> Vec<(&'static str, String)> {
    let starts = record.parts.iter().enumerate().skip(1).map(|(index, part)| {
        let from = match &part.checkpoint {
            Some(path) => format!("from {}, step {}", path.display(), part.step),
            None => "from the start, without a checkpoint".to_owned(),
        };
        let name = if index == 1 { "resumed" } else { "" };
        (name, one_line(&format!("{} UTC {from}", utc_time(&part.started))))
    });
    // A run may have started from a checkpoint of another run.
    let first = record.parts.first().map_or(record.resumed_from.as_ref(), |part| part.checkpoint.as_ref());
    let first = first.map(|from| ("resumed from", one_line(&from.display().to_string())));
    first.into_iter().chain(starts).collect()
}

fn hooks(record: &RunRecord) -> Vec<String> {
    let rows = record.hooks.iter().map(|hook| {
        let failures =
            if hook.failures == 0 { String::new() } else { plural(hook.failures.into(), "failure") };
        vec![
            one_line(&hook.name),
            hook.kind.to_string(),
            if hook.enabled { "enabled" } else { "disabled" }.to_owned(),
            format!("on_error = \"{}\"", hook.on_error),
            failures,
            hook.budget.map(|budget| costs::budget(&budget)).unwrap_or_default(),
        ]
    });
    table(&rows.collect::<Vec<_>>(), &[])
}

fn metrics(record: &RunRecord) -> Vec<String> {
    if record.metrics.is_empty() {
        return vec!["no metrics were logged".to_owned()];
    }
    let rows = record.metrics.iter().map(|(name, value)| vec![one_line(name), metric(name, *value)]);
    table(&rows.collect::<Vec<_>>(), &[Side::Left, Side::Right])
}

fn checkpoints(all: &[SavedCheckpoint]) -> Vec<String> {
    let rows = all.iter().filter(|saved| saved.state != CheckpointState::Removed).map(|saved| {
        let note = match &saved.state {
            CheckpointState::Link(to) => format!("link to {}", one_line(&to.display().to_string())),
            CheckpointState::Missing => "missing".to_owned(),
            _ if saved.weights_only => "weights only".to_owned(),
            _ => String::new(),
        };
        let step = saved.step.map(|step| format!("step {step}")).unwrap_or_default();
        vec![one_line(&saved.path.display().to_string()), step, note]
    });
    let mut lines = table(&rows.collect::<Vec<_>>(), &[]);
    let removed = all.iter().filter(|saved| saved.state == CheckpointState::Removed).count();
    if removed > 0 {
        lines.push(format!("{removed} removed in favour of better or newer ones"));
    }
    lines
}

/// The first kinds of failures, and how many more failures there are.
fn failures(event_log: &EventLog) -> Vec<String> {
    let mut failures = event_log.failures();
    let more = failures.kinds.split_off(failures.kinds.len().min(MAX_ENTRIES));
    failures.left_out += more.iter().map(|kind| kind.count).sum::<u64>();
    lines(&failures)
}

/// Decisions, stops first. Swaps of weights, which may occur at every validation, are only counted.
fn decisions(event_log: &EventLog) -> Vec<String> {
    let text_of = |entry: &JournalEntry| match &entry.what {
        JournalEvent::Decision { by, at, decided } if !only_swaps(decided) => {
            let stops = decided.iter().any(|part| part["flow"] == "stop");
            let decided: Vec<_> = decided.iter().map(decision).collect();
            Some((!stops, format!("`{by}` in {at}: {}", decided.join(", "))))
        }
        _ => None,
    };
    let mut all: Vec<_> =
        event_log.entries.iter().filter_map(|entry| Some((entry.step, text_of(entry)?))).collect();
    all.sort_by_key(|(_, (later, _))| *later);
    let mut lines = first(all.into_iter().map(|(step, (_, text))| (step, text)).collect());
    let swap = |entry: &&JournalEntry| matches!(&entry.what, JournalEvent::Decision { decided, .. } if only_swaps(decided));
    let swaps = event_log.entries.iter().filter(swap).count();
    if swaps > 0 {
        lines.push(format!("weights were swapped {swaps} times"));
    }
    lines
}

fn only_swaps(decided: &[Value]) -> bool {
    let swaps = |part: &Value| part["request"] == "swap_weights" || part["request"] == "swap_back";
    !decided.is_empty() && decided.iter().all(swaps)
}

/// One part of a decision as text.
fn decision(decided: &Value) -> String {
    let Some(parts) = decided.as_object() else { return decided.to_string() };
    let is_word = |key: &str| key == "flow" || key == "request";
    let word = parts.iter().find(|(key, _)| is_word(key)).and_then(|(_, word)| word.as_str());
    let rest = parts
        .iter()
        .filter(|(key, value)| !is_word(key) && !value.is_null() && **value != Value::Bool(false));
    let rest = rest.map(|(key, value)| match (key.as_str(), value.as_str()) {
        ("reason", Some(reason)) => format!(": {reason}"),
        (key, Some(text)) => format!(" {key} {text}"),
        (key, None) => format!(" {key} {value}"),
    });
    format!("{}{}", word.unwrap_or("unknown"), rest.collect::<String>())
}

/// The first entries, each with its step, and how many more there are.
fn first(all: Vec<(u64, String)>) -> Vec<String> {
    let more = all.len().saturating_sub(MAX_ENTRIES);
    let shown = all.into_iter().take(MAX_ENTRIES);
    let mut lines: Vec<_> = shown.map(|(step, text)| format!("step {step}: {}", one_line(&text))).collect();
    if more > 0 {
        lines.push(format!("and {more} more in events.jsonl"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn decisions_are_shown_as_text() {
        let stop = json!({ "flow": "stop", "reason": "enough" });
        let scale = json!({ "request": "scale_lr", "optimizer": null, "factor": 0.5 });
        assert_eq!(
            (decision(&stop).as_str(), decision(&scale).as_str()),
            ("stop: enough", "scale_lr factor 0.5")
        );
    }

    #[test]
    fn stops_come_first_and_weight_swaps_are_counted() {
        let entry = |step: u64, decided: Value| JournalEntry {
            step,
            epoch: 0,
            time: 0.0,
            what: JournalEvent::Decision { by: "h".into(), at: "e".into(), decided: vec![decided] },
        };
        let swaps = (0..6).flat_map(|step| {
            [
                entry(step, json!({ "request": "swap_weights" })),
                entry(step, json!({ "request": "swap_back" })),
            ]
        });
        let slower = (6..12).map(|step| entry(step, json!({ "request": "scale_lr", "factor": 0.5 })));
        let stop = entry(12, json!({ "flow": "stop", "reason": "enough" }));
        let entries = swaps.chain(slower).chain([stop]).collect();
        let lines = decisions(&EventLog { entries, unreadable: 0 });
        assert_eq!(lines[0], "step 12: `h` in e: stop: enough");
        assert_eq!(lines[1], "step 6: `h` in e: scale_lr factor 0.5");
        assert_eq!(lines[5..], ["and 2 more in events.jsonl", "weights were swapped 12 times"]);
    }
}
