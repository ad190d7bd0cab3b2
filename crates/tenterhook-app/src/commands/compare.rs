//! `tenter compare`: what differs between runs, in configuration, surroundings and result.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use serde_json::{Map, Value, json};
use tenterhook::run::reading::{flatten_config, hook_names};
use tenterhook::run::{Identity, Run, RunRecord};

use super::runs::meant;
use super::show::outcome;
use super::{Done, print, print_data, tell};
use crate::arguments::Compare;
use crate::progress::{duration, metric, only_shows};
use crate::table::{clipped, json_number, plain, table};

/// So wide is a value at the most.
const WIDEST: usize = 48;
/// So much of an id is shown, if that is enough.
const SHORT: usize = 8;

/// A name, and what each run has there.
type Row<T> = (String, Vec<Option<T>>);

struct Comparison {
    config: Vec<Row<Value>>,
    surroundings: Vec<Row<Value>>,
    result: Vec<Row<Value>>,
    metrics: Vec<Row<f64>>,
}

pub(crate) fn run(arguments: &Compare) -> Done {
    let found = arguments.runs.iter().map(|wanted| meant(&arguments.found.dir, wanted));
    let runs: Vec<_> = found.collect::<Result<_, _>>()?;
    let configs: Vec<_> = runs.iter().map(config).collect();
    let compared = Comparison::of(&runs, &configs);
    if arguments.found.json {
        print_data(&compared.for_programs(&runs, arguments.all));
    } else {
        print(&compared.for_people(&runs, arguments.all));
    }
    Ok(ExitCode::SUCCESS)
}

/// What a run ran with: dotted keys, and the names of its hooks in their order.
#[derive(Default)]
struct Config {
    keys: BTreeMap<String, Value>,
    hooks: Vec<String>,
}

/// Without its configuration there is still the rest of a run to compare.
fn config(run: &Run) -> Config {
    let path = run.directory.join("config.toml");
    if path.try_exists().is_ok_and(|exists| !exists) {
        tell(format_args!("without its configuration: there is no {}", path.display()));
    }
    let config = run.config().inspect_err(|error| tell(format_args!("without its configuration: {error}")));
    config
        .map(|config| Config { keys: flatten_config(&config), hooks: hook_names(&config) })
        .unwrap_or_default()
}

/// The order of the hooks that all have, which counts, although hooks are compared by name.
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
        let metrics: Vec<_> = runs.iter().map(|run| run.record.metrics.clone()).collect();
        let keys: Vec<_> = configs.iter().map(|config| config.keys.clone()).collect();
        let mut config = by_key(&keys);
        let order = ("hooks (order)".to_owned(), orders(configs));
        if order.1.iter().any(Option::is_some) {
            config.insert(config.partition_point(|(key, _)| *key < order.0), order);
        }
        Comparison {
            config,
            surroundings: by_key(&of(surroundings)),
            result: by_key(&of(result)),
            metrics: by_key(&metrics),
        }
    }

    fn for_programs(&self, runs: &[Run], all: bool) -> String {
        let values = |rows: &[Row<Value>]| -> Map<String, Value> {
            let shown = rows.iter().filter(|row| all || differs(row));
            shown.map(|(key, values)| (key.clone(), json!(values))).collect()
        };
        let number = |value: &Option<f64>| value.map_or(Value::Null, json_number);
        let metrics = self.metrics.iter().filter(|row| all || differs(row)).map(|(name, values)| {
            let differences: Vec<_> =
                values.iter().map(|value| number(&difference(values[0], *value))).collect();
            let values: Vec<_> = values.iter().map(number).collect();
            (name.clone(), json!({ "values": values, "differences": differences }))
        });
        let compared = json!({
            "runs": runs.iter().map(|run| &run.name).collect::<Vec<_>>(),
            "same_config_hash": same_hash(runs).is_some(),
            "config": values(&self.config),
            "surroundings": values(&self.surroundings),
            "result": values(&self.result),
            "metrics": metrics.collect::<Map<_, _>>(),
        });
        format!("{compared:#}")
    }

    fn for_people(&self, runs: &[Run], all: bool) -> String {
        let hashes = match same_hash(runs) {
            Some(hash) => format!("config: the hashes are equal ({})", plain(hash)),
            None => "config: the hashes differ".to_owned(),
        };
        let mut sections = vec![section(&hashes, runs, &self.config, all, shown)];
        sections.push(section("surroundings", runs, &self.surroundings, all, shown));
        let result = |key: &str, values: &[Option<Value>], run: usize| match (key, values[run].as_ref()) {
            ("seconds", Some(seconds)) => seconds.as_f64().map_or_else(|| "-".to_owned(), duration),
            _ => shown(key, values, run),
        };
        sections.push(section("result", runs, &self.result, all, result));
        sections.push(section("metrics, and how far from the first run", runs, &self.metrics, all, measured));
        sections.join("\n\n")
    }
}

