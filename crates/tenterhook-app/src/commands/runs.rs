//! `tenter runs`: lists runs, filtered and sorted by settings and results.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::ExitCode;

use serde_json::{Value, json};
use tenterhook::condition::Comparability;
use tenterhook::plan::nearest;
use tenterhook::run::reading::{FIELDS, ReadError, RunFields};
use tenterhook::run::{Run, Runs};
use tenterhook::{Condition, Operand};

use super::{CommandResult, print_data, print_stderr, print_stdout};
use crate::arguments;
use crate::error::CommandError;
use crate::format::{Side, duration, metric, one_line, table, truncated, utc_time};

/// Maximum number of metric columns, if none is requested.
const MAX_METRICS: usize = 6;
/// Fields that always have a column.
const FIXED_COLUMNS: [&str; 8] = ["id", "name", "created", "status", "task", "epochs", "steps", "seconds"];
/// Maximum width of a text column.
const MAX_WIDTH: usize = 40;

/// A run with its fields, metrics and configuration keys.
struct Row<'a> {
    run: &'a Run,
    fields: RunFields,
}

pub(crate) fn run(arguments: &arguments::Runs) -> CommandResult {
    let arguments::Runs { json, .. } = arguments;
    let dir = &arguments.dir.path;
    let runs = Runs::below(dir).map_err(with_hint)?;
    for damaged in runs.damaged() {
        print_stderr(format_args!("skipped: {damaged}"));
    }
    let filters = filters(&arguments.filter)?;
    if runs.list().is_empty() {
        if *json {
            print_data(&to_json(&runs, &[]));
            return Ok(ExitCode::SUCCESS);
        }
        return Err(CommandError::new(format_args!("there are no runs in {}", dir.display())));
    }
    // Newest first; sorting is stable.
    let rows: Vec<_> = runs.list().iter().rev().map(row).collect();
    let mut requested = Vec::new();
    for (text, filter) in arguments.filter.iter().zip(&filters) {
        let at_filter = |error: CommandError| error.at(format_args!("--filter '{text}'"));
        for name in filter.names() {
            check_name(name, &rows).map_err(at_filter)?;
            requested.push(name);
        }
        check_types(filter, &rows).map_err(at_filter)?;
    }
    if let Some(key) = &arguments.sort {
        check_name(key, &rows).map_err(|error| error.at(format_args!("--sort {key}")))?;
        requested.push(key);
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
        print_data(&to_json(&runs, &rows));
    } else {
        print_stdout(&to_text(&runs, &rows, &requested, all));
    }
    Ok(ExitCode::SUCCESS)
}

/// The run with this name. If `latest` points to a removed run, the newest run is used, with a message.
pub(super) fn find_run(directory: &Path, wanted: &str) -> Result<Run, CommandError> {
    let run = Runs::resolve(directory, wanted).map_err(with_hint)?;
    if let Some(lost) = Runs::lost_latest(directory, wanted) {
        let latest = directory.join("latest");
        print_stderr(format_args!(
            "{} points to {}, which does not exist; using the newest run",
            latest.display(),
            lost.display()
        ));
    }
    Ok(run)
}

/// Adds a hint about the option that solves the problem.
fn with_hint(error: ReadError) -> CommandError {
    match error {
        ReadError::NoDirectory { .. } => CommandError::new(format_args!("{error} with --dir")),
        error => error.into(),
    }
}

fn row(run: &Run) -> Row<'_> {
    let config = run.config().inspect_err(|error| {
        print_stderr(format_args!("skipped the configuration of {}: {error}", run.name));
    });
    Row { run, fields: RunFields::of(run, &config.unwrap_or_default()) }
}

fn filters(texts: &[String]) -> Result<Vec<Condition>, CommandError> {
    let at_filter = |error| CommandError::new(error).at("--filter");
    texts.iter().map(|text| text.parse::<Condition>().map_err(at_filter)).collect()
}

