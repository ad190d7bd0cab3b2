//! Validates a value against the JSON schema of its type, and finds all errors in one pass.
//!
//! The schema defines keys, types and allowed values. Errors that only the type detects, such as the format of
//! a time, are found when the value is decoded, after all other errors have been [repaired](repair).

use tenterhook_core::plan::nearest;
use toml::{Table, Value};

use super::decode::{DecodeError, ErrorKind, owned, unexpected};
use super::schema::{AdditionalKeys, Schema, aliases};
use super::schema_words::{type_name, with_article};

/// Decodes a value and finds all errors in it. The first part of the result is the value without its wrong
/// parts, if the rest can be decoded. Values of `example` replace wrong values of required options.
pub(crate) fn read_all<T>(
    mut value: Value,
    schema: Schema<'_>,
    example: &Table,
    read: &dyn Fn(Value) -> Result<T, DecodeError>,
) -> (Option<T>, Vec<DecodeError>) {
    let Checker { mut errors, broken: mut repaired, intended, .. } = check(&value, schema);
    if !repaired.iter().all(|path| repair(&mut value, schema, path, example)) {
        return (None, errors);
    }
    repaired.extend(intended);
    loop {
        let error = match read(value.clone()) {
            Ok(read) => return (Some(read), errors),
            Err(error) => error,
        };
        // An error at a repaired place may be caused by the repair.
        let caused_by_repair = |repaired: &Vec<String>| match &error.keys[..] {
            [] => error.path.starts_with(repaired) || repaired.starts_with(&error.path),
            keys => repaired.first().is_some_and(|key| keys.contains(key)),
        };
        if let Some(path) = repaired.iter().find(|path| caused_by_repair(path)) {
            if restore(&mut value, path, example) {
                continue;
            }
            return (None, errors);
        }
        let path = error.path.clone();
        errors.push(error);
        if !repair(&mut value, schema, &path, example) {
            return (None, errors);
        }
        repaired.push(path);
    }
}

/// All errors in a value that its schema finds.
pub(crate) fn errors(value: &Value, schema: Schema<'_>) -> Vec<DecodeError> {
    check(value, schema).errors
}

fn check(value: &Value, schema: Schema<'_>) -> Checker {
    let mut checker = Checker::default();
    checker.value(value, schema);
    checker
}

#[derive(Default)]
struct Checker {
    /// The path to the current value.
    path: Vec<String>,
    errors: Vec<DecodeError>,
    /// The paths that must be repaired before the rest can be decoded.
    broken: Vec<Vec<String>>,
    /// The paths of the keys that were probably meant by misspelt ones.
    intended: Vec<Vec<String>>,
}

impl Checker {
    fn report(&mut self, kind: ErrorKind) {
        self.errors.push(DecodeError::new(self.path.clone(), kind));
        self.broken.push(self.path.clone());
    }

    fn below(&mut self, step: &str, check: impl FnOnce(&mut Checker)) {
        self.path.push(step.to_owned());
        check(self);
        self.path.pop();
    }

    fn value(&mut self, value: &Value, schema: Schema<'_>) {
        let Some(types) = schema.types() else { return };
        let given = type_of(value);
        let fits = types.contains(&given) || given == "integer" && types.contains(&"number");
        match (value, types.as_slice()) {
            (_, [one]) if !fits => {
                self.report(ErrorKind::wrong_type(unexpected(value), with_article(type_name(one))));
            }
            // If several types are allowed, the decoder has the best description of them.
            _ if !fits => {}
            (Value::Integer(number), ["integer"]) if !schema.holds(*number) => {
                self.report(ErrorKind::wrong_value(unexpected(value), with_article(type_name("integer"))));
            }
            (Value::String(word), ["string"]) => {
                if let Some(known) = schema.words().filter(|known| !known.contains(&word.as_str())) {
                    self.report(ErrorKind::UnknownWord { word: word.clone(), known: owned(&known) });
                }
            }
            (Value::Array(items), _) => {
                for (index, item) in items.iter().enumerate() {
                    if let Some(own) = schema.item(index) {
                        self.below(&index.to_string(), |checker| checker.value(item, own));
                    }
                }
            }
            (Value::Table(table), _) => self.table(table, schema),
            _ => {}
        }
    }

