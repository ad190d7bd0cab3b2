//! `tenter runs`: which runs there are, filtered and sorted by what they were and what came out.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::ExitCode;

use serde_json::{Value, json};
use tenterhook::condition::Sides;
use tenterhook::plan::nearest;
use tenterhook::run::reading::{FIELDS, ReadError, RunFields};
use tenterhook::run::{Run, Runs};
use tenterhook::{Condition, Operand};

use super::{Done, print, print_data, tell};
use crate::arguments::{self, Found};
use crate::error::CommandError;
use crate::progress::{duration, metric};
use crate::table::{Side, clipped, moment, plain, table};

/// So many metrics are shown when none is asked for.
const METRICS: usize = 6;
/// The columns that are always there, as fields.
const SHOWN: [&str; 8] = ["id", "name", "created", "status", "task", "epochs", "steps", "seconds"];
/// So wide is a column of text at the most.
const WIDEST: usize = 40;

/// A run with what it can be asked.
struct Row<'a> {
    run: &'a Run,
    fields: RunFields,
}

pub(crate) fn run(arguments: &arguments::Runs) -> Done {
    let Found { dir, json } = &arguments.found;
    let runs = Runs::below(dir).map_err(told)?;
    for damaged in runs.damaged() {
        tell(format_args!("left out: {damaged}"));
    }
    let filters = filters(&arguments.filter)?;
    if runs.list().is_empty() && *json {
        print_data(&for_programs(&runs, &[]));
        return Ok(ExitCode::SUCCESS);
    }
    if runs.list().is_empty() {
        return Err(CommandError::new(format_args!("there are no runs in {}", dir.display())));
    }
    // Newest first, and the sorting keeps that among equals.
    let rows: Vec<_> = runs.list().iter().rev().map(row).collect();
    let mut asked = Vec::new();
    for (text, filter) in arguments.filter.iter().zip(&filters) {
        let wrong = |error: CommandError| error.at(format_args!("--filter '{text}'"));
        for name in filter.names() {
            known(name, &rows).map_err(wrong)?;
            asked.push(name);
        }
        comparable(filter, &rows).map_err(wrong)?;
    }
    if let Some(key) = &arguments.sort {
        known(key, &rows).map_err(|error| error.at(format_args!("--sort {key}")))?;
        asked.push(key);
    }
    let all = rows.len();
    let holds =
        |row: &Row<'_>| filters.iter().all(|filter| filter.holds(&|name| row.fields.get(name).cloned()));
    let mut rows: Vec<_> = rows.into_iter().filter(holds).collect();
    match &arguments.sort {
        Some(key) => rows = sorted(rows, key, arguments.reverse),
        None if arguments.reverse => rows.reverse(),
        None => {}
    }
    rows.truncate(arguments.limit.unwrap_or(usize::MAX));
    if *json {
        print_data(&for_programs(&runs, &rows));
    } else {
        print(&for_people(&runs, &rows, &asked, all));
    }
    Ok(ExitCode::SUCCESS)
}

/// The run that is meant; where another has to stand in for `latest`, that is told.
pub(super) fn meant(directory: &Path, wanted: &str) -> Result<Run, CommandError> {
    let run = Runs::resolve(directory, wanted).map_err(told)?;
    if let Some(lost) = Runs::lost_latest(directory, wanted) {
        let latest = directory.join("latest");
        tell(format_args!(
            "{} points at {}, which is gone; the newest run is taken",
            latest.display(),
            lost.display()
        ));
    }
    Ok(run)
}

/// An error, with the option that helps where one does.
fn told(error: ReadError) -> CommandError {
    match error {
        ReadError::NoDirectory { .. } => CommandError::new(format_args!("{error} with --dir")),
        error => error.into(),
    }
}

fn row(run: &Run) -> Row<'_> {
    let config = run.config().inspect_err(|error| tell(format_args!("without its configuration: {error}")));
    Row { run, fields: RunFields::of(run, &config.unwrap_or_default()) }
}

fn filters(texts: &[String]) -> Result<Vec<Condition>, CommandError> {
    let wrong = |error| CommandError::new(error).at("--filter");
    texts.iter().map(|text| text.parse::<Condition>().map_err(wrong)).collect()
}