/// Refuses a name that no run has.
fn check_name(name: &str, rows: &[Row<'_>]) -> Result<(), CommandError> {
    let names_of_runs = || rows.iter().flat_map(|row| row.fields.names());
    if FIELDS.contains(&name) || names_of_runs().any(|known| known == name) {
        return Ok(());
    }
    let error = CommandError::new(format_args!("no run has a `{name}`"));
    let all: BTreeSet<_> = FIELDS.into_iter().chain(names_of_runs()).collect();
    if let Some(near) = nearest(name, all.iter().copied()) {
        return Err(error.fix(format_args!("did you mean `{near}`?")));
    }
    let metrics: BTreeSet<_> = rows.iter().flat_map(|row| row.run.record.metrics.keys()).collect();
    let metrics: Vec<_> = metrics.into_iter().map(String::as_str).collect();
    let metrics = if metrics.is_empty() { "none".to_owned() } else { metrics.join(", ") };
    let fields = FIELDS.join(", ");
    Err(error.fix(format_args!("fields: {fields}; metrics: {metrics}; or a key of config.toml")))
}

/// Refuses a comparison that compares a number with text in every run that has both values.
fn check_types(filter: &Condition, rows: &[Row<'_>]) -> Result<(), CommandError> {
    let comparisons: Vec<_> =
        rows.iter().map(|row| filter.comparisons(&|name| row.fields.get(name).cloned())).collect();
    let Some(first) = comparisons.first() else { return Ok(()) };
    for (index, (text, _)) in first.iter().enumerate() {
        let has = |sides: Comparability| comparisons.iter().any(|row| row[index].1 == sides);
        if has(Comparability::Incomparable) && !has(Comparability::Comparable) {
            return Err(CommandError::new(format_args!("`{text}` compares a number with text"))
                .fix("write a number, or put text in quotes"));
        }
    }
    Ok(())
}

/// Sorts by a key. Runs without a value, or with NaN, come last.
fn sorted<'a>(rows: Vec<Row<'a>>, key: &str, reverse: bool) -> Vec<Row<'a>> {
    let is_sortable = |row: &Row<'_>| match row.fields.get(key) {
        Some(Operand::Number(number)) => !number.is_nan(),
        Some(Operand::Text(_) | Operand::Hash(_)) => true,
        None => false,
    };
    let (mut sorted, others): (Vec<_>, Vec<_>) = rows.into_iter().partition(is_sortable);
    sorted.sort_by(|a, b| {
        let order = match (a.fields.get(key), b.fields.get(key)) {
            (Some(Operand::Number(a)), Some(Operand::Number(b))) => a.total_cmp(b),
            (Some(Operand::Number(_)), _) => Ordering::Less,
            (_, Some(Operand::Number(_))) => Ordering::Greater,
            (a, b) => a.and_then(Operand::as_text).cmp(&b.and_then(Operand::as_text)),
        };
        if reverse { order.reverse() } else { order }
    });
    sorted.extend(others);
    sorted
}

fn to_json(runs: &Runs, rows: &[Row<'_>]) -> String {
    let damaged: Vec<_> = runs.damaged().map(ToString::to_string).collect();
    let rows: Vec<_> = rows.iter().map(|row| record(row.run)).collect();
    format!("{:#}", json!({ "directory": runs.directory(), "runs": rows, "damaged": damaged }))
}

/// The contents of `run.json`, with the name and directory of the run.
pub(super) fn record(run: &Run) -> Value {
    // The record was read from JSON, so this cannot fail.
    let mut record = serde_json::to_value(&run.record).unwrap_or_default();
    record["name"] = json!(run.name);
    record["directory"] = json!(run.directory);
    record
}

fn to_text(runs: &Runs, rows: &[Row<'_>], requested: &[&str], all: usize) -> String {
    let columns = columns(rows, requested);
    let mut head: Vec<_> =
        ["run", "when (UTC)", "status", "task", "epochs", "steps", "time"].map(str::to_owned).into();
    head.extend(columns.iter().map(|name| (*name).to_owned()));
    let mut sides = vec![Side::Left; 4];
    sides.resize(head.len(), Side::Right);
    let line = |row: &Row<'_>| {
        let record = &row.run.record;
        let mut cells = vec![
            one_line(runs.short(row.run)),
            utc_time(&record.created),
            record.status.as_str().to_owned(),
            one_line(record.task.as_deref().unwrap_or("-")),
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

/// The requested columns without the fixed ones; if none is requested, the metrics of evaluations.
fn columns<'a>(rows: &'a [Row<'_>], requested: &[&'a str]) -> Vec<&'a str> {
    let mut columns: Vec<&str> = Vec::new();
    for name in requested {
        if !FIXED_COLUMNS.contains(name) && !columns.contains(name) {
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
    // If there are too many, drop those of single loaders first, then those that few runs have.
    let mut names: Vec<_> = counts.into_iter().collect();
    names.sort_by_key(|(name, count)| (name.matches('/').count(), std::cmp::Reverse(*count)));
    names.truncate(MAX_METRICS);
    let mut names: Vec<_> = names.into_iter().map(|(name, _)| name).collect();
    names.sort_by_key(|name| (name.starts_with("test/"), *name));
    names
}

fn cell(row: &Row<'_>, name: &str) -> String {
    match row.fields.get(name) {
        None => "-".to_owned(),
        Some(Operand::Number(value)) if row.run.record.metrics.contains_key(name) => metric(name, *value),
        Some(Operand::Number(value)) => value.to_string(),
        Some(Operand::Text(text) | Operand::Hash(text)) => truncated(&one_line(text), MAX_WIDTH),
    }
}
