//! The JSON schema of a whole configuration: what an editor or a validator needs to know.
//!
//! A file is one layer of several, so the keys of a task are never required: its defaults, the environment or
//! `--set` may have them. A hook's own options are.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::hooks_config::{BUILT_INS, BuiltIn, HooksConfig};
use super::keys::HookKeys;
use super::schema::{aliases, expand, schema_of};
use super::tree::USE;
use super::words::free_name;
use crate::registry::{Listed, Registry};
use crate::settings::Settings;
use crate::task::AnyTask;

/// The JSON schema (draft 2020-12) of all configurations of these tasks with these hooks. It refuses the keys
/// that we refuse. The first task is the one that runs when none is named.
///
/// ```
/// use tenterhook::config::schema_of_all;
/// use tenterhook::registry::Registry;
/// use tenterhook::task::AnyTask;
/// use tenterhook::toy::ToyTask;
///
/// let tasks: Vec<Box<dyn AnyTask>> = vec![Box::new(ToyTask)];
/// let schema = schema_of_all(&tasks, &Registry::default());
/// assert_eq!(schema["properties"]["task"]["enum"][0], "toy");
/// ```
#[must_use]
pub fn schema_of_all(tasks: &[Box<dyn AnyTask>], registry: &Registry) -> Value {
    let mut whole = Whole::default();
    let trainer = whole.define("trainer", schema_of::<Settings>());
    let hooks = whole.hooks(registry);
    let hooks_config = whole.hooks_config(registry);
    let names: Vec<_> = tasks.iter().map(|task| task.name()).collect();
    // A program without tasks has configurations of no task.
    let nameable = if names.is_empty() { vec![""] } else { names.clone() };
    let mut properties = json!({
        "task": { "description": "What is trained.", "type": "string", "enum": nameable },
        "device": { "description": "The device to compute on.", "type": "string", "default": "cpu" },
        "runs_dir": {
            "description": "The directory of all runs; each makes one of its own in it.",
            "type": "string",
            "default": "runs",
        },
        "trainer": { "description": "The loop itself: how long to train, when to validate, what to log.", "$ref": trainer },
        "hooks": { "description": "The hooks.", "type": "array", "items": hooks },
        "hooks_config": hooks_config,
    });
    if let (Some(first), Some(task)) = (names.first(), properties.get_mut("task")) {
        task["default"] = json!(first);
    }
    let kinds: Vec<_> =
        tasks.iter().enumerate().map(|(index, task)| whole.task(index, task.as_ref(), registry)).collect();
    let mut schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A configuration",
        "type": "object",
        "properties": properties,
        "unevaluatedProperties": false,
    });
    if !kinds.is_empty() {
        schema["allOf"] = json!(kinds);
    }
    schema["$defs"] = json!(whole.definitions);
    schema
}

/// The parts that the schema refers to, by name.
#[derive(Default)]
struct Whole {
    definitions: BTreeMap<String, Value>,
}

impl Whole {
    /// Takes in a schema with its own definitions, and returns the reference to it.
    fn define(&mut self, name: &str, mut schema: Value) -> String {
        let own = schema.as_object_mut().map(|schema| {
            schema.remove("$schema");
            schema.remove("title");
            schema.remove("$defs")
        });
        let plain: String = name.chars().map(|c| if c.is_alphanumeric() { c } else { '_' }).collect();
        let name = free_name(&plain, |name| !self.definitions.contains_key(name));
        close(&mut schema);
        refer(&mut schema, &name);
        self.definitions.insert(name.clone(), schema);
        if let Some(Some(Value::Object(own))) = own {
            for (part, mut schema) in own {
                close(&mut schema);
                refer(&mut schema, &name);
                self.definitions.insert(format!("{name}.{part}"), schema);
            }
        }
        format!("#/$defs/{name}")
    }

    /// One table of `[[hooks]]`: what its `use` says it is. A choice between alternatives would be shorter, but
    /// a validator could then only say that none of them fits.
    fn hooks(&mut self, registry: &Registry) -> Value {
        let names: Vec<_> = registry.hooks().flat_map(|listed| spellings(listed.name)).collect();
        let one_each: Vec<_> = registry
            .hooks()
            .map(|listed| {
                let mut keys = common_keys();
                keys.insert(
                    USE.to_owned(),
                    json!({ "description": listed.purpose, "enum": spellings(listed.name) }),
                );
                let schema = with_keys(listed.schema.clone(), keys, &[USE]);
                let reference = self.define(&format!("hook_{}", listed.name), schema);
                let is_it =
                    json!({ "properties": { USE: { "enum": spellings(listed.name) } }, "required": [USE] });
                json!({ "if": is_it, "then": { "$ref": reference } })
            })
            .collect();
        json!({
            "type": "object",
            "properties": { USE: { "description": "Which hook: a registered name.", "type": "string", "enum": names } },
            "required": [USE],
            "allOf": one_each,
        })
    }

