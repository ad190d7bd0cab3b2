//! The named values of a run for filters and sorting: its fields, metrics and configuration keys.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use tenterhook_core::Operand;

use super::Run;

/// The names of the fields of a run in [`RunFields`].
pub const FIELDS: [&str; 21] = [
    "arch",
    "commit",
    "config_hash",
    "cpus",
    "created",
    "device",
    "dirty",
    "ended",
    "epochs",
    "hostname",
    "id",
    "name",
    "os",
    "parameters",
    "samples",
    "seconds",
    "seed",
    "status",
    "steps",
    "task",
    "tokens",
];

/// The named values of a run, for filters and sorting.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunFields(BTreeMap<String, Operand>);

impl RunFields {
    /// The values of this run and of this configuration, such as its [`config`](Run::config). If names collide, a
    /// field takes precedence over a metric, and a metric over a configuration key.
    #[must_use]
    pub fn of(run: &Run, config: &toml::Table) -> RunFields {
        let keys = flatten_config(config).into_iter().filter_map(|(key, value)| Some((key, operand(value)?)));
        let mut all: BTreeMap<_, _> = keys.collect();
        let metrics = run.record.metrics.iter();
        all.extend(metrics.map(|(name, value)| (name.clone(), Operand::Number(*value))));
        let record = serde_json::to_value(&run.record).unwrap_or_default();
        let fields = FIELDS.iter().filter_map(|name| Some(((*name).to_owned(), field(run, &record, name)?)));
        all.extend(fields);
        RunFields(all)
    }

    /// The value with this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Operand> {
        self.0.get(name)
    }

    /// The names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

/// A field of a run, found in its `run.json`. Empty texts count as missing.
fn field(run: &Run, record: &Value, name: &str) -> Option<Operand> {
    let value = match name {
        "name" => json!(run.name),
        "arch" | "cpus" | "hostname" | "os" => record["machine"][name].clone(),
        "commit" | "dirty" => record["git"][name].clone(),
        _ => record[name].clone(),
    };
    // Without a commit, its place holds the reason.
    let is_hash = name == "config_hash" || (name == "commit" && run.record.git.dirty.is_some());
    match value {
        Value::String(text) if text.is_empty() => None,
        Value::String(text) if is_hash => Some(Operand::Hash(text)),
        value => operand(value),
    }
}

/// Flattens a configuration into dotted keys. The key of a hook holds its name, or else its `use`, so that the order
/// of hooks does not matter; the keys of other lists of tables hold the index.
#[must_use]
pub fn flatten_config(config: &toml::Table) -> BTreeMap<String, Value> {
    let mut keys = BTreeMap::new();
    for (key, value) in config {
        match value.as_array() {
            Some(hooks) if key == "hooks" && !hooks.is_empty() => flatten_hooks(&mut keys, hooks),
            _ => flatten_value(&mut keys, key, value),
        }
    }
    keys
}

fn flatten_hooks(keys: &mut BTreeMap<String, Value>, hooks: &[toml::Value]) {
    for (name, hook) in names(hooks).into_iter().zip(hooks) {
        flatten_value(keys, &format!("hooks.{name}"), hook);
    }
}

/// The names of the hooks in [`flatten_config`], in their order.
#[must_use]
pub fn hook_names(config: &toml::Table) -> Vec<String> {
    config.get("hooks").and_then(toml::Value::as_array).map(|hooks| names(hooks)).unwrap_or_default()
}

fn names(hooks: &[toml::Value]) -> Vec<String> {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    let name = |hook| {
        let named = |key: &str| toml::Value::get(hook, key).and_then(toml::Value::as_str);
        let name = named("name").or_else(|| named("use")).unwrap_or("unnamed");
        let times = seen.entry(name).or_default();
        *times += 1;
        if *times == 1 { name.to_owned() } else { format!("{name}-{times}") }
    };
    hooks.iter().map(name).collect()
}

fn flatten_value(keys: &mut BTreeMap<String, Value>, prefix: &str, value: &toml::Value) {
    match value {
        toml::Value::Table(table) if !table.is_empty() => {
            for (key, value) in table {
                flatten_value(keys, &format!("{prefix}.{key}"), value);
            }
        }
        toml::Value::Array(list) if !list.is_empty() && list.iter().all(toml::Value::is_table) => {
            for (index, value) in list.iter().enumerate() {
                flatten_value(keys, &format!("{prefix}.{index}"), value);
            }
        }
        leaf => {
            keys.insert(prefix.to_owned(), to_json(leaf));
        }
    }
}

/// Converts to JSON; dates and non-finite numbers become text.
fn to_json(value: &toml::Value) -> Value {
    match value {
        toml::Value::String(text) => json!(text),
        toml::Value::Integer(number) => json!(number),
        toml::Value::Float(number) if number.is_finite() => json!(number),
        toml::Value::Float(number) => json!(number.to_string()),
        toml::Value::Boolean(switch) => json!(switch),
        toml::Value::Datetime(time) => json!(time.to_string()),
        toml::Value::Array(list) => list.iter().map(to_json).collect(),
        toml::Value::Table(table) => Value::Object(
            table.iter().map(|(key, value)| (key.clone(), to_json(value))).collect::<Map<_, _>>(),
        ),
    }
}

fn operand(value: Value) -> Option<Operand> {
    Some(match value {
        Value::Null => return None,
        Value::Number(number) => Operand::Number(number.as_f64()?),
        Value::String(text) => Operand::Text(text),
        other => Operand::Text(other.to_string()),
    })
}
