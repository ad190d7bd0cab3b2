//! `tenter compare`: the differences between runs in configuration, environment and results.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::process::ExitCode;

use serde_json::{Map, Value, json};
use tenterhook::run::reading::{flatten_config, hook_names};
use tenterhook::run::{Identity, Run, RunRecord};

use super::runs::find_run;
use super::show::outcome;
use super::{CommandResult, print_data, print_stderr, print_stdout};
use crate::arguments::Compare;
use crate::format::{duration, json_number, metric, one_line, table, truncated};
use crate::progress::is_progress;

/// Maximum width of a value.
const MAX_WIDTH: usize = 48;
/// The number of characters of an id that are shown, if they are unique.
const SHORT_ID: usize = 8;

/// A key, and its value in each run.
type Row = (String, Vec<Option<Value>>);

struct Comparison {
    config: Vec<Row>,
    environment: Vec<Row>,
    result: Vec<Row>,
    metrics: Vec<Row>,
}

pub(crate) fn run(arguments: &Compare) -> CommandResult {
    let runs = arguments.names.iter().map(|name| find_run(&arguments.dir.path, name));
    let runs: Vec<_> = runs.collect::<Result<_, _>>()?;
    let configs: Vec<_> = runs.iter().map(config).collect();
    let comparison = Comparison::of(&runs, &configs);
    if arguments.json {
        print_data(&comparison.to_json(&runs, arguments.all));
    } else {
        print_stdout(&comparison.to_text(&runs, arguments.all));
    }
    Ok(ExitCode::SUCCESS)
}

/// The configuration of a run by dotted keys, with the names of its hooks in order.
#[derive(Default)]
struct Config {
    keys: BTreeMap<String, Value>,
    hooks: Vec<String>,
}

/// The configuration of a run; empty with a message if there is none.
fn config(run: &Run) -> Config {
    let skipped =
        |why: &dyn Display| print_stderr(format_args!("skipped the configuration of {}: {why}", run.name));
    let path = run.directory.join("config.toml");
    if path.try_exists().is_ok_and(|exists| !exists) {
        skipped(&format_args!("there is no {}", path.display()));
    }
    let config = run.config().inspect_err(|error| skipped(error));
    config
        .map(|config| Config { keys: flatten_config(&config), hooks: hook_names(&config) })
        .unwrap_or_default()
}

/// The order of the hooks that all runs have. Hooks are compared by name, but their order also matters.
fn orders(configs: &[Config]) -> Vec<Option<Value>> {
    let shared = |name: &&String| configs.iter().all(|other| other.hooks.contains(name));
    let order = |config: &Config| {
        let order: Vec<_> = config.hooks.iter().filter(shared).map(String::as_str).collect();
        (!order.is_empty()).then(|| json!(order.join(", ")))
    };
    configs.iter().map(order).collect()
}

impl Comparison {
    fn of(runs: &[Run], configs: &[Config]) -> Comparison {
        let of = |what: fn(&RunRecord) -> BTreeMap<String, Value>| -> Vec<_> {
            runs.iter().map(|run| what(&run.record)).collect()
        };
        let metrics = |run: &Run| -> BTreeMap<String, Value> {
            run.record.metrics.iter().map(|(name, value)| (name.clone(), json_number(*value))).collect()
        };
        let metrics: Vec<_> = runs.iter().map(metrics).collect();
        let keys: Vec<_> = configs.iter().map(|config| config.keys.clone()).collect();
        let mut config = by_key(&keys);
        let order = ("hooks (order)".to_owned(), orders(configs));
        if order.1.iter().any(Option::is_some) {
            config.insert(config.partition_point(|(key, _)| *key < order.0), order);
        }
        Comparison {
            config,
            environment: by_key(&of(environment)),
            result: by_key(&of(result)),
            metrics: by_key(&metrics),
        }
    }

