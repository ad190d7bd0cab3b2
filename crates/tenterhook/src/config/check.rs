//! Holds a value against the schema of its type: everything that does not fit, in one pass.
//!
//! The schema knows keys, types and words. What only the type itself knows, such as how a time is written, is found
//! when the value is read, after everything else has been [mended](mend).

use tenterhook_core::plan::nearest;
use toml::{Table, Value};

use super::read::{Fault, Misfit, unexpected};
use super::schema::{Schema, aliases};

/// Reads a value and finds all that does not fit. The first part of the result is what is left without it, where
/// that reads. `example`: options that work, which take the places of wrong ones.
pub(crate) fn read_all<T>(
    mut value: Value,
    schema: Schema<'_>,
    example: &Table,
    read: &dyn Fn(Value) -> Result<T, Misfit>,
) -> (Option<T>, Vec<Misfit>) {
    let Checked { misfits: mut found, broken: mut mended, meant, .. } = check(&value, schema);
    if !mended.iter().all(|path| mend(&mut value, schema, path, example)) {
        return (None, found);
    }
    mended.extend(meant);
    loop {
        let misfit = match read(value.clone()) {
            Ok(read) => return (Some(read), found),
            Err(misfit) => misfit,
        };
        // What is wrong with a place that was mended is not the user's mistake.
        let is_ours = |mended: &Vec<String>| match &misfit.also[..] {
            [] => misfit.path.starts_with(mended) || mended.starts_with(&misfit.path),
            keys => mended.first().is_some_and(|key| keys.contains(key)),
        };
        if let Some(path) = mended.iter().find(|path| is_ours(path)) {
            if restore(&mut value, path, example) {
                continue;
            }
            return (None, found);
        }
        let path = misfit.path.clone();
        found.push(misfit);
        if !mend(&mut value, schema, &path, example) {
            return (None, found);
        }
        mended.push(path);
    }
}

/// Everything in a value that its schema does not allow.
pub(crate) fn misfits(value: &Value, schema: Schema<'_>) -> Vec<Misfit> {
    check(value, schema).misfits
}

fn check(value: &Value, schema: Schema<'_>) -> Checked {
    let mut checked = Checked::default();
    checked.value(value, schema);
    checked
}

#[derive(Default)]
struct Checked {
    /// The steps to the value that is looked at.
    path: Vec<String>,
    misfits: Vec<Misfit>,
    /// The paths that must be mended before the rest reads.
    broken: Vec<Vec<String>>,
    /// The keys that misspelt ones were meant to be.
    meant: Vec<Vec<String>>,
}

impl Checked {
    fn note(&mut self, fault: Fault) {
        self.misfits.push(Misfit::new(self.path.clone(), fault));
        self.broken.push(self.path.clone());
    }

    fn below(&mut self, step: &str, look: impl FnOnce(&mut Checked)) {
        self.path.push(step.to_owned());
        look(self);
        self.path.pop();
    }

    fn value(&mut self, value: &Value, schema: Schema<'_>) {
        let Some(types) = schema.types() else { return };
        let given = type_of(value);
        let fits = types.contains(&given) || given == "integer" && types.contains(&"number");
        match (value, types.as_slice()) {
            (_, [one]) if !fits => self.note(Fault::wrong_type(unexpected(value), in_words(one))),
            // Where one of several types can stand, the type that reads it says best what it expects.
            _ if !fits => {}
            (Value::Integer(number), ["integer"]) if !schema.holds(*number) => {
                self.note(Fault::wrong_value(unexpected(value), in_words("integer")));
            }
            (Value::String(word), ["string"]) => {
                if let Some(known) = schema.words().filter(|known| !known.contains(&word.as_str())) {
                    self.note(Fault::UnknownWord { word: word.clone(), known: owned(&known) });
                }
            }
            (Value::Array(items), _) => {
                for (index, item) in items.iter().enumerate() {
                    if let Some(own) = schema.item(index) {
                        self.below(&index.to_string(), |checked| checked.value(item, own));
                    }
                }
            }
            (Value::Table(table), _) => self.table(table, schema),
            _ => {}
        }
    }

