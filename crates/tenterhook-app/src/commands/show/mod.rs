//! `tenter show`: one run, from what it was to its curves.

mod charts;
mod page;
mod saved;

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use serde_json::{Map, Value, json};
use tenterhook::Stage;
use tenterhook::run::reading::{Curves, EventLog};
use tenterhook::run::{JournalEntry, JournalEvent, Run};

use super::runs::{meant, record};
use super::{Done, print, print_data, tell};
use crate::arguments::Show;
use crate::curves::{COLOURS, Look};
use crate::table::json_number;
use crate::terminal::{out_is_terminal, print_styled};
pub(super) use page::outcome;
use saved::Saved;

pub(crate) fn run(arguments: &Show) -> Done {
    let run = meant(&arguments.found.dir, &arguments.run)?;
    let curves = run.curves()?;
    let event_log = run.event_log()?;
    let saved = Saved::all(&run, &event_log)?;
    let wanted = charts::chosen(&curves, &arguments.metrics)
        .map_err(|error| error.at(format_args!("--metric: in {}", run.directory.display())))?;
    for (file, lines) in [("metrics.jsonl", curves.unreadable), ("events.jsonl", event_log.unreadable)] {
        if lines > 0 {
            tell(format_args!(
                "left out: {lines} unreadable lines of {}",
                run.directory.join(file).display()
            ));
        }
    }
    if arguments.found.json {
        let names = (!arguments.metrics.is_empty()).then(|| wanted.names());
        print_data(&for_programs(&run, &curves, &event_log, &saved, names.as_deref()));
    } else {
        let look = look(arguments);
        let page = page::page(&run, &event_log, &saved);
        print(&if look.ascii { page.replace('µ', "u") } else { page });
        print_styled(&charts::drawn(&curves, &wanted, look), &COLOURS);
    }
    Ok(ExitCode::SUCCESS)
}

fn look(arguments: &Show) -> Look {
    let terminal = std::env::var("TERM").unwrap_or_default();
    let dumb = terminal == "dumb";
    let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    Look {
        width: arguments.width.into(),
        height: arguments.height.into(),
        ascii: arguments.ascii || dumb,
        colour: out_is_terminal() && !dumb && !no_colour,
    }
}

/// How often each kind of thing happened, by its name in `events.jsonl`.
fn counts(event_log: &EventLog) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for entry in &event_log.entries {
        let written = serde_json::to_value(&entry.what).unwrap_or_default();
        let name = written["event"].as_str().unwrap_or("unknown").to_owned();
        *counts.entry(name).or_default() += 1;
    }
    counts
}

/// What happened, without what a resumed run has done a second time: the steps between its checkpoint and its end are
/// in the journal twice.
fn once(event_log: &EventLog) -> EventLog {
    let (mut before, mut now) = (BTreeSet::new(), BTreeSet::new());
    let first = |entry: &&JournalEntry| {
        if matches!(entry.what, JournalEvent::Start { stage: Stage::Fit, .. }) {
            before.append(&mut now);
        }
        let what = serde_json::to_string(&entry.what).unwrap_or_default();
        let key = (entry.step, entry.epoch, what);
        let new = !before.contains(&key);
        now.insert(key);
        new
    };
    let entries = event_log.entries.iter().filter(first).cloned().collect();
    EventLog { entries, unreadable: event_log.unreadable }
}

fn for_programs(
    run: &Run,
    curves: &Curves,
    event_log: &EventLog,
    saved: &[Saved],
    names: Option<&[&str]>,
) -> String {
    let once = once(event_log);
    let of = |what: fn(&JournalEvent) -> bool| -> Vec<_> {
        once.entries.iter().filter(|entry| what(&entry.what)).collect()
    };
    let curve = |points: &[tenterhook::run::reading::Point]| {
        json!({
            "step": points.iter().map(|point| point.step).collect::<Vec<_>>(),
            "epoch": points.iter().map(|point| point.epoch).collect::<Vec<_>>(),
            "time": points.iter().map(|point| point.time).collect::<Vec<_>>(),
            "value": points.iter().map(|point| json_number(point.value)).collect::<Vec<_>>(),
        })
    };
    let kept =
        curves.by_name.iter().filter(|(name, _)| names.is_none_or(|names| names.contains(&name.as_str())));
    let curves: Map<String, Value> = kept.map(|(name, points)| (name.clone(), curve(points))).collect();
    let page = json!({
        "run": record(run),
        "checkpoints": saved.iter().map(Saved::for_programs).collect::<Vec<_>>(),
        "failures": of(|what| matches!(what, JournalEvent::Failure { .. })),
        "decisions": of(|what| matches!(what, JournalEvent::Decision { .. })),
        "events": counts(event_log),
        "curves": curves,
    });
    format!("{page:#}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_resumed_run_does_again_is_shown_once_and_the_same_twice_in_one_part_twice() {
        let entry = |step: u64, what| JournalEntry { step, epoch: 0, time: step as f64, what };
        let start = || entry(0, JournalEvent::Start { stage: Stage::Fit, resumed_from: None });
        let said = |step, text: &str| entry(step, JournalEvent::Said { by: "h".into(), text: text.into() });
        let entries =
            vec![start(), said(1, "a"), said(1, "a"), said(2, "b"), start(), said(2, "b"), said(3, "b")];
        let shown = once(&EventLog { entries, unreadable: 1 });
        let steps: Vec<_> = shown.entries.iter().map(|entry| entry.step).collect();
        assert_eq!((steps, shown.unreadable), (vec![0, 1, 1, 2, 3], 1));
    }
}
