//! Looks things up in a JSON schema: which keys a table has, and what is said about them.

use schemars::JsonSchema;
use serde_json::Value;

/// The schema of a type, as JSON.
pub(crate) fn schema_of<T: JsonSchema>() -> Value {
    schemars::schema_for!(T).to_value()
}

/// The keyword by which a setting or an option declares that a run may resume with another value of it:
/// `#[schemars(extend("x-harmless-change" = true))]`. On a struct it counts for all of its options.
pub(crate) const HARMLESS: &str = "x-harmless-change";

/// The other names of an option, which serde knows and its schema has to say:
/// `#[schemars(extend("x-aliases" = ["old_name"]))]`.
pub(crate) fn aliases(option: &Value) -> impl Iterator<Item = &str> {
    option.get("x-aliases").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

/// A place in a schema.
#[derive(Clone, Copy)]
pub(crate) struct Schema<'a> {
    root: &'a Value,
    here: &'a Value,
}

impl<'a> Schema<'a> {
    pub(crate) fn new(root: &'a Value) -> Schema<'a> {
        Schema { root, here: root }
    }

    fn at(self, here: &'a Value) -> Schema<'a> {
        Schema { here, ..self }
    }

    /// This place and everything it stands for: what it refers to, all its parts, its alternatives.
    fn all(self) -> Vec<Schema<'a>> {
        let mut all = vec![self];
        let referred = self.here.get("$ref").and_then(Value::as_str);
        if let Some(target) = referred.and_then(|at| self.root.pointer(at.strip_prefix('#')?)) {
            all.extend(self.at(target).all());
        }
        for parts in ["allOf", "anyOf", "oneOf"] {
            let parts = self.here.get(parts).and_then(Value::as_array);
            all.extend(parts.into_iter().flatten().flat_map(|part| self.at(part).all()));
        }
        all
    }

    /// The keys of the table, in the order in which they are declared. Of several kinds of table, the
    /// one that the value is.
    pub(crate) fn keys(self, value: Option<&toml::Table>) -> Vec<(&'a str, Schema<'a>)> {
        let mut keys: Vec<(&str, Schema<'_>)> = Vec::new();
        let mut kind = None;
        for part in self.all() {
            let Some(properties) = part.here.get("properties").and_then(Value::as_object) else { continue };
            let tag = properties.iter().find_map(|(key, schema)| Some((key.as_str(), schema.get("const")?)));
            if let Some((key, word)) = tag {
                let given = value.and_then(|value| value.get(key)).and_then(toml::Value::as_str);
                // Without a value, the first kind is as good as any.
                let is_it = given.map_or(kind.is_none(), |given| word.as_str() == Some(given));
                if !is_it {
                    continue;
                }
                kind = Some(word);
            }
            for (key, schema) in properties {
                if keys.iter().all(|(known, _)| known != key) {
                    keys.push((key, self.at(schema)));
                }
            }
        }
        keys
    }

    /// The keys of the table, of whichever kind it is.
    pub(crate) fn all_keys(self) -> Vec<&'a str> {
        let mut keys: Vec<&str> = Vec::new();
        for part in self.all() {
            let properties = part.here.get("properties").and_then(Value::as_object);
            for key in properties.into_iter().flat_map(|properties| properties.keys()) {
                if !keys.contains(&key.as_str()) {
                    keys.push(key);
                }
            }
        }
        keys
    }

    /// The schema of one key, or of the elements of a list.
    pub(crate) fn step(self, step: &str, value: Option<&toml::Table>) -> Option<Schema<'a>> {
        let found = self.keys(value).into_iter().find(|(key, _)| *key == step).map(|(_, schema)| schema);
        found.or_else(|| self.items()).or_else(|| self.values())
    }

