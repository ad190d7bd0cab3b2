//! The hash of a configuration, which depends on its values only.

use serde_json::{Map, Value, json};
use toml::Table;

use super::Config;
use super::hooks::HookTable;
use super::schema::{Schema, aliases};
use super::secrets;

impl Config {
    /// The hash of the configuration, as `blake3:…`. It depends on all values except secrets and `runs_dir`.
    /// It does not depend on the order of keys, comments, layers, written-out defaults, or the form in which
    /// hooks are written.
    #[must_use]
    pub fn hash(&self) -> String {
        hash_json(&self.hash_input())
    }

    fn hash_input(&self) -> Value {
        let own = secrets::without(self.options.clone(), Schema::new(&self.task_schema));
        let mut all: Map<String, Value> =
            own.iter().map(|(key, value)| (key.clone(), to_json_value(value))).collect();
        let hooks = self.hooks.iter().zip(&self.hook_schemas);
        let hooks: Vec<_> = hooks.map(|(hook, schema)| hook_hash_input(hook, Schema::new(schema))).collect();
        for (key, value) in [
            ("task", json!(self.task)),
            ("device", json!(self.device)),
            ("trainer", json!(self.trainer)),
            ("hooks", json!(hooks)),
        ] {
            all.insert(key.to_owned(), value);
        }
        Value::Object(all)
    }
}

fn hook_hash_input(hook: &HookTable, schema: Schema<'_>) -> Value {
    let mut all = json!(hook.common);
    let options = secrets::without(with_defaults(hook.options.clone(), schema), schema);
    for (key, value) in &options {
        all[key] = to_json_value(value);
    }
    all
}

/// Adds the defaults of unset options, replaces aliases, and converts integers where the option is a
/// floating-point number.
pub(super) fn with_defaults(mut table: Table, schema: Schema<'_>) -> Table {
    for (key, own) in schema.keys(Some(&table)) {
        let aliased = aliases(own.json()).find_map(|alias| table.remove(alias));
        let Some(value) = table.remove(key).or(aliased).or_else(|| own.default()) else { continue };
        let value = coerced(value, own);
        table.insert(key.to_owned(), value);
    }
    table
}

fn coerced(value: toml::Value, own: Schema<'_>) -> toml::Value {
    match value {
        toml::Value::Table(inner) => toml::Value::Table(with_defaults(inner, own)),
        toml::Value::Array(items) => toml::Value::Array(match own.items() {
            Some(of_items) => items.into_iter().map(|item| coerced(item, of_items)).collect(),
            None => items,
        }),
        // `lr = 1` means `lr = 1.0`.
        toml::Value::Integer(number) if own.is_number() => toml::Value::Float(number as f64),
        other => other,
    }
}

/// TOML as JSON. JSON has no infinity and no NaN, so these become objects.
fn to_json_value(value: &toml::Value) -> Value {
    match value {
        toml::Value::Float(number) if !number.is_finite() => json!({ "number": number.to_string() }),
        toml::Value::Array(items) => items.iter().map(to_json_value).collect(),
        toml::Value::Table(table) => {
            Value::Object(table.iter().map(|(key, value)| (key.clone(), to_json_value(value))).collect())
        }
        simple => json!(simple),
    }
}

/// JSON on one line, without spaces, with sorted keys.
fn canonical(value: &Value) -> String {
    match value {
        Value::Object(entries) => {
            let mut entries: Vec<_> = entries.iter().collect();
            entries.sort_by_key(|(key, _)| key.as_str());
            let entries =
                entries.into_iter().map(|(key, value)| format!("{}:{}", json!(key), canonical(value)));
            format!("{{{}}}", entries.collect::<Vec<_>>().join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(",")),
        simple => simple.to_string(),
    }
}

/// The hash of JSON, independent of the order of keys.
pub(crate) fn hash_json(value: &Value) -> String {
    hash_bytes(canonical(value).as_bytes())
}

/// The hash of bytes, as in `run.json`.
pub(crate) fn hash_bytes(bytes: &[u8]) -> String {
    format!("blake3:{}", blake3::hash(bytes).to_hex())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_that_of_other_blake3_programs() {
        let empty = "blake3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
        assert_eq!(hash_bytes(b""), empty);
    }

    #[test]
    fn canonical_json_has_sorted_keys_and_no_spaces() {
        let value = json!({ "b": [1, 0.1, 1.0, 1e-7], "a": { "d": null, "c": "\"x\"\n" } });
        assert_eq!(canonical(&value), r#"{"a":{"c":"\"x\"\n","d":null},"b":[1,0.1,1.0,1e-7]}"#);
    }
}
