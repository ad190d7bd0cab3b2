//! From a plain value to a type, with the path and the kind of what does not fit.

use std::cell::RefCell;

use serde::de::value::{MapAccessDeserializer, StringDeserializer};
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, Expected, MapAccess, SeqAccess, Unexpected,
    Visitor,
};
use serde::forward_to_deserialize_any;
use tenterhook_core::{BoxError, OptionError};
use toml::Value;

/// A value that does not fit its type, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {fault}", path.join("."))]
pub struct Misfit {
    /// The steps to the key or element that is wrong or missing.
    pub(crate) path: Vec<String>,
    pub(crate) fault: Fault,
    /// All keys that a refusal of the options is about.
    pub(crate) also: Vec<String>,
}

impl Misfit {
    pub(crate) fn new(path: Vec<String>, fault: Fault) -> Misfit {
        Misfit { path, fault, also: Vec::new() }
    }

    /// What says that these options cannot work. It is about the first option that it names and that is set.
    pub(crate) fn refused(error: BoxError, options: &Value) -> Misfit {
        let OptionError { keys, what, fix, .. } = match error.downcast::<OptionError>() {
            Ok(error) => *error,
            Err(other) => OptionError::of_all(other.to_string()),
        };
        let path = keys.iter().find(|key| options.get(key.as_str()).is_some()).cloned();
        Misfit { path: path.into_iter().collect(), fault: Fault::Refused { what, fix }, also: keys }
    }
}

/// What is wrong with a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    #[error("unknown key `{name}`")]
    UnknownKey { name: String, known: Vec<String> },
    #[error("missing key `{0}`")]
    MissingKey(String),
    #[error("`{}` are names of one option", .0.join("` and `"))]
    TwoNames(Vec<String>),
    #[error("unknown value `{word}`")]
    UnknownWord { word: String, known: Vec<String> },
    #[error("invalid type: {given}, expected {expected}")]
    WrongType { given: String, expected: String },
    #[error("invalid value: {given}, expected {expected}")]
    WrongValue { given: String, expected: String },
    /// In the words of what reads or takes it.
    #[error("{what}")]
    Refused { what: String, fix: Option<String> },
}

impl Fault {
    pub(crate) fn wrong_type(given: Unexpected<'_>, expected: impl Into<String>) -> Fault {
        let kind = match given {
            Unexpected::Str(_) => "text ",
            Unexpected::Signed(_) | Unexpected::Unsigned(_) => "whole number ",
            Unexpected::Float(_) => "number ",
            _ => "",
        };
        Fault::WrongType { given: format!("{kind}{}", shown(given)), expected: expected.into() }
    }

    pub(crate) fn wrong_value(given: Unexpected<'_>, expected: impl Into<String>) -> Fault {
        Fault::WrongValue { given: shown(given), expected: expected.into() }
    }
}

/// A value in a message.
fn shown(value: Unexpected<'_>) -> String {
    match value {
        Unexpected::Str(text) => format!("{text:?}"),
        Unexpected::Signed(number) => format!("`{number}`"),
        Unexpected::Unsigned(number) => format!("`{number}`"),
        Unexpected::Float(number) => format!("`{}`", Value::Float(number)),
        Unexpected::Bool(switch) => format!("`{switch}`"),
        Unexpected::Seq => "a list".to_owned(),
        Unexpected::Map => "a table".to_owned(),
        other => other.to_string(),
    }
}

/// What serde calls a value.
pub(crate) fn unexpected(value: &Value) -> Unexpected<'_> {
    match value {
        Value::String(text) => Unexpected::Str(text),
        Value::Integer(number) => Unexpected::Signed(*number),
        Value::Float(number) => Unexpected::Float(*number),
        Value::Boolean(switch) => Unexpected::Bool(*switch),
        Value::Datetime(_) => Unexpected::Other("a date"),
        Value::Array(_) => Unexpected::Seq,
        Value::Table(_) => Unexpected::Map,
    }
}

impl de::Error for Fault {
    fn custom<T: std::fmt::Display>(message: T) -> Fault {
        Fault::Refused { what: message.to_string(), fix: None }
    }

    fn invalid_type(given: Unexpected<'_>, expected: &dyn Expected) -> Fault {
        Fault::wrong_type(given, expected.to_string())
    }

    fn invalid_value(given: Unexpected<'_>, expected: &dyn Expected) -> Fault {
        Fault::wrong_value(given, expected.to_string())
    }

    fn unknown_variant(word: &str, known: &'static [&'static str]) -> Fault {
        Fault::UnknownWord { word: word.to_owned(), known: owned(known) }
    }

    fn unknown_field(name: &str, known: &'static [&'static str]) -> Fault {
        Fault::UnknownKey { name: name.to_owned(), known: owned(known) }
    }

    fn missing_field(name: &'static str) -> Fault {
        Fault::MissingKey(name.to_owned())
    }
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Reads a value. A key that a type would silently ignore does not fit either.
pub(crate) fn read<T: DeserializeOwned>(value: Value) -> Result<T, Misfit> {
    let trail = Trail::default();
    let read = T::deserialize(Input { value, trail: &trail }).map_err(|fault| trail.misfit(fault))?;
    trail.ignored().map_or(Ok(read), Err)
}

