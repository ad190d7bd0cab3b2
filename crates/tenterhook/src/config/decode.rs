//! Decodes TOML values into types, with errors that have a path and a kind.

use std::cell::RefCell;

use serde::de::value::{MapAccessDeserializer, StringDeserializer};
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, Expected, MapAccess, SeqAccess, Unexpected,
    Visitor,
};
use serde::forward_to_deserialize_any;
use tenterhook_core::{BoxError, OptionError};
use toml::Value;

/// A value that does not fit its type, with its path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {kind}", path.join("."))]
pub struct DecodeError {
    /// The path to the key or element that is wrong or missing.
    pub(crate) path: Vec<String>,
    pub(crate) kind: ErrorKind,
    /// All keys involved, where a combination of options is rejected.
    pub(crate) keys: Vec<String>,
}

impl DecodeError {
    pub(crate) fn new(path: Vec<String>, kind: ErrorKind) -> DecodeError {
        DecodeError { path, kind, keys: Vec::new() }
    }

    /// Options that are rejected by their constructor. The path is the first key of the error that is set.
    pub(crate) fn rejected(error: BoxError, options: &Value) -> DecodeError {
        let OptionError { keys, what, fix, .. } = match error.downcast::<OptionError>() {
            Ok(error) => *error,
            Err(other) => OptionError::of_all(other.to_string()),
        };
        let path = keys.iter().find(|key| options.get(key.as_str()).is_some()).cloned();
        DecodeError { path: path.into_iter().collect(), kind: ErrorKind::Rejected { what, fix }, keys }
    }
}

/// The kind of a [`DecodeError`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ErrorKind {
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
    /// Rejected by a `Deserialize` implementation or by the constructor of the options.
    #[error("{what}")]
    Rejected { what: String, fix: Option<String> },
}

impl ErrorKind {
    pub(crate) fn wrong_type(given: Unexpected<'_>, expected: impl Into<String>) -> ErrorKind {
        let kind = match given {
            Unexpected::Str(_) => "text ",
            Unexpected::Signed(_) | Unexpected::Unsigned(_) => "whole number ",
            Unexpected::Float(_) => "number ",
            _ => "",
        };
        ErrorKind::WrongType { given: format!("{kind}{}", shown(given)), expected: expected.into() }
    }

    pub(crate) fn wrong_value(given: Unexpected<'_>, expected: impl Into<String>) -> ErrorKind {
        ErrorKind::WrongValue { given: shown(given), expected: expected.into() }
    }
}

/// A value as messages show it.
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

/// A value as serde describes it.
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

impl de::Error for ErrorKind {
    fn custom<T: std::fmt::Display>(message: T) -> ErrorKind {
        ErrorKind::Rejected { what: message.to_string(), fix: None }
    }

    fn invalid_type(given: Unexpected<'_>, expected: &dyn Expected) -> ErrorKind {
        ErrorKind::wrong_type(given, expected.to_string())
    }

    fn invalid_value(given: Unexpected<'_>, expected: &dyn Expected) -> ErrorKind {
        ErrorKind::wrong_value(given, expected.to_string())
    }

    fn unknown_variant(word: &str, known: &'static [&'static str]) -> ErrorKind {
        ErrorKind::UnknownWord { word: word.to_owned(), known: owned(known) }
    }

    fn unknown_field(name: &str, known: &'static [&'static str]) -> ErrorKind {
        ErrorKind::UnknownKey { name: name.to_owned(), known: owned(known) }
    }

    fn missing_field(name: &'static str) -> ErrorKind {
        ErrorKind::MissingKey(name.to_owned())
    }
}

/// The words as owned strings.
pub(super) fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Decodes a value. A key that the type would silently ignore is an error.
pub(crate) fn read<T: DeserializeOwned>(value: Value) -> Result<T, DecodeError> {
    let tracker = PathTracker::default();
    let read = T::deserialize(Input { value, tracker: &tracker }).map_err(|kind| tracker.error(kind))?;
    tracker.ignored().map_or(Ok(read), Err)
}

/// The path to the value that is being decoded. [`Input`] tracks it itself, because a wrapping deserializer
/// would be compiled again for each of the dozens of types.
#[derive(Default)]
struct PathTracker {
    path: RefCell<Vec<String>>,
    /// The path of the first error.
    failed: RefCell<Option<Vec<String>>>,
    /// The first key that the type ignored.
    ignored: RefCell<Option<Vec<String>>>,
}

