//! What a run was and how it went, in words.

use serde_json::Value;
use tenterhook::data::Fingerprint;
use tenterhook::run::reading::EventLog;
use tenterhook::run::{
    JournalEntry, JournalEvent, Run, RunRecord, RunStatus, command_line, holder, named_versions,
};

use super::super::{costs, sinks};
use super::saved::{Saved, State};
use super::{counts, once};
use crate::failures::lines;
use crate::progress::{duration, metric};
use crate::table::{Side, counted, moment, plain, table};

/// So many failures and decisions are shown.
const FIRST: usize = 5;

pub(super) fn page(run: &Run, event_log: &EventLog, saved: &[Saved]) -> String {
    let mut sections = vec![head(run)];
    sections.push(section("hooks", hooks(&run.record)));
    let costs = &run.record.hook_costs;
    sections.push(section(&costs::title(costs), costs::lines(costs, false)));
    sections.push(section(sinks::TITLE, sinks::lines(&run.record.sinks)));
    sections.push(section("metrics at the end", metrics(&run.record)));
    sections.push(section("checkpoints", checkpoints(saved)));
    let once = once(event_log);
    sections.push(section("failures", failures(&once)));
    sections.push(section("decisions", decisions(&once)));
    let counts = counts(event_log).into_iter().map(|(name, count)| format!("{name} {count}"));
    sections.push(section("events", vec![counts.collect::<Vec<_>>().join(", ")]));
    sections.concat().trim_end().to_owned()
}

/// A title and its lines, or nothing where there is nothing to say.
fn section(title: &str, mut lines: Vec<String>) -> String {
    lines.retain(|line| !line.is_empty());
    if lines.is_empty() {
        return String::new();
    }
    format!("\n{title}\n  {}\n", lines.join("\n  "))
}

/// How it ended, and why.
pub(in crate::commands) fn outcome(record: &RunRecord) -> String {
    match &record.status {
        RunStatus::Running if record.trained.is_some() => "running: the test after its training".to_owned(),
        RunStatus::Killed if record.trained.is_some() => {
            "killed in the test after its training; no process holds it".to_owned()
        }
        RunStatus::Killed => "killed: it wrote no end, and no process holds it".to_owned(),
        RunStatus::Stopped { by, reason } => format!("stopped by `{}`: {}", plain(by), plain(reason)),
        RunStatus::Interrupted { signal } => format!("interrupted by {}", plain(signal)),
        RunStatus::Failed { error } => format!("failed: {}", plain(error)),
        other => other.as_str().to_owned(),
    }
}

fn head(run: &Run) -> String {
    let record = &run.record;
    let RunRecord { git, machine, .. } = record;
    let known = |text: &str| if text.is_empty() { "unknown".to_owned() } else { plain(text) };
    let dirty = match git.dirty {
        Some(true) => ", with changes that were not committed",
        Some(false) => ", clean",
        None => "",
    };
    let lasted = record.seconds.map(|seconds| format!(", for {}", duration(seconds))).unwrap_or_default();
    // Training alone has ended where the test after it has not.
    let ended = record.ended.as_deref().filter(|_| record.trained.is_none());
    let ended = ended.map(|ended| format!(" to {}", moment(ended))).unwrap_or_default();
    let seen = [(record.samples, "sample"), (record.tokens, "token")];
    let seen = seen.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| counted(count, what));
    let done = [counted(record.epochs, "epoch"), counted(record.steps, "step")].into_iter().chain(seen);
    let mut rows = vec![
        ("outcome", outcome(record)),
        ("id", plain(&record.id)),
        ("directory", plain(&run.directory.display().to_string())),
        ("when", format!("{}{ended} UTC{lasted}", moment(&record.created))),
        ("done", done.collect::<Vec<_>>().join(", ")),
        ("task", known(record.task.as_deref().unwrap_or_default())),
        ("device", known(&record.device)),
        ("seed", record.seed.to_string()),
        ("parameters", record.parameters.to_string()),
        ("commit", format!("{}{dirty}", known(&git.commit))),
        ("config hash", known(&record.config_hash)),
        ("versions", plain(&named_versions(&record.versions).join(", "))),
        (
            "machine",
            plain(&format!("{}: {} {}, {} cpus", machine.hostname, machine.os, machine.arch, machine.cpus)),
        ),
        ("processor", known(&record.identity.processor)),
        ("program", known(record.identity.program.as_ref().map_or("", Fingerprint::as_str))),
        ("command", plain(&command_line(&record.command))),
    ];
    let data = record.identity.data.iter().enumerate();
    rows.extend(data.map(|(index, (loader, fingerprint))| {
        (if index == 0 { "data" } else { "" }, plain(&format!("{loader}: {fingerprint}")))
    }));
    for (index, row) in parts(record).into_iter().enumerate() {
        rows.insert(4 + index, row);
    }
    if let Some(holder) = holder(&run.directory).filter(|_| record.status == RunStatus::Running) {
        rows.insert(1, ("held by", plain(&holder.to_string())));
    }
    let rows: Vec<_> = rows.into_iter().map(|(name, text)| vec![name.to_owned(), text]).collect();
    table(&rows, &[]).join("\n") + "\n"
}