    fn table(&mut self, table: &Table, schema: Schema<'_>) {
        if let Some((tag, known)) = schema.tag() {
            let kind = match table.get(tag) {
                None => Some(ErrorKind::MissingKey(tag.to_owned())),
                Some(Value::String(word)) if known.contains(&word.as_str()) => None,
                Some(Value::String(word)) => {
                    Some(ErrorKind::UnknownWord { word: word.clone(), known: owned(&known) })
                }
                Some(other) => {
                    Some(ErrorKind::wrong_type(unexpected(other), with_article(type_name("string"))))
                }
            };
            if let Some(kind) = kind {
                // The valid keys depend on the tag.
                self.below(tag, |checker| checker.errors.push(DecodeError::new(checker.path.clone(), kind)));
                self.broken.push(self.path.clone());
                return;
            }
        }
        let Some(shape) = schema.shape(table) else { return };
        let (known, mut intended) = (|| shape.keys.iter().map(|(key, _)| *key), Vec::new());
        for (key, value) in table {
            let own = shape.keys.iter().find(|(known, _)| known == key);
            let other = || shape.keys.iter().find(|(_, own)| aliases(own.json()).any(|alias| alias == key));
            let aliased = if own.is_none() { other() } else { None };
            match (own.or(aliased), shape.additional) {
                (Some((name, _)), _) if aliased.is_some() && table.contains_key(*name) => {
                    let names = vec![(*name).to_owned(), key.clone()];
                    let path = [&self.path[..], &[(*name).to_owned()]].concat();
                    self.errors.push(DecodeError::new(path, ErrorKind::TwoNames(names)));
                    self.broken.push([&self.path[..], std::slice::from_ref(key)].concat());
                }
                (Some((_, own)), _) => self.below(key, |checker| checker.value(value, *own)),
                (None, AdditionalKeys::Any) => {}
                (None, AdditionalKeys::Of(values)) => self.below(key, |checker| checker.value(value, values)),
                (None, AdditionalKeys::None) => {
                    let known_keys = known().map(str::to_owned).collect();
                    let kind = ErrorKind::UnknownKey { name: key.clone(), known: known_keys };
                    self.below(key, |checker| checker.report(kind));
                    intended.extend(nearest(key, known()));
                }
            }
        }
        for key in shape.missing(table) {
            self.below(key, |checker| {
                // A misspelt key counts as the intended one.
                if intended.contains(&key) {
                    checker.broken.push(checker.path.clone());
                } else {
                    checker.report(ErrorKind::MissingKey(key.to_owned()));
                }
            });
        }
        for key in intended {
            self.below(key, |checker| checker.intended.push(checker.path.clone()));
        }
    }
}

/// Removes a wrong value, or replaces it by a valid one where a value is required.
fn repair(value: &mut Value, schema: Schema<'_>, path: &[String], example: &Table) -> bool {
    let Some((step, rest)) = path.split_first() else { return false };
    let own = schema.step(step, value.as_table());
    let nothing = Table::new();
    match value {
        Value::Table(table) => {
            let required = schema.shape(table).is_some_and(|shape| shape.required.contains(&step.as_str()));
            if let (Some(child), Some(own), false) = (table.get_mut(step), own, rest.is_empty())
                && repair(child, own, rest, &nothing)
            {
                return true;
            }
            if !required {
                table.remove(step);
                return true;
            }
            let instead = example.get(step).cloned().or_else(|| own?.placeholder());
            instead.map(|instead| table.insert(step.clone(), instead)).is_some()
        }
        Value::Array(items) => {
            let item = step.parse::<usize>().ok().and_then(|index| items.get_mut(index));
            let (Some(item), Some(own)) = (item, own) else { return false };
            if !rest.is_empty() && repair(item, own, rest, &nothing) {
                return true;
            }
            own.placeholder().map(|instead| *item = instead).is_some()
        }
        _ => false,
    }
}

/// Sets a removed option to its value in the example, because the other options do not work without it.
fn restore(value: &mut Value, path: &[String], example: &Table) -> bool {
    let (Value::Table(table), Some(key)) = (value, path.first()) else { return false };
    let Some(instead) = example.get(key).filter(|instead| table.get(key) != Some(*instead)) else {
        return false;
    };
    table.insert(key.clone(), instead.clone());
    true
}

/// The type of a value in JSON schema.
fn type_of(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "string",
        Value::Integer(_) => "integer",
        Value::Float(_) => "number",
        Value::Boolean(_) => "boolean",
        Value::Datetime(_) => "date",
        Value::Array(_) => "array",
        Value::Table(_) => "object",
    }
}
