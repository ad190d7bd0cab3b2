//! The JSON schema of a whole configuration, for editors and validators.
//!
//! A file is one of several layers, so the keys of a task are never required: they may come from its
//! defaults, the environment or `--set`. The required options of a hook are.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::about;
use super::hook_keys::HookKeys;
use super::hooks_config::{BUILT_INS, BuiltIn, HooksConfig};
use super::messages::free_name;
use super::schema::{aliases, expand, schema_of, visit_objects};
use super::tree::USE;
use crate::registry::{Registry, RegistryEntry};
use crate::settings::Settings;
use crate::task::AnyTask;

/// The JSON schema (draft 2020-12) of all configurations with these tasks and hooks. It rejects unknown keys.
/// The first task is the default.
///
/// ```
/// use tenterhook::config::config_schema;
/// use tenterhook::registry::Registry;
/// use tenterhook::task::AnyTask;
/// use tenterhook::toy::ToyTask;
///
/// let tasks: Vec<Box<dyn AnyTask>> = vec![Box::new(ToyTask)];
/// let schema = config_schema(&tasks, &Registry::default());
/// assert_eq!(schema["properties"]["task"]["enum"][0], "toy");
/// ```
#[must_use]
pub fn config_schema(tasks: &[Box<dyn AnyTask>], registry: &Registry) -> Value {
    let mut definitions = Definitions::default();
    let trainer = definitions.define("trainer", schema_of::<Settings>());
    let hooks = definitions.hooks(registry);
    let hooks_config = definitions.hooks_config(registry);
    let names: Vec<_> = tasks.iter().map(|task| task.name()).collect();
    // A program without tasks has configurations without a task.
    let nameable = if names.is_empty() { vec![""] } else { names.clone() };
    let mut properties = json!({
        "task": { "description": about::TASK, "type": "string", "enum": nameable },
        "device": { "description": about::DEVICE, "type": "string", "default": "cpu" },
        "runs_dir": {
            "description": about::RUNS_DIR,
            "type": "string",
            "default": "runs",
        },
        "trainer": { "description": about::TRAINER, "$ref": trainer },
        "hooks": { "description": "The hooks, in registration order.", "type": "array", "items": hooks },
        "hooks_config": hooks_config,
    });
    if let (Some(first), Some(task)) = (names.first(), properties.get_mut("task")) {
        task["default"] = json!(first);
    }
    let kinds: Vec<_> = tasks
        .iter()
        .enumerate()
        .map(|(index, task)| definitions.task(index, task.as_ref(), registry))
        .collect();
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
    schema["$defs"] = json!(definitions.0);
    schema
}

/// The `$defs` of the schema, by name.
#[derive(Default)]
struct Definitions(BTreeMap<String, Value>);

impl Definitions {
    /// Adds a schema with its own definitions, and returns the reference to it.
    fn define(&mut self, name: &str, mut schema: Value) -> String {
        let own = schema.as_object_mut().map(|schema| {
            schema.remove("$schema");
            schema.remove("title");
            schema.remove("$defs")
        });
        let plain: String = name.chars().map(|c| if c.is_alphanumeric() { c } else { '_' }).collect();
        let name = free_name(&plain, |name| !self.0.contains_key(name));
        close(&mut schema);
        refer(&mut schema, &name);
        self.0.insert(name.clone(), schema);
        if let Some(Some(Value::Object(own))) = own {
            for (part, mut schema) in own {
                close(&mut schema);
                refer(&mut schema, &name);
                self.0.insert(format!("{name}.{part}"), schema);
            }
        }
        format!("#/$defs/{name}")
    }

    /// A `[[hooks]]` table, whose keys depend on `use`. An `anyOf` would be shorter, but then a validator can
    /// only report that no alternative fits.
    fn hooks(&mut self, registry: &Registry) -> Value {
        let names: Vec<_> = registry.hooks().flat_map(|entry| spellings(entry.name)).collect();
        let one_each: Vec<_> = registry
            .hooks()
            .map(|entry| {
                let mut keys = common_keys();
                keys.insert(
                    USE.to_owned(),
                    json!({ "description": entry.purpose, "enum": spellings(entry.name) }),
                );
                let schema = with_keys(entry.schema.clone(), keys, &[USE]);
                let reference = self.define(&format!("hook_{}", entry.name), schema);
                let is_it =
                    json!({ "properties": { USE: { "enum": spellings(entry.name) } }, "required": [USE] });
                json!({ "if": is_it, "then": { "$ref": reference } })
            })
            .collect();
        json!({
            "type": "object",
            "properties": { USE: { "description": "The registered name of the hook.", "type": "string", "enum": names } },
            "required": [USE],
            "allOf": one_each,
        })
    }