/// A name that no run knows is a mistake.
fn known(name: &str, rows: &[Row<'_>]) -> Result<(), CommandError> {
    let of_runs = || rows.iter().flat_map(|row| row.fields.names());
    if FIELDS.contains(&name) || of_runs().any(|known| known == name) {
        return Ok(());
    }
    let none = CommandError::new(format_args!("no run has a `{name}`"));
    let all: BTreeSet<_> = FIELDS.into_iter().chain(of_runs()).collect();
    if let Some(near) = nearest(name, all.iter().copied()) {
        return Err(none.fix(format_args!("did you mean `{near}`?")));
    }
    let metrics: BTreeSet<_> = rows.iter().flat_map(|row| row.run.record.metrics.keys()).collect();
    let metrics: Vec<_> = metrics.into_iter().map(String::as_str).collect();
    let metrics = if metrics.is_empty() { "none".to_owned() } else { metrics.join(", ") };
    let fields = FIELDS.join(", ");
    Err(none.fix(format_args!("fields: {fields}; metrics: {metrics}; or a key of config.toml")))
}

/// A comparison of a number with a text, in every run that has both, is a mistake.
fn comparable(filter: &Condition, rows: &[Row<'_>]) -> Result<(), CommandError> {
    let of_rows: Vec<_> =
        rows.iter().map(|row| filter.comparisons(&|name| row.fields.get(name).cloned())).collect();
    let Some(first) = of_rows.first() else { return Ok(()) };
    for (index, (text, _)) in first.iter().enumerate() {
        let has = |sides: Sides| of_rows.iter().any(|comparisons| comparisons[index].1 == sides);
        if has(Sides::Unlike) && !has(Sides::Alike) {
            return Err(CommandError::new(format_args!("`{text}` compares a number with a text"))
                .fix("write a number, or quote what is meant as text"));
        }
    }
    Ok(())
}

/// The smallest first, or last; without a value, or with one that has no place in an order, at the end.
fn sorted<'a>(rows: Vec<Row<'a>>, key: &str, reverse: bool) -> Vec<Row<'a>> {
    let has_place = |row: &Row<'_>| match row.fields.get(key) {
        Some(Operand::Number(number)) => !number.is_nan(),
        Some(Operand::Text(_) | Operand::Hash(_)) => true,
        None => false,
    };
    let (mut placed, others): (Vec<_>, Vec<_>) = rows.into_iter().partition(has_place);
    placed.sort_by(|a, b| {
        let order = match (a.fields.get(key), b.fields.get(key)) {
            (Some(Operand::Number(a)), Some(Operand::Number(b))) => a.total_cmp(b),
            (Some(Operand::Number(_)), _) => Ordering::Less,
            (_, Some(Operand::Number(_))) => Ordering::Greater,
            (a, b) => a.and_then(Operand::as_text).cmp(&b.and_then(Operand::as_text)),
        };
        if reverse { order.reverse() } else { order }
    });
    placed.extend(others);
    placed
}

fn for_programs(runs: &Runs, rows: &[Row<'_>]) -> String {
    let damaged: Vec<_> = runs.damaged().map(ToString::to_string).collect();
    let rows: Vec<_> = rows.iter().map(|row| record(row.run)).collect();
    format!("{:#}", json!({ "directory": runs.directory(), "runs": rows, "damaged": damaged }))
}

/// What `run.json` holds, and where it is.
pub(super) fn record(run: &Run) -> Value {
    // It was read from JSON, and holds nothing that JSON cannot.
    let mut record = serde_json::to_value(&run.record).unwrap_or_default();
    record["name"] = json!(run.name);
    record["directory"] = json!(run.directory);
    record
}

fn for_people(runs: &Runs, rows: &[Row<'_>], asked: &[&str], all: usize) -> String {
    let columns = columns(rows, asked);
    let mut head: Vec<_> =
        ["run", "when (UTC)", "status", "task", "epochs", "steps", "time"].map(str::to_owned).into();
    head.extend(columns.iter().map(|name| (*name).to_owned()));
    let mut sides = vec![Side::Left; 4];
    sides.resize(head.len(), Side::Right);
    let line = |row: &Row<'_>| {
        let record = &row.run.record;
        let mut cells = vec![
            plain(runs.short(row.run)),
            moment(&record.created),
            record.status.as_str().to_owned(),
            plain(record.task.as_deref().unwrap_or("-")),
            record.epochs.to_string(),
            record.steps.to_string(),
            record.seconds.map_or_else(|| "-".to_owned(), duration),
        ];
        cells.extend(columns.iter().map(|name| cell(row, name)));
        cells
    };
    let mut lines = table(&[vec![head], rows.iter().map(line).collect()].concat(), &sides);
    if rows.len() < all {
        lines.push(format!("{} of {all} runs in {}", rows.len(), runs.directory().display()));
    }
    lines.join("\n")
}

/// What was asked for, and is not there anyway; else the metrics of evaluations.
fn columns<'a>(rows: &'a [Row<'_>], asked: &[&'a str]) -> Vec<&'a str> {
    let mut columns: Vec<&str> = Vec::new();
    for name in asked {
        if !SHOWN.contains(name) && !columns.contains(name) {
            columns.push(name);
        }
    }
    if !columns.is_empty() {
        return columns;
    }
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for name in rows.iter().flat_map(|row| row.run.record.metrics.keys()) {
        if name.starts_with("val/") || name.starts_with("test/") {
            *counts.entry(name).or_default() += 1;
        }
    }
    // Of too many, those of single loaders go first, then those that few runs have.
    let mut names: Vec<_> = counts.into_iter().collect();
    names.sort_by_key(|(name, count)| (name.matches('/').count(), std::cmp::Reverse(*count)));
    names.truncate(METRICS);
    let mut names: Vec<_> = names.into_iter().map(|(name, _)| name).collect();
    names.sort_by_key(|name| (name.starts_with("test/"), *name));
    names
}

fn cell(row: &Row<'_>, name: &str) -> String {
    match row.fields.get(name) {
        None => "-".to_owned(),
        Some(Operand::Number(value)) if row.run.record.metrics.contains_key(name) => metric(name, *value),
        Some(Operand::Number(value)) => value.to_string(),
        Some(Operand::Text(text) | Operand::Hash(text)) => clipped(&plain(text), WIDEST),
    }
}
