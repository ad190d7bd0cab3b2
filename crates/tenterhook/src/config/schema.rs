//! Queries on a JSON schema: the keys of a table, their types, defaults and descriptions.

use schemars::JsonSchema;
use serde_json::{Map, Value};

/// The schema of a type, as JSON.
pub(crate) fn schema_of<T: JsonSchema>() -> Value {
    schemars::schema_for!(T).to_value()
}

/// The keyword of options that may change when a run resumes: `#[schemars(extend("x-harmless-change" =
/// true))]`. On a struct it counts for all of its options.
pub(crate) const HARMLESS: &str = "x-harmless-change";

/// The aliases of an option. A serde alias must be repeated in the schema:
/// `#[schemars(extend("x-aliases" = ["old_name"]))]`.
pub(crate) fn aliases(option: &Value) -> impl Iterator<Item = &str> {
    option.get("x-aliases").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

/// A position in a schema.
#[derive(Clone, Copy)]
pub(crate) struct Schema<'a> {
    root: &'a Value,
    here: &'a Value,
}

impl<'a> Schema<'a> {
    pub(crate) fn new(root: &'a Value) -> Schema<'a> {
        Schema { root, here: root }
    }

    pub(super) fn at(self, here: &'a Value) -> Schema<'a> {
        Schema { here, ..self }
    }

    /// This schema, what it refers to, and all parts and alternatives of it.
    pub(super) fn all(self) -> Vec<Schema<'a>> {
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

    /// The parts that apply to a table: all except the other kinds of table.
    fn parts(self, value: Option<&toml::Table>) -> Vec<Schema<'a>> {
        let mut kind = None;
        let mut parts = self.all();
        parts.retain(|part| {
            let Some((key, word)) = part.own_tag() else { return true };
            let given = value.and_then(|value| value.get(key)).and_then(toml::Value::as_str);
            // Without a value, the first kind applies.
            let is_it = given.map_or(kind.is_none(), |given| word == given);
            if is_it {
                kind = Some(word);
            }
            is_it
        });
        parts
    }

    fn properties(self) -> impl Iterator<Item = (&'a str, Schema<'a>)> {
        let properties = self.here.get("properties").and_then(Value::as_object).into_iter().flatten();
        properties.map(move |(key, schema)| (key.as_str(), self.at(schema)))
    }

    /// The key that tells this kind of table from others, and its value.
    fn own_tag(self) -> Option<(&'a str, &'a str)> {
        self.properties().find_map(|(key, schema)| Some((key, schema.here.get("const")?.as_str()?)))
    }

    /// The key that tells the kinds of this table apart, and all its values.
    pub(crate) fn tag(self) -> Option<(&'a str, Vec<&'a str>)> {
        let key = self.all().into_iter().find_map(Schema::own_tag)?.0;
        Some((key, self.kinds(key)))
    }

    /// The keys of the table, in declaration order. If there are several kinds of table, the keys of the
    /// value's kind.
    pub(crate) fn keys(self, value: Option<&toml::Table>) -> Vec<(&'a str, Schema<'a>)> {
        distinct_keys(self.parts(value))
    }

    /// The allowed and the required keys of this table; `None` if several kinds of table have no key that
    /// tells them apart.
    pub(crate) fn shape(self, table: &toml::Table) -> Option<TableShape<'a>> {
        let parts = self.parts(Some(table));
        let untold = |part: &&Schema<'_>| part.here.get("properties").is_some() && part.own_tag().is_none();
        if parts.iter().filter(untold).count() > 1 {
            return None;
        }
        let required = parts.iter().filter_map(|part| part.here.get("required")?.as_array()).flatten();
        let closed = |part: &Schema<'_>| {
            part.here.get("properties").is_some()
                || part.here.get("additionalProperties") == Some(&Value::Bool(false))
        };
        let open = |part: &Schema<'_>| part.here.get("additionalProperties") == Some(&Value::Bool(true));
        let additional = match self.values() {
            Some(values) => AdditionalKeys::Of(values),
            None if parts.iter().any(open) || !parts.iter().any(closed) => AdditionalKeys::Any,
            None => AdditionalKeys::None,
        };
        let required = required.filter_map(Value::as_str).collect();
        Some(TableShape { keys: self.keys(Some(table)), required, additional })
    }

    /// The keys of all kinds of the table.
    pub(crate) fn all_keys(self) -> Vec<&'a str> {
        distinct_keys(self.all()).into_iter().map(|(key, _)| key).collect()
    }

    /// The schema of a key, or of an element of a list.
    pub(crate) fn step(self, step: &str, value: Option<&toml::Table>) -> Option<Schema<'a>> {
        let found = self.keys(value).into_iter().find(|(key, _)| *key == step).map(|(_, schema)| schema);
        let item = || step.parse().ok().and_then(|index| self.item(index));
        found.or_else(item).or_else(|| self.values())
    }

    /// The schema of the element at this index.
    pub(crate) fn item(self, index: usize) -> Option<Schema<'a>> {
        let by_place = |part: Schema<'a>| part.here.get("prefixItems")?.get(index);
        self.all().into_iter().find_map(by_place).map(|item| self.at(item)).or_else(|| self.items())
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

    /// Whether the value is a secret.
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

    /// The JSON types of its values; `None` if all are allowed.
    pub(crate) fn types(self) -> Option<Vec<&'a str>> {
        let mut types = Vec::new();
        for part in self.all() {
            let own = part.own_types();
            if own.is_empty() && part.own_choices().next().is_some() {
                types.push("string");
            } else if own.is_empty() && !part.is_composed() {
                return None;
            }
            types.extend(own);
        }
        // `null` means unset and is not a value.
        types.retain(|kind| *kind != "null");
        types.sort_unstable();
        types.dedup();
        Some(types)
    }

    pub(super) fn own_types(self) -> Vec<&'a str> {
        match self.here.get("type") {
            Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
            one => one.and_then(Value::as_str).into_iter().collect(),
        }
    }

    fn is_composed(self) -> bool {
        ["$ref", "allOf", "anyOf", "oneOf"].iter().any(|key| self.here.get(key).is_some())
    }

    /// Whether only floating-point numbers are allowed.
    pub(crate) fn is_number(self) -> bool {
        self.types().as_deref() == Some(&["number"])
    }

    /// Whether only tables are allowed.
    pub(crate) fn is_table(self) -> bool {
        self.types().as_deref() == Some(&["object"])
    }

    /// Whether its integer type can hold this number.
    pub(crate) fn holds(self, number: i64) -> bool {
        let formats = self.all().into_iter().filter_map(|part| part.here.get("format")?.as_str());
        let mut ranges = formats.map(|format| match format {
            "int8" => i64::from(i8::MIN)..=i64::from(i8::MAX),
            "int16" => i64::from(i16::MIN)..=i64::from(i16::MAX),
            "int32" => i64::from(i32::MIN)..=i64::from(i32::MAX),
            "uint8" => 0..=i64::from(u8::MAX),
            "uint16" => 0..=i64::from(u16::MAX),
            "uint32" => 0..=i64::from(u32::MAX),
            "uint" | "uint64" => 0..=i64::MAX,
            _ => i64::MIN..=i64::MAX,
        });
        ranges.all(|range| range.contains(&number))
    }

    /// The allowed words, if no other text is allowed.
    pub(crate) fn words(self) -> Option<Vec<&'a str>> {
        let parts = self.all();
        let is_text = |part: &Schema<'_>| {
            part.here.get("type").is_some_and(|kind| kind == "string") && part.own_choices().next().is_none()
        };
        let words = self.choices();
        (!words.is_empty() && !parts.iter().any(is_text)).then_some(words)
    }

    /// A value that is valid by the schema.
    pub(crate) fn placeholder(self) -> Option<toml::Value> {
        let of_type = || {
            if let Some(word) = self.choices().first() {
                return Some(toml::Value::String((*word).to_owned()));
            }
            Some(match *self.types()?.first()? {
                "array" => toml::Value::Array(Vec::new()),
                "boolean" => toml::Value::Boolean(false),
                "integer" => toml::Value::Integer(1),
                "number" => toml::Value::Float(1.0),
                "string" => toml::Value::String(String::new()),
                "object" => {
                    let mut table = toml::Table::new();
                    if let Some((tag, words)) = self.tag() {
                        table.insert(tag.to_owned(), toml::Value::String((*words.first()?).to_owned()));
                    }
                    let shape = self.shape(&table)?;
                    for (key, own) in shape.keys.into_iter().filter(|(key, _)| shape.required.contains(key)) {
                        if !table.contains_key(key) {
                            table.insert(key.to_owned(), own.placeholder()?);
                        }
                    }
                    toml::Value::Table(table)
                }
                _ => return None,
            })
        };
        self.default().or_else(|| self.example()).or_else(of_type)
    }

    /// The JSON at this position.
    pub(crate) fn json(self) -> &'a Value {
        self.here
    }

    /// Its description.
    pub(crate) fn description(self) -> Option<&'a str> {
        // The description of an alternative does not count.
        let own = self.here.get("description").and_then(Value::as_str);
        own.or_else(|| {
            let target = self.here.get("$ref")?.as_str()?.strip_prefix('#')?;
            self.root.pointer(target)?.get("description")?.as_str()
        })
    }

    /// Its default value, if it has one.
    pub(crate) fn default(self) -> Option<toml::Value> {
        in_toml(self.here.get("default")?)
    }

    /// Its first example.
    pub(crate) fn example(self) -> Option<toml::Value> {
        self.all().into_iter().find_map(|part| in_toml(part.here.get("examples")?.get(0)?))
    }

    /// The values of a key that tells the kinds of this table apart.
    pub(crate) fn kinds(self, key: &str) -> Vec<&'a str> {
        let words =
            self.all().into_iter().filter_map(|part| part.here.get("properties")?.get(key)?.get("const"));
        words.filter_map(Value::as_str).collect()
    }

    /// The words that are allowed.
    pub(crate) fn choices(self) -> Vec<&'a str> {
        self.all().into_iter().flat_map(Schema::own_choices).collect()
    }

    pub(super) fn own_choices(self) -> impl Iterator<Item = &'a str> {
        let several = self.here.get("enum").and_then(Value::as_array).into_iter().flatten();
        self.here.get("const").into_iter().chain(several).filter_map(Value::as_str)
    }
}

