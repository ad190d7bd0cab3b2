//! From a plain value to a type, with the path and the kind of what does not fit.

use serde::de::value::{MapAccessDeserializer, MapDeserializer, SeqDeserializer};
use serde::de::{
    self, DeserializeOwned, Deserializer, Expected, IntoDeserializer, Unexpected, Visitor, value,
};
use serde::forward_to_deserialize_any;
use serde_path_to_error::Segment;
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
    let (shape, mut ignored) = (value.clone(), Vec::new());
    let mut note = |path: serde_ignored::Path<'_>| ignored.push(steps_of(&path));
    let outcome = serde_path_to_error::deserialize(serde_ignored::Deserializer::new(Input(value), &mut note));
    let read = outcome.map_err(|error| {
        let mut path = along(error.path().iter(), &shape);
        let fault = error.into_inner();
        if let Fault::MissingKey(name) | Fault::UnknownKey { name, .. } = &fault
            && path.last() != Some(name)
        {
            path.push(name.clone());
        }
        Misfit::new(path, fault)
    })?;
    match ignored.into_iter().next() {
        Some(path) => {
            let name = path.last().cloned().unwrap_or_default();
            Err(Misfit::new(path, Fault::UnknownKey { name, known: Vec::new() }))
        }
        None => Ok(read),
    }
}

/// A value to read from, whose errors are [faults](Fault).
struct Input(Value);

impl IntoDeserializer<'_, Fault> for Input {
    type Deserializer = Input;

    fn into_deserializer(self) -> Input {
        self
    }
}

impl<'de> Deserializer<'de> for Input {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.0 {
            Value::String(text) => visitor.visit_string(text),
            Value::Integer(number) => visitor.visit_i64(number),
            Value::Float(number) => visitor.visit_f64(number),
            Value::Boolean(switch) => visitor.visit_bool(switch),
            Value::Datetime(_) => Err(de::Error::invalid_type(unexpected(&self.0), &visitor)),
            Value::Array(items) => {
                let mut items = SeqDeserializer::new(items.into_iter().map(Input));
                let read = visitor.visit_seq(&mut items)?;
                items.end()?;
                Ok(read)
            }
            Value::Table(table) => {
                let mut entries =
                    MapDeserializer::new(table.into_iter().map(|(key, value)| (key, Input(value))));
                let read = visitor.visit_map(&mut entries)?;
                entries.end()?;
                Ok(read)
            }
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
        match self.0 {
            Value::String(word) => visitor.visit_enum(value::StringDeserializer::new(word)),
            Value::Table(table) => {
                let entries = table.into_iter().map(|(key, value)| (key, Input(value)));
                visitor.visit_enum(MapAccessDeserializer::new(MapDeserializer::new(entries)))
            }
            other => Err(Fault::wrong_type(unexpected(&other), "a text")),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

/// The steps of a path that exist in the value: the variant of an enum may be a key of the file or not.
fn along<'a>(segments: impl Iterator<Item = &'a Segment>, mut shape: &Value) -> Vec<String> {
    let mut path = Vec::new();
    for segment in segments {
        let (step, child) = match segment {
            Segment::Seq { index } => (index.to_string(), shape.get(*index)),
            Segment::Map { key } | Segment::Enum { variant: key } => (key.clone(), shape.get(key.as_str())),
            Segment::Unknown => break,
        };
        let Some(child) = child else { continue };
        shape = child;
        path.push(step);
    }
    path
}

fn steps_of(path: &serde_ignored::Path<'_>) -> Vec<String> {
    use serde_ignored::Path;
    let (parent, step) = match path {
        Path::Root => return Vec::new(),
        Path::Seq { parent, index } => (parent, Some(index.to_string())),
        Path::Map { parent, key } => (parent, Some(key.clone())),
        Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => {
            (parent, None)
        }
    };
    let mut steps = steps_of(parent);
    steps.extend(step);
    steps
}