impl PathTracker {
    /// Decodes the value of a key or an element of a list.
    fn step<T>(&self, step: String, read: impl FnOnce() -> Result<T, ErrorKind>) -> Result<T, ErrorKind> {
        self.path.borrow_mut().push(step);
        let read = read();
        if read.is_err() {
            self.failed.borrow_mut().get_or_insert_with(|| self.path.borrow().clone());
        }
        self.path.borrow_mut().pop();
        read
    }

    fn error(&self, kind: ErrorKind) -> DecodeError {
        let mut path = self.failed.take().unwrap_or_default();
        if let ErrorKind::MissingKey(name) | ErrorKind::UnknownKey { name, .. } = &kind
            && path.last() != Some(name)
        {
            path.push(name.clone());
        }
        DecodeError::new(path, kind)
    }

    fn ignored(&self) -> Option<DecodeError> {
        let path = self.ignored.take()?;
        let name = path.last().cloned().unwrap_or_default();
        Some(DecodeError::new(path, ErrorKind::UnknownKey { name, known: Vec::new() }))
    }
}

/// The deserializer of a value.
struct Input<'a> {
    value: Value,
    tracker: &'a PathTracker,
}

impl<'de> Deserializer<'de> for Input<'_> {
    type Error = ErrorKind;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ErrorKind> {
        match self.value {
            Value::String(text) => visitor.visit_string(text),
            Value::Integer(number) => visitor.visit_i64(number),
            Value::Float(number) => visitor.visit_f64(number),
            Value::Boolean(switch) => visitor.visit_bool(switch),
            Value::Datetime(_) => Err(de::Error::invalid_type(unexpected(&self.value), &visitor)),
            Value::Array(items) => {
                let given = items.len();
                let mut elements = Elements { items: items.into_iter(), read: 0, tracker: self.tracker };
                let list = visitor.visit_seq(&mut elements)?;
                let read = elements.read;
                if read < given { Err(too_long(given, read)) } else { Ok(list) }
            }
            Value::Table(table) => visitor.visit_map(Entries::new(table, self.tracker)),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ErrorKind> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, ErrorKind> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ErrorKind> {
        match self.value {
            Value::String(word) => visitor.visit_enum(StringDeserializer::new(word)),
            Value::Table(table) => {
                visitor.visit_enum(MapAccessDeserializer::new(Entries::new(table, self.tracker)))
            }
            other => Err(ErrorKind::wrong_type(unexpected(&other), "a text")),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ErrorKind> {
        self.tracker.ignored.borrow_mut().get_or_insert_with(|| self.tracker.path.borrow().clone());
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct identifier
    }
}

fn too_long(given: usize, read: usize) -> ErrorKind {
    let elements = if read == 1 { "1 element" } else { &*format!("{read} elements") };
    de::Error::invalid_length(given, &&*format!("{elements} in sequence"))
}

/// The elements of a list.
struct Elements<'a> {
    items: std::vec::IntoIter<Value>,
    read: usize,
    tracker: &'a PathTracker,
}

impl<'de> SeqAccess<'de> for Elements<'_> {
    type Error = ErrorKind;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, ErrorKind> {
        let Some(value) = self.items.next() else { return Ok(None) };
        let (index, tracker) = (self.read, self.tracker);
        self.read += 1;
        tracker.step(index.to_string(), || seed.deserialize(Input { value, tracker })).map(Some)
    }
}

/// The entries of a table.
struct Entries<'a> {
    rest: toml::map::IntoIter<String, Value>,
    /// The entry whose key has been read.
    next: Option<(String, Value)>,
    tracker: &'a PathTracker,
}

impl Entries<'_> {
    fn new(table: toml::Table, tracker: &PathTracker) -> Entries<'_> {
        Entries { rest: table.into_iter(), next: None, tracker }
    }
}

impl<'de> MapAccess<'de> for Entries<'_> {
    type Error = ErrorKind;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, ErrorKind> {
        let Some((key, value)) = self.rest.next() else { return Ok(None) };
        let read =
            self.tracker.step(key.clone(), || seed.deserialize(StringDeserializer::new(key.clone())))?;
        self.next = Some((key, value));
        Ok(Some(read))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, ErrorKind> {
        let Some((key, value)) = self.next.take() else {
            return Err(de::Error::custom("a value is read before its key"));
        };
        let tracker = self.tracker;
        tracker.step(key, || seed.deserialize(Input { value, tracker }))
    }
}