    /// The schema of a list's elements.
    pub(crate) fn items(self) -> Option<Schema<'a>> {
        self.all().into_iter().find_map(|part| Some(self.at(part.here.get("items")?)))
    }

    /// The schema of a table's values, where its keys are free.
    pub(crate) fn values(self) -> Option<Schema<'a>> {
        let free =
            |part: Schema<'a>| part.here.get("additionalProperties").filter(|values| values.is_object());
        self.all().into_iter().find_map(free).map(|values| self.at(values))
    }

    /// Whether it is never to be written down.
    pub(crate) fn is_secret(self) -> bool {
        self.all().iter().any(|part| part.here.get("writeOnly") == Some(&Value::Bool(true)))
    }

    /// Whether the key at this path, or a table on the way to it, is declared [`HARMLESS`].
    pub(crate) fn is_harmless(self, path: &[String]) -> bool {
        if self.all().iter().any(|part| part.here.get(HARMLESS) == Some(&Value::Bool(true))) {
            return true;
        }
        let Some((key, rest)) = path.split_first() else { return false };
        self.step(key, None).is_some_and(|below| below.is_harmless(rest))
    }

    /// Whether it is a number that need not be whole, and nothing else.
    pub(crate) fn is_number(self) -> bool {
        let is = |kind: &Value| kind.as_str().is_some_and(|kind| kind == "number" || kind == "null");
        let kinds: Vec<_> = self.all().into_iter().filter_map(|part| part.here.get("type")).collect();
        !kinds.is_empty()
            && kinds.iter().all(|kind| kind.as_array().map_or_else(|| is(kind), |kinds| kinds.iter().all(is)))
    }

    /// Whether it is a table, and nothing else.
    pub(crate) fn is_table(self) -> bool {
        let is = |kind: &Value| kind.as_str().is_some_and(|kind| kind == "object" || kind == "null");
        let kinds: Vec<_> = self.all().into_iter().filter_map(|part| part.here.get("type")).collect();
        kinds.iter().any(|kind| kind.to_string().contains("object"))
            && kinds.iter().all(|kind| kind.as_array().map_or_else(|| is(kind), |kinds| kinds.iter().all(is)))
    }

    /// The schema itself.
    pub(crate) fn json(self) -> &'a Value {
        self.here
    }

    /// What is said about it.
    pub(crate) fn description(self) -> Option<&'a str> {
        // Its own words, or those of the one thing it refers to; not those of an alternative.
        let own = self.here.get("description").and_then(Value::as_str);
        own.or_else(|| {
            let target = self.here.get("$ref")?.as_str()?.strip_prefix('#')?;
            self.root.pointer(target)?.get("description")?.as_str()
        })
    }

    /// What it is when nobody sets it, unless that is nothing.
    pub(crate) fn default(self) -> Option<toml::Value> {
        in_toml(self.here.get("default")?)
    }

    /// A value that it could have.
    pub(crate) fn example(self) -> Option<toml::Value> {
        self.all().into_iter().find_map(|part| in_toml(part.here.get("examples")?.get(0)?))
    }

    /// The words that a key can be to say which of several kinds the table is.
    pub(crate) fn kinds(self, key: &str) -> Vec<&'a str> {
        let words =
            self.all().into_iter().filter_map(|part| part.here.get("properties")?.get(key)?.get("const"));
        words.filter_map(Value::as_str).collect()
    }

    /// What kind of value it takes, in words: `text`, `whole number, 1 or more`, `list of numbers`, `"min" or
    /// "max"`.
    pub(crate) fn kind_in_words(self) -> String {
        let of_items = || self.here.get("items").map(|items| self.at(items).limits()).unwrap_or_default();
        let limits = Some(self.limits()).filter(|limits| !limits.is_empty()).unwrap_or_else(of_items);
        let comma = if limits.is_empty() { "" } else { ", " };
        format!("{}{comma}{limits}", self.kind())
    }

    /// How small and how large it can be, in words, where that is more than its type says.
    fn limits(self) -> String {
        let of = |key: &str| self.here.get(key).filter(|limit| limit.is_number());
        let unsigned =
            self.here.get("format").and_then(Value::as_str).is_some_and(|of| of.starts_with("uint"));
        let minimum = of("minimum").filter(|least| !(unsigned && least.as_f64() == Some(0.0)));
        if let (Some(least), Some(most)) = (minimum, of("maximum")) {
            return format!("from {least} to {most}");
        }
        let limits = [
            minimum.map(|least| format!("{least} or more")),
            of("exclusiveMinimum").map(|least| format!("above {least}")),
            of("maximum").map(|most| format!("at most {most}")),
            of("exclusiveMaximum").map(|most| format!("below {most}")),
        ];
        limits.into_iter().flatten().collect::<Vec<_>>().join(" and ")
    }

    fn kind(self) -> String {
        let mut kinds: Vec<String> = Vec::new();
        let mut add = |kind: String| {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        };
        for part in self.all() {
            if part.here.get("enum").is_some() || part.here.get("const").is_some() {
                part.own_choices().for_each(|word| add(format!("\"{word}\"")));
                continue;
            }
            let types = match part.here.get("type") {
                Some(Value::String(one)) => vec![one.as_str()],
                Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
                _ => Vec::new(),
            };
            for kind in types {
                let word = match kind {
                    "boolean" => "true or false",
                    "integer" => "whole number",
                    "number" => "number",
                    "string" => "text",
                    "array" => {
                        let of = self.at(part.here).items().map(Schema::kind).unwrap_or_default();
                        // Words are no kind that has a plural.
                        let plural = if of.ends_with('"') { "" } else { "s" };
                        add(if of.is_empty() { "list".to_owned() } else { format!("list of {of}{plural}") });
                        continue;
                    }
                    "object" => "table",
                    // Unset is no value.
                    _ => continue,
                };
                add(word.to_owned());
            }
        }
        kinds.join(" or ")
    }

    /// The words it can be, where it is one of a few.
    pub(crate) fn choices(self) -> Vec<&'a str> {
        self.all().into_iter().flat_map(Schema::own_choices).collect()
    }

    fn own_choices(self) -> impl Iterator<Item = &'a str> {
        let several = self.here.get("enum").and_then(Value::as_array).into_iter().flatten();
        self.here.get("const").into_iter().chain(several).filter_map(Value::as_str)
    }
}

/// JSON as TOML; nothing where TOML has no word for it.
pub(crate) fn in_toml(value: &Value) -> Option<toml::Value> {
    Some(match value {
        Value::Null => return None,
        Value::Object(map) => {
            let entries = map.iter().filter_map(|(key, value)| Some((key.clone(), in_toml(value)?)));
            toml::Value::Table(entries.collect())
        }
        Value::Array(items) => toml::Value::Array(items.iter().filter_map(in_toml).collect()),
        simple => toml::Value::try_from(simple).ok()?,
    })
}