    /// The options of a hook that is not named by `use`.
    fn options(&mut self, entry: RegistryEntry<'_>, without: &[&str]) -> Value {
        let keys = common_keys().into_iter().filter(|(key, _)| !without.contains(&key.as_str())).collect();
        let schema = with_keys(entry.schema.clone(), keys, &[]);
        json!({ "$ref": self.define(&format!("options_{}", entry.name), schema) })
    }

    fn hooks_config(&mut self, registry: &Registry) -> Value {
        let reference = self.define("hooks_config", schema_of::<HooksConfig>());
        let (mut tables, mut needs_flag, mut needs_table) = (Map::new(), Map::new(), Vec::new());
        for BuiltIn { hook, flag, table } in &BUILT_INS {
            let (Some(table), Some(entry)) = (*table, registry.hook_named(hook)) else { continue };
            tables.insert(table.to_owned(), self.options(entry, &[USE, "enabled"]));
            needs_flag.insert(table.to_owned(), json!([flag]));
            if entry.schema.get("required").is_some() {
                needs_table.push(json!({
                    "if": { "properties": { *flag: { "const": true } }, "required": [flag] },
                    "then": { "required": [table] },
                }));
            }
        }
        let mut configs = Map::new();
        for entry in registry.hooks() {
            let options = self.options(entry, &[USE]);
            configs.extend(spellings(entry.name).into_iter().map(|name| (name, options.clone())));
        }
        let names: Vec<_> = configs.keys().cloned().collect();
        for entry in registry.hooks().filter(|entry| entry.name.contains("::")) {
            let options = configs[entry.name].clone();
            nest(&mut configs, &entry.name.split("::").collect::<Vec<_>>(), options);
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

    /// Changes a definition.
    fn amend(&mut self, reference: &str, change: impl FnOnce(&mut Value)) {
        let name = reference.strip_prefix("#/$defs/").unwrap_or_default();
        if let Some(definition) = self.0.get_mut(name) {
            change(definition);
        }
    }

    /// The keys of a task, if it is the selected one.
    fn task(&mut self, index: usize, task: &dyn AnyTask, registry: &Registry) -> Value {
        let mut schema = registry.schema_of(task);
        require_nothing(&mut schema);
        let described = schema.get("description").cloned().unwrap_or_else(|| json!(task.purpose()));
        let reference = self.define(&format!("task_{}", task.name()), schema);
        self.amend(&reference, |schema| {
            // The keys that all tasks have are allowed besides its own.
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

/// A path, written with `::` and with dots.
fn spellings(name: &str) -> Vec<String> {
    let mut all = vec![name.to_owned()];
    if name.contains("::") {
        all.push(name.replace("::", "."));
    }
    all
}

/// Allows a path as nested tables, too.
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

/// The keys that all hooks have, without references.
fn common_keys() -> Map<String, Value> {
    let schema = schema_of::<HookKeys>();
    let mut keys = schema["properties"].as_object().cloned().unwrap_or_default();
    keys.values_mut().for_each(|key| expand(key, &schema));
    keys
}

/// Adds keys to a schema.
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

/// The subschemas that describe the same value.
fn parts_of(schema: &mut Value) -> impl Iterator<Item = &mut Value> {
    let parts = schema.as_object_mut().into_iter().flatten();
    parts
        .filter(|(key, _)| ["allOf", "anyOf", "oneOf"].contains(&key.as_str()))
        .flat_map(|(_, parts)| parts.as_array_mut().into_iter().flatten())
}

/// Allows additional keys in a table.
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

/// Rejects undeclared keys, also where the type allows them. If several subschemas declare keys of one table,
/// the whole schema rejects unknown keys, not each subschema.
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

/// Makes all keys optional, because other layers may set them.
fn require_nothing(schema: &mut Value) {
    visit_objects(schema, &mut |parts| {
        if parts.get("required").is_some_and(Value::is_array) {
            parts.remove("required");
        }
        if let Some(alternatives) = parts.remove("oneOf") {
            parts.insert("anyOf".to_owned(), alternatives);
        }
    });
}

/// Renames references to the schema's own definitions.
fn refer(schema: &mut Value, name: &str) {
    visit_objects(schema, &mut |parts| {
        let Some(Value::String(target)) = parts.get_mut("$ref") else { return };
        if let Some(part) = target.strip_prefix("#/$defs/") {
            *target = format!("#/$defs/{name}.{part}");
        } else if target == "#" {
            *target = format!("#/$defs/{name}");
        }
    });
}