    fn table(&mut self, table: &Table, schema: Schema<'_>) {
        if let Some((tag, known)) = schema.tag() {
            let given = table.get(tag);
            let fault = match given {
                None => Some(Fault::MissingKey(tag.to_owned())),
                Some(Value::String(word)) if known.contains(&word.as_str()) => None,
                Some(Value::String(word)) => {
                    Some(Fault::UnknownWord { word: word.clone(), known: owned(&known) })
                }
                Some(other) => Some(Fault::wrong_type(unexpected(other), in_words("string"))),
            };
            if let Some(fault) = fault {
                // Which keys are right depends on the tag, so without it nothing more can be said of the table.
                self.below(tag, |checked| checked.misfits.push(Misfit::new(checked.path.clone(), fault)));
                self.broken.push(self.path.clone());
                return;
            }
        }
        let Some(shape) = schema.shape(table) else { return };
        let (known, mut meant) = (|| shape.keys.iter().map(|(key, _)| *key), Vec::new());
        for (key, value) in table {
            let own = shape.keys.iter().find(|(known, _)| known == key);
            let other = || shape.keys.iter().find(|(_, own)| aliases(own.json()).any(|alias| alias == key));
            let aliased = if own.is_none() { other() } else { None };
            match (own.or(aliased), shape.others) {
                (Some((name, _)), _) if aliased.is_some() && table.contains_key(*name) => {
                    let names = vec![(*name).to_owned(), key.clone()];
                    let path = [&self.path[..], &[(*name).to_owned()]].concat();
                    self.misfits.push(Misfit::new(path, Fault::TwoNames(names)));
                    self.broken.push([&self.path[..], std::slice::from_ref(key)].concat());
                }
                (Some((_, own)), _) => self.below(key, |checked| checked.value(value, *own)),
                (None, Others::Any) => {}
                (None, Others::Of(values)) => self.below(key, |checked| checked.value(value, values)),
                (None, Others::None) => {
                    let fault =
                        Fault::UnknownKey { name: key.clone(), known: known().map(str::to_owned).collect() };
                    self.below(key, |checked| checked.note(fault));
                    meant.extend(nearest(key, known()));
                }
            }
        }
        for key in shape.missing(table) {
            self.below(key, |checked| {
                // A misspelt key stands for the one that was meant.
                if meant.contains(&key) {
                    checked.broken.push(checked.path.clone());
                } else {
                    checked.note(Fault::MissingKey(key.to_owned()));
                }
            });
        }
        for key in meant {
            self.below(key, |checked| checked.meant.push(checked.path.clone()));
        }
    }
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// The keys that a table has by its schema.
pub(crate) struct Shape<'a> {
    pub(crate) keys: Vec<(&'a str, Schema<'a>)>,
    pub(crate) required: Vec<&'a str>,
    pub(crate) others: Others<'a>,
}

/// Which keys a table takes besides those that its schema names.
#[derive(Clone, Copy)]
pub(crate) enum Others<'a> {
    None,
    Any,
    Of(Schema<'a>),
}

impl<'a> Shape<'a> {
    /// The required keys that a table lacks under all of their names.
    fn missing(&self, table: &Table) -> Vec<&'a str> {
        let has = |key: &str| {
            let own = self.keys.iter().find(|(known, _)| *known == key);
            let mut others = own.into_iter().flat_map(|(_, own)| aliases(own.json()));
            table.contains_key(key) || others.any(|alias| table.contains_key(alias))
        };
        self.required.iter().copied().filter(|key| !has(key)).collect()
    }
}

/// Takes a wrong value out, or puts something that fits in its place where something must stand.
fn mend(value: &mut Value, schema: Schema<'_>, path: &[String], example: &Table) -> bool {
    let Some((step, rest)) = path.split_first() else { return false };
    let own = schema.step(step, value.as_table());
    let nothing = Table::new();
    match value {
        Value::Table(table) => {
            let required = schema.shape(table).is_some_and(|shape| shape.required.contains(&step.as_str()));
            if let (Some(child), Some(own), false) = (table.get_mut(step), own, rest.is_empty())
                && mend(child, own, rest, &nothing)
            {
                return true;
            }
            if !required {
                table.remove(step);
                return true;
            }
            let instead = example.get(step).cloned().or_else(|| own?.stand_in());
            instead.map(|instead| table.insert(step.clone(), instead)).is_some()
        }
        Value::Array(items) => {
            let item = step.parse::<usize>().ok().and_then(|index| items.get_mut(index));
            let (Some(item), Some(own)) = (item, own) else { return false };
            if !rest.is_empty() && mend(item, own, rest, &nothing) {
                return true;
            }
            let instead = own.stand_in();
            instead.map(|instead| *item = instead).is_some()
        }
        _ => false,
    }
}

/// Sets an option that was taken out and without which the others do not work as the example does.
fn restore(value: &mut Value, path: &[String], example: &Table) -> bool {
    let (Value::Table(table), Some(key)) = (value, path.first()) else { return false };
    let Some(instead) = example.get(key).filter(|instead| table.get(key) != Some(*instead)) else {
        return false;
    };
    table.insert(key.clone(), instead.clone());
    true
}

/// The type of a value, as schemas call it.
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

/// What people call a type.
fn in_words(kind: &str) -> &'static str {
    match kind {
        "integer" => "a whole number",
        "number" => "a number",
        "boolean" => "true or false",
        "array" => "a list",
        "object" => "a table",
        _ => "a text",
    }
}