    /// The options of a hook where something else says which one it is.
    fn options(&mut self, listed: Listed<'_>, without: &[&str]) -> Value {
        let keys = common_keys().into_iter().filter(|(key, _)| !without.contains(&key.as_str())).collect();
        let schema = with_keys(listed.schema.clone(), keys, &[]);
        json!({ "$ref": self.define(&format!("options_{}", listed.name), schema) })
    }

    fn hooks_config(&mut self, registry: &Registry) -> Value {
        let reference = self.define("hooks_config", schema_of::<HooksConfig>());
        let (mut tables, mut needs_flag, mut needs_table) = (Map::new(), Map::new(), Vec::new());
        for BuiltIn { hook, flag, table } in &BUILT_INS {
            let (Some(table), Some(listed)) = (*table, registry.hook_named(hook)) else { continue };
            tables.insert(table.to_owned(), self.options(listed, &[USE, "enabled"]));
            needs_flag.insert(table.to_owned(), json!([flag]));
            if listed.schema.get("required").is_some() {
                needs_table.push(json!({
                    "if": { "properties": { *flag: { "const": true } }, "required": [flag] },
                    "then": { "required": [table] },
                }));
            }
        }
        let mut configs = Map::new();
        for listed in registry.hooks() {
            let options = self.options(listed, &[USE]);
            configs.extend(spellings(listed.name).into_iter().map(|name| (name, options.clone())));
        }
        let names: Vec<_> = configs.keys().cloned().collect();
        for listed in registry.hooks().filter(|listed| listed.name.contains("::")) {
            let options = configs[listed.name].clone();
            nest(&mut configs, &listed.name.split("::").collect::<Vec<_>>(), options);
        }
        self.amend(&reference, |schema| {
            let properties = &mut schema["properties"];
            for (key, options) in tables {
                properties[&key]["$ref"] = options["$ref"].clone();
                properties[&key]["type"] = json!("object");
                if let Some(table) = properties[&key].as_object_mut() {
                    table.remove("additionalProperties");
                }
            }
            properties["hook_classes"]["uniqueItems"] = json!(true);
            properties["hook_classes"]["items"] = json!({ "type": "string", "enum": names });
            properties["hook_configs"]["properties"] = json!(configs);
            properties["hook_configs"]["additionalProperties"] = json!(false);
            schema["dependentRequired"] = json!(needs_flag);
            if !needs_table.is_empty() {
                schema["allOf"] = json!(needs_table);
            }
        });
        json!({ "description": "Hooks as flags and tables.", "$ref": reference })
    }

    /// Changes what a reference refers to.
    fn amend(&mut self, reference: &str, change: impl FnOnce(&mut Value)) {
        let name = reference.strip_prefix("#/$defs/").unwrap_or_default();
        if let Some(definition) = self.definitions.get_mut(name) {
            change(definition);
        }
    }

    /// The keys of a task, when it is the one that is named.
    fn task(&mut self, index: usize, task: &dyn AnyTask, registry: &Registry) -> Value {
        let mut schema = registry.schema_of(task);
        require_nothing(&mut schema);
        let described = schema.get("description").cloned().unwrap_or_else(|| json!(task.purpose()));
        let reference = self.define(&format!("task_{}", task.name()), schema);
        self.amend(&reference, |schema| {
            // The keys that all tasks have stand beside its own.
            open(schema);
            schema["description"] = described;
        });
        let mut condition = json!({ "properties": { "task": { "const": task.name() } } });
        if index > 0 {
            condition["required"] = json!(["task"]);
        }
        json!({ "if": condition, "then": { "$ref": reference } })
    }
}

/// A path, with colons and with dots.
fn spellings(name: &str) -> Vec<String> {
    let mut all = vec![name.to_owned()];
    if name.contains("::") {
        all.push(name.replace("::", "."));
    }
    all
}

/// Lets a path be one of tables within tables, too.
fn nest(properties: &mut Map<String, Value>, steps: &[&str], options: Value) {
    let Some((step, rest)) = steps.split_first() else { return };
    if rest.is_empty() {
        properties.entry(*step).or_insert(options);
        return;
    }
    let empty = json!({ "type": "object", "properties": {}, "additionalProperties": false });
    let table = properties.entry(*step).or_insert(empty);
    if let Some(Value::Object(inner)) = table.get_mut("properties") {
        nest(inner, rest, options);
    }
}