/// How often it went on, and from where.
fn parts(record: &RunRecord) -> Vec<(&'static str, String)> {
    let starts = record.parts.iter().enumerate().skip(1).map(|(index, part)| {
        let from = match &part.checkpoint {
            Some(path) => format!("from {}, step {}", path.display(), part.step),
            None => "from the start: there was no whole checkpoint".to_owned(),
        };
        let name = if index == 1 { "resumed" } else { "" };
        (name, plain(&format!("{} UTC {from}", moment(&part.started))))
    });
    // A run of its own may have begun from another's checkpoint.
    let first = record.parts.first().map_or(record.resumed_from.as_ref(), |part| part.checkpoint.as_ref());
    let first = first.map(|from| ("resumed from", plain(&from.display().to_string())));
    first.into_iter().chain(starts).collect()
}

fn hooks(record: &RunRecord) -> Vec<String> {
    let rows = record.hooks.iter().map(|hook| {
        let failures =
            if hook.failures == 0 { String::new() } else { counted(hook.failures.into(), "failure") };
        vec![
            plain(&hook.name),
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
    let rows = record.metrics.iter().map(|(name, value)| vec![plain(name), metric(name, *value)]);
    table(&rows.collect::<Vec<_>>(), &[Side::Left, Side::Right])
}

fn checkpoints(all: &[Saved]) -> Vec<String> {
    let rows = all.iter().filter(|saved| saved.state != State::Removed).map(|saved| {
        let note = match &saved.state {
            State::Link(to) => format!("a link to {}", plain(&to.display().to_string())),
            _ if !saved.is_there() => "not there any more".to_owned(),
            _ if saved.weights_only => "weights only".to_owned(),
            _ => String::new(),
        };
        let step = saved.step.map(|step| format!("step {step}")).unwrap_or_default();
        vec![plain(&saved.path.display().to_string()), step, note]
    });
    let mut lines = table(&rows.collect::<Vec<_>>(), &[]);
    let removed = all.iter().filter(|saved| saved.state == State::Removed).count();
    if removed > 0 {
        lines.push(format!("{removed} more made way for better or newer ones"));
    }
    lines
}

/// The first few kinds of failures, and how many more there are.
fn failures(event_log: &EventLog) -> Vec<String> {
    let mut failures = event_log.failures();
    let more = failures.kinds.split_off(failures.kinds.len().min(FIRST));
    failures.left_out += more.iter().map(|kind| kind.count).sum::<u64>();
    lines(&failures)
}

/// What was decided, a stop first. Weights that are swapped for every validation are only counted.
fn decisions(event_log: &EventLog) -> Vec<String> {
    let words = |entry: &JournalEntry| match &entry.what {
        JournalEvent::Decision { by, at, decided } if !only_swaps(decided) => {
            let stops = decided.iter().any(|part| part["flow"] == "stop");
            let decided: Vec<_> = decided.iter().map(decision).collect();
            Some((!stops, format!("`{by}` in {at}: {}", decided.join(", "))))
        }
        _ => None,
    };
    let mut all: Vec<_> =
        event_log.entries.iter().filter_map(|entry| Some((entry.step, words(entry)?))).collect();
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

/// One part of a decision: what, and what else is known about it.
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

/// The first few of these, each with its step, and how many more there are.
fn first(all: Vec<(u64, String)>) -> Vec<String> {
    let more = all.len().saturating_sub(FIRST);
    let shown = all.into_iter().take(FIRST);
    let mut lines: Vec<_> = shown.map(|(step, text)| format!("step {step}: {}", plain(&text))).collect();
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
    fn decisions_are_told_in_words() {
        let stop = json!({ "flow": "stop", "reason": "enough" });
        let scale = json!({ "request": "scale_lr", "optimizer": null, "factor": 0.5 });
        assert_eq!(
            (decision(&stop).as_str(), decision(&scale).as_str()),
            ("stop: enough", "scale_lr factor 0.5")
        );
    }

    #[test]
    fn a_stop_comes_first_and_swapped_weights_are_counted() {
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