/// The path to the value that is being read. [`Input`] keeps it itself, because a wrapper around a deserializer is compiled once
/// for every type that is read, and there are dozens of types.
#[derive(Default)]
struct Trail {
    path: RefCell<Vec<String>>,
    /// Where the first error was found.
    failed: RefCell<Option<Vec<String>>>,
    /// The first key that the type ignored.
    ignored: RefCell<Option<Vec<String>>>,
}

impl Trail {
    /// Reads the value of a key or the element of a list.
    fn step<T>(&self, step: String, read: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
        self.path.borrow_mut().push(step);
        let read = read();
        if read.is_err() {
            self.failed.borrow_mut().get_or_insert_with(|| self.path.borrow().clone());
        }
        self.path.borrow_mut().pop();
        read
    }

    fn misfit(&self, fault: Fault) -> Misfit {
        let mut path = self.failed.take().unwrap_or_default();
        if let Fault::MissingKey(name) | Fault::UnknownKey { name, .. } = &fault
            && path.last() != Some(name)
        {
            path.push(name.clone());
        }
        Misfit::new(path, fault)
    }

    fn ignored(&self) -> Option<Misfit> {
        let path = self.ignored.take()?;
        let name = path.last().cloned().unwrap_or_default();
        Some(Misfit::new(path, Fault::UnknownKey { name, known: Vec::new() }))
    }
}

/// A value to read from, whose errors are [faults](Fault).
struct Input<'a> {
    value: Value,
    trail: &'a Trail,
}

impl<'de> Deserializer<'de> for Input<'_> {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.value {
            Value::String(text) => visitor.visit_string(text),
            Value::Integer(number) => visitor.visit_i64(number),
            Value::Float(number) => visitor.visit_f64(number),
            Value::Boolean(switch) => visitor.visit_bool(switch),
            Value::Datetime(_) => Err(de::Error::invalid_type(unexpected(&self.value), &visitor)),
            Value::Array(items) => {
                let given = items.len();
                let mut elements = Elements { items: items.into_iter(), read: 0, trail: self.trail };
                let list = visitor.visit_seq(&mut elements)?;
                let read = elements.read;
                if read < given { Err(too_long(given, read)) } else { Ok(list) }
            }
            Value::Table(table) => visitor.visit_map(Entries::new(table, self.trail)),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match self.value {
            Value::String(word) => visitor.visit_enum(StringDeserializer::new(word)),
            Value::Table(table) => {
                visitor.visit_enum(MapAccessDeserializer::new(Entries::new(table, self.trail)))
            }
            other => Err(Fault::wrong_type(unexpected(&other), "a text")),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.trail.ignored.borrow_mut().get_or_insert_with(|| self.trail.path.borrow().clone());
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct identifier
    }
}

fn too_long(given: usize, read: usize) -> Fault {
    let elements = if read == 1 { "1 element" } else { &*format!("{read} elements") };
    de::Error::invalid_length(given, &&*format!("{elements} in sequence"))
}

/// The elements of a list.
struct Elements<'a> {
    items: std::vec::IntoIter<Value>,
    read: usize,
    trail: &'a Trail,
}

impl<'de> SeqAccess<'de> for Elements<'_> {
    type Error = Fault;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Fault> {
        let Some(value) = self.items.next() else { return Ok(None) };
        let (index, trail) = (self.read, self.trail);
        self.read += 1;
        trail.step(index.to_string(), || seed.deserialize(Input { value, trail })).map(Some)
    }
}

/// The entries of a table.
struct Entries<'a> {
    rest: toml::map::IntoIter<String, Value>,
    /// The entry whose key has been read.
    next: Option<(String, Value)>,
    trail: &'a Trail,
}

impl Entries<'_> {
    fn new(table: toml::Table, trail: &Trail) -> Entries<'_> {
        Entries { rest: table.into_iter(), next: None, trail }
    }
}

impl<'de> MapAccess<'de> for Entries<'_> {
    type Error = Fault;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Fault> {
        let Some((key, value)) = self.rest.next() else { return Ok(None) };
        let read = self.trail.step(key.clone(), || seed.deserialize(StringDeserializer::new(key.clone())))?;
        self.next = Some((key, value));
        Ok(Some(read))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Fault> {
        let Some((key, value)) = self.next.take() else {
            return Err(de::Error::custom("a value is read before its key"));
        };
        let trail = self.trail;
        trail.step(key, || seed.deserialize(Input { value, trail }))
    }
}