    fn to_json(&self, runs: &[Run], all: bool) -> String {
        let values = |rows: &[Row]| -> Map<String, Value> {
            let shown = rows.iter().filter(|row| all || differs(row));
            shown.map(|(key, values)| (key.clone(), json!(values))).collect()
        };
        let metrics = self.metrics.iter().filter(|row| all || differs(row)).map(|(name, values)| {
            let differences = (0..values.len()).map(|run| difference(values, run).map(json_number));
            let differences: Vec<_> = differences.collect();
            (name.clone(), json!({ "values": values, "differences": differences }))
        });
        let compared = json!({
            "runs": runs.iter().map(|run| &run.name).collect::<Vec<_>>(),
            "same_config_hash": same_hash(runs).is_some(),
            "config": values(&self.config),
            "environment": values(&self.environment),
            "result": values(&self.result),
            "metrics": metrics.collect::<Map<_, _>>(),
        });
        format!("{compared:#}")
    }

    fn to_text(&self, runs: &[Run], all: bool) -> String {
        let hashes = match same_hash(runs) {
            Some(hash) => format!("config: equal hashes ({})", one_line(hash)),
            None => "config: different hashes".to_owned(),
        };
        let result_cell = |key: &str, values: &[Option<Value>], run: usize| match (key, &values[run]) {
            ("seconds", Some(seconds)) => seconds.as_f64().map_or_else(|| "-".to_owned(), duration),
            _ => cell(key, values, run),
        };
        [
            section(&hashes, runs, &self.config, all, cell),
            section("environment", runs, &self.environment, all, cell),
            section("result", runs, &self.result, all, result_cell),
            section("metrics, with the difference to the first run", runs, &self.metrics, all, metric_cell),
        ]
        .join("\n\n")
    }
}

/// All keys of all runs, in order.
fn by_key(maps: &[BTreeMap<String, Value>]) -> Vec<Row> {
    let keys: BTreeSet<String> = maps.iter().flat_map(|map| map.keys().cloned()).collect();
    let row = |key: String| {
        let values = maps.iter().map(|map| map.get(&key).cloned()).collect();
        (key, values)
    };
    keys.into_iter().map(row).collect()
}

fn differs((_, values): &Row) -> bool {
    values.windows(2).any(|pair| pair[0] != pair[1])
}

/// The number that [`json_number`] wrote.
fn number(value: Option<&Value>) -> Option<f64> {
    let value = value?;
    value.as_f64().or_else(|| value.as_str()?.parse().ok())
}

/// The difference of a run's metric to that of the first run.
fn difference(values: &[Option<Value>], run: usize) -> Option<f64> {
    Some(number(values[run].as_ref())? - number(values[0].as_ref())?)
}

fn same_hash(runs: &[Run]) -> Option<&str> {
    let hash = runs.first()?.record.config_hash.as_str();
    (!hash.is_empty() && runs.iter().all(|run| run.record.config_hash == hash)).then_some(hash)
}

/// A title, and a table of the rows that differ, or of all rows.
fn section(
    title: &str,
    runs: &[Run],
    rows: &[Row],
    all: bool,
    cell: impl Fn(&str, &[Option<Value>], usize) -> String,
) -> String {
    let shown: Vec<_> = rows.iter().filter(|row| all || differs(row)).collect();
    let equal = rows.iter().filter(|row| !differs(row)).count();
    let mut lines = vec![title.to_owned()];
    if !shown.is_empty() {
        let head: Vec<_> = [String::new()].into_iter().chain(short_names(runs)).collect();
        let row = |(key, values): &Row| {
            let cells = (0..values.len()).map(|run| cell(key, values, run));
            [one_line(key)].into_iter().chain(cells).collect()
        };
        let rows: Vec<Vec<String>> = [head].into_iter().chain(shown.into_iter().map(row)).collect();
        lines.extend(table(&rows, &[]));
    }
    match equal {
        _ if rows.is_empty() => lines.push("nothing to compare".to_owned()),
        _ if equal == rows.len() => lines.push(format!("no differences ({equal} compared)")),
        1.. if !all => lines.push(format!("{equal} others are equal; --all shows them")),
        _ => {}
    }
    lines.join("\n  ")
}

/// The column headings: the ends of the ids, if they are unique.
fn short_names(runs: &[Run]) -> Vec<String> {
    let short = |run: &Run| {
        let name = &run.name;
        let cut = name.len().saturating_sub(SHORT_ID);
        name.get(cut..).filter(|_| *name == run.record.id).unwrap_or(name).to_owned()
    };
    let is_ambiguous =
        |run: &Run| runs.iter().any(|other| other.name != run.name && short(other) == short(run));
    runs.iter().map(|run| one_line(&if is_ambiguous(run) { run.name.clone() } else { short(run) })).collect()
}

