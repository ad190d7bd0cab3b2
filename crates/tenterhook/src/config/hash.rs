//! The hash of a configuration: the same for the same values, however they are written.

use serde_json::{Map, Value, json};
use toml::Table;

use super::hooks::HookTable;
use super::resolved::Resolved;
use super::schema::{Schema, aliases};
use super::secrets;

impl Resolved {
    /// The hash of what would run, as `blake3:…`. It does not depend on the order of keys, on comments, on
    /// which layer a value comes from, on whether a default is written out, or on the form in which hooks are
    /// written. It does depend on every value, except secrets and `runs_dir`, which says where and not what.
    #[must_use]
    pub fn hash(&self) -> String {
        of_json(&self.to_be_hashed())
    }

    fn to_be_hashed(&self) -> Value {
        let own = secrets::without(self.options.clone(), Schema::new(&self.task_schema));
        let mut all: Map<String, Value> =
            own.iter().map(|(key, value)| (key.clone(), in_json(value))).collect();
        let hooks = self.hooks.iter().zip(&self.hook_schemas);
        let hooks: Vec<_> =
            hooks.map(|(hook, schema)| hook_to_be_hashed(hook, Schema::new(schema))).collect();
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

fn hook_to_be_hashed(hook: &HookTable, schema: Schema<'_>) -> Value {
    let mut all = json!(hook.common);
    let options = secrets::without(filled(hook.options.clone(), schema), schema);
    for (key, value) in &options {
        all[key] = in_json(value);
    }
    all
}

/// The table with the defaults of what is not set, each option under its own name and of its own type.
pub(super) fn filled(mut table: Table, schema: Schema<'_>) -> Table {
    for (key, own) in schema.keys(Some(&table)) {
        let aliased = aliases(own.json()).find_map(|alias| table.remove(alias));
        let Some(value) = table.remove(key).or(aliased).or_else(|| own.default()) else { continue };
        let value = of_its_type(value, own);
        table.insert(key.to_owned(), value);
    }
    table
}

fn of_its_type(value: toml::Value, own: Schema<'_>) -> toml::Value {
    match value {
        toml::Value::Table(inner) => toml::Value::Table(filled(inner, own)),
        toml::Value::Array(items) => toml::Value::Array(match own.items() {
            Some(of_items) => items.into_iter().map(|item| of_its_type(item, of_items)).collect(),
            None => items,
        }),
        // `lr = 1` is `lr = 1.0` where only a number is meant.
        toml::Value::Integer(number) if own.is_number() => toml::Value::Float(number as f64),
        other => other,
    }
}

/// TOML as JSON, with what JSON has no number for.
fn in_json(value: &toml::Value) -> Value {
    match value {
        toml::Value::Float(number) if !number.is_finite() => json!({ "number": number.to_string() }),
        toml::Value::Array(items) => items.iter().map(in_json).collect(),
        toml::Value::Table(table) => {
            Value::Object(table.iter().map(|(key, value)| (key.clone(), in_json(value))).collect())
        }
        simple => json!(simple),
    }
}

/// JSON on one line, without spaces, its keys in order.
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

/// The hash of a configuration that is JSON, whatever the order of its keys.
pub(crate) fn of_json(value: &Value) -> String {
    of_bytes(canonical(value).as_bytes())
}

/// The hash of some bytes, as it is written in `run.json`.
pub(crate) fn of_bytes(bytes: &[u8]) -> String {
    format!("blake3:{}", blake3::hash(bytes).to_hex())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_one_that_everybody_computes() {
        let empty = "blake3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
        assert_eq!(of_bytes(b""), empty);
    }

    #[test]
    fn canonical_json_has_its_keys_in_order_and_no_spaces() {
        let value = json!({ "b": [1, 0.1, 1.0, 1e-7], "a": { "d": null, "c": "\"x\"\n" } });
        assert_eq!(canonical(&value), r#"{"a":{"c":"\"x\"\n","d":null},"b":[1,0.1,1.0,1e-7]}"#);
    }
}
