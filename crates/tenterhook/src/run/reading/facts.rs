//! What a run can be asked by name: its fields, its metrics and the keys of its configuration.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use tenterhook_core::Operand;

use super::Run;
use crate::run::RunRecord;

/// The names of a run's own fields, as [`Facts`] knows them.
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

/// Everything about a run that has a name: what filters and sorting go by.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts(BTreeMap<String, Operand>);

impl Facts {
    /// What is known of this run, with the keys of this configuration, such as its
    /// [`config`](Run::config). Where names meet, a field goes before a metric before a key.
    #[must_use]
    pub fn of(run: &Run, config: &toml::Table) -> Facts {
        let keys = flat(config).into_iter().filter_map(|(key, value)| Some((key, operand(value)?)));
        let mut facts: BTreeMap<_, _> = keys.collect();
        let metrics = run.record.metrics.iter();
        facts.extend(metrics.map(|(name, value)| (name.clone(), Operand::Number(*value))));
        let fields = FIELDS.iter().filter_map(|name| Some(((*name).to_owned(), field(run, name)?)));
        facts.extend(fields);
        Facts(facts)
    }

    /// What this name stands for.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Operand> {
        self.0.get(name)
    }

    /// The names there are, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

fn field(run: &Run, name: &str) -> Option<Operand> {
    let Run { name: directory, record, .. } = run;
    let RunRecord { git, machine, .. } = record;
    let text = |text: &str| (!text.is_empty()).then(|| Operand::Text(text.to_owned()));
    let hash = |hash: &str| (!hash.is_empty()).then(|| Operand::Hash(hash.to_owned()));
    let number = |number: u64| Some(Operand::Number(number as f64));
    match name {
        "arch" => text(&machine.arch),
        "commit" if git.dirty.is_some() => hash(&git.commit),
        "commit" => text(&git.commit),
        "config_hash" => hash(&record.config_hash),
        "cpus" => Some(Operand::Number(machine.cpus as f64)),
        "created" => text(&record.created),
        "device" => text(&record.device),
        "dirty" => git.dirty.and_then(|dirty| text(&dirty.to_string())),
        "ended" => record.ended.as_deref().and_then(text),
        "epochs" => number(record.epochs),
        "hostname" => text(&machine.hostname),
        "id" => text(&record.id),
        "name" => text(directory),
        "os" => text(&machine.os),
        "parameters" => number(record.parameters),
        "samples" => number(record.samples),
        "seconds" => record.seconds.map(Operand::Number),
        "seed" => number(record.seed),
        "status" => text(record.status.word()),
        "steps" => number(record.steps),
        "task" => record.task.as_deref().and_then(text),
        "tokens" => number(record.tokens),
        _ => None,
    }
}

/// A configuration as dotted keys with their values. Hooks go by their name, or by what they `use`, so that
/// another order is no difference; in other lists of tables the number stands in the key.
#[must_use]
pub fn flat(config: &toml::Table) -> BTreeMap<String, Value> {
    let mut keys = BTreeMap::new();
    for (key, value) in config {
        match value.as_array() {
            Some(hooks) if key == "hooks" && !hooks.is_empty() => hooks_into(&mut keys, hooks),
            _ => flatten_into(&mut keys, key, value),
        }
    }
    keys
}

fn hooks_into(keys: &mut BTreeMap<String, Value>, hooks: &[toml::Value]) {
    for (name, hook) in names(hooks).into_iter().zip(hooks) {
        flatten_into(keys, &format!("hooks.{name}"), hook);
    }
}

/// The hooks of a configuration as [`flat`] names them, in their order.
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

fn flatten_into(keys: &mut BTreeMap<String, Value>, prefix: &str, value: &toml::Value) {
    match value {
        toml::Value::Table(table) if !table.is_empty() => {
            for (key, value) in table {
                flatten_into(keys, &format!("{prefix}.{key}"), value);
            }
        }
        toml::Value::Array(list) if !list.is_empty() && list.iter().all(toml::Value::is_table) => {
            for (index, value) in list.iter().enumerate() {
                flatten_into(keys, &format!("{prefix}.{index}"), value);
            }
        }
        leaf => {
            keys.insert(prefix.to_owned(), to_json(leaf));
        }
    }
}

/// JSON has neither dates nor numbers that are not finite; both become text.
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