/// The keys that every hook has, with what they refer to in place.
fn common_keys() -> Map<String, Value> {
    let schema = schema_of::<HookKeys>();
    let mut keys = schema["properties"].as_object().cloned().unwrap_or_default();
    keys.values_mut().for_each(|key| expand(key, &schema));
    keys
}

/// The same schema with more keys.
fn with_keys(mut schema: Value, keys: Map<String, Value>, required: &[&str]) -> Value {
    open(&mut schema);
    let (mut properties, mut one_name) = (keys, Map::new());
    for (key, own) in schema.get("properties").and_then(Value::as_object).cloned().unwrap_or_default() {
        for alias in aliases(&own) {
            properties.insert(alias.to_owned(), own.clone());
            one_name.insert(alias.to_owned(), json!({ "not": { "required": [key] } }));
        }
        properties.insert(key, own);
    }
    schema["type"] = json!("object");
    schema["properties"] = json!(properties);
    if !one_name.is_empty() {
        schema["dependentSchemas"] = json!(one_name);
    }
    let own = schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    let required: Vec<_> = required.iter().map(|key| json!(key)).chain(own).collect();
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

/// The parts of a schema that describe the same value.
fn parts_of(schema: &mut Value) -> impl Iterator<Item = &mut Value> {
    let parts = schema.as_object_mut().into_iter().flatten();
    parts
        .filter(|(key, _)| ["allOf", "anyOf", "oneOf"].contains(&key.as_str()))
        .flat_map(|(_, parts)| parts.as_array_mut().into_iter().flatten())
}

/// Lets a table have other keys.
fn open(schema: &mut Value) {
    if let Some(schema) = schema.as_object_mut() {
        for key in ["additionalProperties", "unevaluatedProperties"] {
            if schema.get(key) == Some(&json!(false)) {
                schema.remove(key);
            }
        }
    }
    parts_of(schema).for_each(open);
}

/// Refuses keys that are not declared, as we do also where a type does not say so. Where several parts declare
/// keys of one table, the whole refuses and not each part.
fn close(schema: &mut Value) {
    let has = |schema: &Value, key: &str| schema.get(key).is_some();
    let composed = ["allOf", "anyOf", "oneOf", "$ref"].iter().any(|key| has(schema, key));
    if has(schema, "properties") {
        if composed {
            parts_of(schema).for_each(open);
        }
        if !has(schema, "additionalProperties") && !has(schema, "unevaluatedProperties") {
            schema[if composed { "unevaluatedProperties" } else { "additionalProperties" }] = json!(false);
        }
    } else {
        parts_of(schema).for_each(close);
    }
    let below = schema.as_object_mut().into_iter().flatten();
    for (key, below) in below {
        match (key.as_str(), below) {
            ("properties" | "patternProperties", Value::Object(properties)) => {
                properties.values_mut().for_each(close);
            }
            ("items" | "additionalProperties", below) => close(below),
            ("prefixItems", Value::Array(items)) => items.iter_mut().for_each(close),
            _ => {}
        }
    }
}

/// Requires no key, so that a table may have some of them; which kind of table it is may be said elsewhere.
fn require_nothing(schema: &mut Value) {
    match schema {
        Value::Object(parts) => {
            if parts.get("required").is_some_and(Value::is_array) {
                parts.remove("required");
            }
            if let Some(alternatives) = parts.remove("oneOf") {
                parts.insert("anyOf".to_owned(), alternatives);
            }
            parts.values_mut().for_each(require_nothing);
        }
        Value::Array(parts) => parts.iter_mut().for_each(require_nothing),
        _ => {}
    }
}

/// Renames references to the schema's own definitions.
fn refer(schema: &mut Value, name: &str) {
    match schema {
        Value::Object(parts) => {
            for (key, part) in parts {
                match (key.as_str(), part) {
                    ("$ref", Value::String(target)) => {
                        if let Some(part) = target.strip_prefix("#/$defs/") {
                            *target = format!("#/$defs/{name}.{part}");
                        } else if target == "#" {
                            *target = format!("#/$defs/{name}");
                        }
                    }
                    (_, part) => refer(part, name),
                }
            }
        }
        Value::Array(parts) => parts.iter_mut().for_each(|part| refer(part, name)),
        _ => {}
    }
}