/// The keys of these parts of a schema, the first of each name.
fn distinct_keys(parts: Vec<Schema<'_>>) -> Vec<(&str, Schema<'_>)> {
    let mut keys: Vec<(&str, Schema<'_>)> = Vec::new();
    for (key, schema) in parts.into_iter().flat_map(Schema::properties) {
        if keys.iter().all(|(known, _)| *known != key) {
            keys.push((key, schema));
        }
    }
    keys
}

/// The keys of a table by its schema.
pub(crate) struct TableShape<'a> {
    pub(crate) keys: Vec<(&'a str, Schema<'a>)>,
    pub(crate) required: Vec<&'a str>,
    pub(crate) additional: AdditionalKeys<'a>,
}

/// The keys that a table accepts besides those of its schema.
#[derive(Clone, Copy)]
pub(crate) enum AdditionalKeys<'a> {
    None,
    Any,
    Of(Schema<'a>),
}

impl<'a> TableShape<'a> {
    /// The required keys that are set under none of their names.
    pub(crate) fn missing(&self, table: &toml::Table) -> Vec<&'a str> {
        let is_set = |key: &str| {
            let own = self.keys.iter().find(|(known, _)| *known == key);
            let mut names = own.into_iter().flat_map(|(_, own)| aliases(own.json()));
            table.contains_key(key) || names.any(|alias| table.contains_key(alias))
        };
        self.required.iter().copied().filter(|key| !is_set(key)).collect()
    }
}

/// Visits all JSON objects of a schema, outer ones first.
pub(crate) fn visit_objects(schema: &mut Value, visit: &mut dyn FnMut(&mut Map<String, Value>)) {
    match schema {
        Value::Object(parts) => {
            visit(parts);
            parts.values_mut().for_each(|part| visit_objects(part, visit));
        }
        Value::Array(parts) => parts.iter_mut().for_each(|part| visit_objects(part, visit)),
        _ => {}
    }
}

/// Replaces references by what they refer to. The schema must not be recursive.
pub(crate) fn expand(schema: &mut Value, root: &Value) {
    visit_objects(schema, &mut |own| {
        if let Some(Value::String(target)) = own.remove("$ref")
            && let Some(Value::Object(target)) = target.strip_prefix('#').and_then(|at| root.pointer(at))
        {
            let overriding = std::mem::replace(own, target.clone());
            own.extend(overriding);
        }
    });
}

/// JSON as TOML; `None` for null.
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