/// All keys of all runs, in order.
fn by_key<T: Clone>(maps: &[BTreeMap<String, T>]) -> Vec<Row<T>> {
    let keys: BTreeSet<String> = maps.iter().flat_map(|map| map.keys().cloned()).collect();
    let row = |key: String| {
        let values = maps.iter().map(|map| map.get(&key).cloned()).collect();
        (key, values)
    };
    keys.into_iter().map(row).collect()
}

/// Two NaNs are the same result.
trait Same {
    fn same(&self, other: &Self) -> bool;
}

impl Same for Value {
    fn same(&self, other: &Value) -> bool {
        self == other
    }
}

impl Same for f64 {
    #[allow(clippy::float_cmp)] // a difference in the last bit is one
    fn same(&self, other: &f64) -> bool {
        self == other || (self.is_nan() && other.is_nan())
    }
}

fn differs<T: Same>((_, values): &Row<T>) -> bool {
    values.windows(2).any(|pair| match (&pair[0], &pair[1]) {
        (Some(a), Some(b)) => !a.same(b),
        (a, b) => a.is_some() != b.is_some(),
    })
}

fn difference(first: Option<f64>, value: Option<f64>) -> Option<f64> {
    Some(value? - first?)
}

fn same_hash(runs: &[Run]) -> Option<&str> {
    let hash = runs.first()?.record.config_hash.as_str();
    (!hash.is_empty() && runs.iter().all(|run| run.record.config_hash == hash)).then_some(hash)
}

/// A title, and a table of what differs, or of all.
fn section<T: Same>(
    title: &str,
    runs: &[Run],
    rows: &[Row<T>],
    all: bool,
    cell: impl Fn(&str, &[Option<T>], usize) -> String,
) -> String {
    let differing: Vec<_> = rows.iter().filter(|row| all || differs(row)).collect();
    let equal = rows.iter().filter(|row| !differs(row)).count();
    let mut lines = vec![title.to_owned()];
    if !differing.is_empty() {
        let head: Vec<_> = [String::new()].into_iter().chain(heads(runs)).collect();
        let row = |(key, values): &Row<T>| {
            let cells = (0..values.len()).map(|run| cell(key, values, run));
            [plain(key)].into_iter().chain(cells).collect()
        };
        let rows: Vec<Vec<String>> = [head].into_iter().chain(differing.into_iter().map(row)).collect();
        lines.extend(table(&rows, &[]));
    }
    match equal {
        _ if rows.is_empty() => lines.push("nothing to compare".to_owned()),
        _ if equal == rows.len() => lines.push(format!("nothing differs ({equal} compared)")),
        1.. if !all => lines.push(format!("the other {equal} are equal; --all shows them")),
        _ => {}
    }
    lines.join("\n  ")
}