fn cell(_: &str, values: &[Option<Value>], run: usize) -> String {
    match &values[run] {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => truncated(&one_line(text), MAX_WIDTH),
        Some(value) => truncated(&one_line(&value.to_string()), MAX_WIDTH),
    }
}

fn metric_cell(name: &str, values: &[Option<Value>], run: usize) -> String {
    let Some(value) = number(values[run].as_ref()) else { return "-".to_owned() };
    let text = metric(name, value);
    match difference(values, run) {
        Some(difference) if run > 0 && difference != 0.0 && difference.is_finite() => {
            let sign = if difference > 0.0 { "+" } else { "-" };
            // A difference of percentages is in percentage points.
            let size = metric(name, difference.abs()).replace(" %", " points");
            format!("{text} ({sign}{size})")
        }
        _ => text,
    }
}

/// Values of `run.json` by dotted keys.
fn fields(record: &RunRecord, keys: &[&str]) -> BTreeMap<String, Value> {
    let all = serde_json::to_value(record).unwrap_or_default();
    let at = |key: &str| all.pointer(&format!("/{}", key.replace('.', "/"))).cloned().unwrap_or_default();
    keys.iter().map(|key| ((*key).to_owned(), at(key))).collect()
}

/// Program, data, versions and machine of a run.
fn environment(record: &RunRecord) -> BTreeMap<String, Value> {
    let run_keys = ["task", "device", "seed", "parameters", "resumed_from", "git.commit", "git.dirty"];
    let machine_keys = ["machine.arch", "machine.cpus", "machine.hostname", "machine.os"];
    let mut all = fields(record, &[&run_keys[..], &machine_keys].concat());
    all.insert("parts".to_owned(), json!(record.parts.len().max(1)));
    let Identity { data, program, processor } = &record.identity;
    all.insert("program".to_owned(), json!(program));
    all.insert("processor".to_owned(), json!(processor));
    all.extend(data.iter().map(|(loader, fingerprint)| (format!("data.{loader}"), json!(fingerprint))));
    all.extend(record.versions.iter().map(|(name, version)| (format!("versions.{name}"), json!(version))));
    all
}

/// Outcome, progress and hooks of a run.
fn result(record: &RunRecord) -> BTreeMap<String, Value> {
    let mut all = fields(record, &["epochs", "steps", "samples", "tokens", "seconds"]);
    all.insert("outcome".to_owned(), json!(outcome(record)));
    for hook in record.hooks.iter().filter(|hook| !is_progress(hook)) {
        let state = if hook.enabled { "enabled" } else { "disabled" };
        let failures =
            if hook.failures == 0 { String::new() } else { format!(", failed {} times", hook.failures) };
        all.insert(format!("hooks.{}", hook.name), json!(format!("{state}{failures}")));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_shows_the_difference_to_the_first_run_and_an_accuracy_in_points() {
        let values =
            [Some(0.9), Some(0.95), None, Some(f64::NAN), Some(0.9)].map(|value| value.map(json_number));
        let cells: Vec<_> = (0..values.len()).map(|run| metric_cell("val/accuracy", &values, run)).collect();
        assert_eq!(cells, ["90.00 %", "95.00 % (+5.00 points)", "-", "NaN", "90.00 %"]);
        assert_eq!(metric_cell("val/loss", &[Some(0.5.into()), Some(0.25.into())], 1), "0.2500 (-0.2500)");
    }

    #[test]
    fn a_row_differs_unless_all_values_are_equal() {
        let row = |values: &[Option<f64>]| {
            ("x".to_owned(), values.iter().map(|value| value.map(json_number)).collect::<Vec<_>>())
        };
        assert!(differs(&row(&[Some(1.0), Some(1.0), Some(2.0)])));
        assert!(differs(&row(&[Some(1.0), None])));
        assert!(!differs(&row(&[Some(f64::NAN), Some(f64::NAN)])));
        assert!(!differs(&row(&[None, None])));
    }
}
