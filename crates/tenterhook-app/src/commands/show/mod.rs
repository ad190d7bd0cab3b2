//! `tenter show`: shows one run, with its settings, outcome and curves.

mod charts;
mod checkpoints;
mod page;

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use serde_json::{Map, Value, json};
use tenterhook::Stage;
use tenterhook::run::reading::{Curves, EventLog};
use tenterhook::run::{JournalEntry, JournalEvent, Run};

use super::runs::{find_run, record};
use super::{CommandResult, print_data, print_stderr, print_stdout};
use crate::arguments::Show;
use crate::curves::{COLOURS, ChartStyle};
use crate::format::json_number;
use crate::terminal::{out_is_terminal, print_styled};
use checkpoints::SavedCheckpoint;
pub(super) use page::outcome;

pub(crate) fn run(arguments: &Show) -> CommandResult {
    let run = find_run(&arguments.dir.path, &arguments.run)?;
    let curves = run.curves()?;
    let event_log = run.event_log()?;
    let checkpoints = SavedCheckpoint::all(&run, &event_log)?;
    let charts = charts::select(&curves, &arguments.metrics)
        .map_err(|error| error.at(format_args!("--metric: in {}", run.directory.display())))?;
    for (file, lines) in [("metrics.jsonl", curves.unreadable), ("events.jsonl", event_log.unreadable)] {
        if lines > 0 {
            print_stderr(format_args!(
                "skipped: {lines} unreadable lines of {}",
                run.directory.join(file).display()
            ));
        }
    }
    if arguments.json {
        let names = (!arguments.metrics.is_empty()).then(|| charts.names());
        print_data(&to_json(&run, &curves, &event_log, &checkpoints, names.as_deref()));
    } else {
        let style = chart_style(arguments);
        let page = page::page(&run, &event_log, &checkpoints);
        print_stdout(&if style.ascii { page.replace('µ', "u") } else { page });
        print_styled(&charts::draw(&curves, &charts, style), &COLOURS);
    }
    Ok(ExitCode::SUCCESS)
}

fn chart_style(arguments: &Show) -> ChartStyle {
    let terminal = std::env::var("TERM").unwrap_or_default();
    let dumb = terminal == "dumb";
    let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    ChartStyle {
        width: arguments.width.into(),
        height: arguments.height.into(),
        ascii: arguments.ascii || dumb,
        colour: out_is_terminal() && !dumb && !no_colour,
    }
}

/// The number of entries in `events.jsonl` by event.
fn counts(event_log: &EventLog) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for entry in &event_log.entries {
        let written = serde_json::to_value(&entry.what).unwrap_or_default();
        let name = written["event"].as_str().unwrap_or("unknown").to_owned();
        *counts.entry(name).or_default() += 1;
    }
    counts
}

/// The journal without duplicates: a resumed run repeats the steps after its checkpoint, so it writes them twice.
fn without_repeats(event_log: &EventLog) -> EventLog {
    let (mut earlier_parts, mut this_part) = (BTreeSet::new(), BTreeSet::new());
    let is_new = |entry: &&JournalEntry| {
        if matches!(entry.what, JournalEvent::Start { stage: Stage::Fit, .. }) {
            earlier_parts.append(&mut this_part);
        }
        let what = serde_json::to_string(&entry.what).unwrap_or_default();
        let key = (entry.step, entry.epoch, what);
        let is_new = !earlier_parts.contains(&key);
        this_part.insert(key);
        is_new
    };
    let entries = event_log.entries.iter().filter(is_new).cloned().collect();
    EventLog { entries, unreadable: event_log.unreadable }
}

fn to_json(
    run: &Run,
    curves: &Curves,
    event_log: &EventLog,
    checkpoints: &[SavedCheckpoint],
    names: Option<&[&str]>,
) -> String {
    let journal = without_repeats(event_log);
    let entries = |what: fn(&JournalEvent) -> bool| -> Vec<_> {
        journal.entries.iter().filter(|entry| what(&entry.what)).collect()
    };
    let curve = |points: &[tenterhook::run::reading::Point]| {
        json!({
            "step": points.iter().map(|point| point.step).collect::<Vec<_>>(),
            "epoch": points.iter().map(|point| point.epoch).collect::<Vec<_>>(),
            "time": points.iter().map(|point| point.time).collect::<Vec<_>>(),
            "value": points.iter().map(|point| json_number(point.value)).collect::<Vec<_>>(),
        })
    };
    let selected =
        curves.by_name.iter().filter(|(name, _)| names.is_none_or(|names| names.contains(&name.as_str())));
    let curves: Map<String, Value> = selected.map(|(name, points)| (name.clone(), curve(points))).collect();
    let page = json!({
        "run": record(run),
        "checkpoints": checkpoints.iter().map(SavedCheckpoint::to_json).collect::<Vec<_>>(),
        "failures": entries(|what| matches!(what, JournalEvent::Failure { .. })),
        "decisions": entries(|what| matches!(what, JournalEvent::Decision { .. })),
        "events": counts(event_log),
        "curves": curves,
    });
    format!("{page:#}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_that_a_resumed_run_repeats_are_shown_once() {
        let entry = |step: u64, what| JournalEntry { step, epoch: 0, time: step as f64, what };
        let start = || entry(0, JournalEvent::Start { stage: Stage::Fit, resumed_from: None });
        let said = |step, text: &str| entry(step, JournalEvent::Said { by: "h".into(), text: text.into() });
        let entries =
            vec![start(), said(1, "a"), said(1, "a"), said(2, "b"), start(), said(2, "b"), said(3, "b")];
        let shown = without_repeats(&EventLog { entries, unreadable: 1 });
        let steps: Vec<_> = shown.entries.iter().map(|entry| entry.step).collect();
        assert_eq!((steps, shown.unreadable), (vec![0, 1, 1, 2, 3], 1));
    }
}