/// What a run is called in a table: the end of its id, where that is enough.
fn heads(runs: &[Run]) -> Vec<String> {
    let short = |run: &Run| {
        let name = &run.name;
        let cut = name.len().saturating_sub(SHORT);
        name.get(cut..).filter(|_| *name == run.record.id).unwrap_or(name).to_owned()
    };
    let alike = |run: &Run| runs.iter().any(|other| other.name != run.name && short(other) == short(run));
    runs.iter().map(|run| plain(&if alike(run) { run.name.clone() } else { short(run) })).collect()
}

fn shown(_: &str, values: &[Option<Value>], run: usize) -> String {
    match &values[run] {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => clipped(&plain(text), WIDEST),
        Some(value) => clipped(&plain(&value.to_string()), WIDEST),
    }
}

fn measured(name: &str, values: &[Option<f64>], run: usize) -> String {
    let Some(value) = values[run] else { return "-".to_owned() };
    let text = metric(name, value);
    match difference(values[0], Some(value)) {
        Some(difference) if run > 0 && difference != 0.0 && difference.is_finite() => {
            let sign = if difference > 0.0 { "+" } else { "-" };
            // Points of a per cent are no per cent.
            let size = metric(name, difference.abs()).replace(" %", " points");
            format!("{text} ({sign}{size})")
        }
        _ => text,
    }
}

/// Dotted keys of `run.json` with their values.
fn written(record: &RunRecord, keys: &[&str]) -> BTreeMap<String, Value> {
    let all = serde_json::to_value(record).unwrap_or_default();
    let at = |key: &str| all.pointer(&format!("/{}", key.replace('.', "/"))).cloned().unwrap_or_default();
    keys.iter().map(|key| ((*key).to_owned(), at(key))).collect()
}

/// What a run ran with and on.
fn surroundings(record: &RunRecord) -> BTreeMap<String, Value> {
    let of_run = ["task", "device", "seed", "parameters", "resumed_from", "git.commit", "git.dirty"];
    let of_machine = ["machine.arch", "machine.cpus", "machine.hostname", "machine.os"];
    let mut all = written(record, &[&of_run[..], &of_machine].concat());
    all.insert("parts".to_owned(), json!(record.parts.len().max(1)));
    let Identity { data, program, processor } = &record.identity;
    all.insert("program".to_owned(), json!(program));
    all.insert("processor".to_owned(), json!(processor));
    all.extend(data.iter().map(|(loader, fingerprint)| (format!("data.{loader}"), json!(fingerprint))));
    all.extend(record.versions.iter().map(|(name, version)| (format!("versions.{name}"), json!(version))));
    all
}

/// How it went, besides the metrics.
fn result(record: &RunRecord) -> BTreeMap<String, Value> {
    let mut all = written(record, &["epochs", "steps", "samples", "tokens", "seconds"]);
    all.insert("outcome".to_owned(), json!(outcome(record)));
    for hook in record.hooks.iter().filter(|hook| !only_shows(hook)) {
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
    fn a_difference_is_told_from_the_first_run_and_an_accuracys_in_points() {
        let values = [Some(0.9), Some(0.95), None, Some(f64::NAN), Some(0.9)];
        let told: Vec<_> = (0..values.len()).map(|run| measured("val/accuracy", &values, run)).collect();
        assert_eq!(told, ["90.00 %", "95.00 % (+5.00 points)", "-", "NaN", "90.00 %"]);
        assert_eq!(measured("val/loss", &[Some(0.5), Some(0.25)], 1), "0.2500 (-0.2500)");
    }

    #[test]
    fn only_what_is_not_the_same_everywhere_differs() {
        let row = |values: &[Option<f64>]| ("x".to_owned(), values.to_vec());
        assert!(differs(&row(&[Some(1.0), Some(1.0), Some(2.0)])));
        assert!(differs(&row(&[Some(1.0), None])));
        assert!(!differs(&row(&[Some(f64::NAN), Some(f64::NAN)])));
        assert!(!differs(&row(&[None, None])));
    }
}
