//! Types of settings that are written with a unit or in several forms.

use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A number of batches, written as a whole number, or a fraction of all batches, written with a decimal
/// point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BatchLimit {
    /// A number of batches.
    Count(u64),
    /// A fraction, from 0 to 1.
    Fraction(f64),
}

impl BatchLimit {
    /// All batches.
    pub const ALL: BatchLimit = BatchLimit::Fraction(1.0);

    /// Whether it allows no batch.
    #[must_use]
    pub fn is_zero(self) -> bool {
        match self {
            BatchLimit::Count(n) => n == 0,
            BatchLimit::Fraction(f) => f <= 0.0,
        }
    }
}

impl Serialize for BatchLimit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            BatchLimit::Count(n) => serializer.serialize_u64(*n),
            BatchLimit::Fraction(f) => serializer.serialize_f64(*f),
        }
    }
}

impl<'de> Deserialize<'de> for BatchLimit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<BatchLimit, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = BatchLimit;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a count of 0 or more, or a fraction from 0.0 to 1.0")
            }
            fn visit_u64<E: Error>(self, n: u64) -> Result<BatchLimit, E> {
                Ok(BatchLimit::Count(n))
            }
            fn visit_i64<E: Error>(self, n: i64) -> Result<BatchLimit, E> {
                u64::try_from(n)
                    .map(BatchLimit::Count)
                    .map_err(|_| E::invalid_value(Unexpected::Signed(n), &self))
            }
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            fn visit_f64<E: Error>(self, f: f64) -> Result<BatchLimit, E> {
                match f {
                    f if (0.0..=1.0).contains(&f) => Ok(BatchLimit::Fraction(f)),
                    // As in Lightning, 2.0 is the count 2.
                    f if f > 1.0 && f.fract() == 0.0 && f < 1e15 => Ok(BatchLimit::Count(f as u64)),
                    f => Err(E::invalid_value(Unexpected::Float(f), &self)),
                }
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

/// The number of batches of a dry run: `false`, `true` (1) or a count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FastDevRun(pub u64);

impl FastDevRun {
    /// Whether it is on.
    #[must_use]
    pub fn is_on(self) -> bool {
        self.0 > 0
    }
}

impl Serialize for FastDevRun {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            0 => serializer.serialize_bool(false),
            n => serializer.serialize_u64(n),
        }
    }
}

impl<'de> Deserialize<'de> for FastDevRun {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<FastDevRun, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = FastDevRun;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true, false, or a count of batches of 0 or more")
            }
            fn visit_bool<E: Error>(self, on: bool) -> Result<FastDevRun, E> {
                Ok(FastDevRun(u64::from(on)))
            }
            fn visit_u64<E: Error>(self, n: u64) -> Result<FastDevRun, E> {
                Ok(FastDevRun(n))
            }
            fn visit_i64<E: Error>(self, n: i64) -> Result<FastDevRun, E> {
                u64::try_from(n).map(FastDevRun).map_err(|_| E::invalid_value(Unexpected::Signed(n), &self))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

/// A percentage above 0 and at most 100, such as `"2%"`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Percent(f64);

impl Percent {
    /// As a fraction of 1.
    #[must_use]
    pub fn of_one(self) -> f64 {
        self.0
    }
}

impl FromStr for Percent {
    type Err = String;

    fn from_str(text: &str) -> Result<Percent, String> {
        let number = text.trim().strip_suffix('%').map(str::trim_end).unwrap_or_default();
        let plain = number.chars().all(|sign| sign.is_ascii_digit() || sign == '.');
        match number.parse::<f64>() {
            Ok(percent) if plain && percent > 0.0 && percent <= 100.0 => Ok(Percent(percent / 100.0)),
            Ok(_) if plain => Err(format!("`{text}` is not above 0% and at most 100%; {PERCENT_EXAMPLE}")),
            _ => Err(format!("`{text}` is not a share of the time; {PERCENT_EXAMPLE}")),
        }
    }
}

const PERCENT_EXAMPLE: &str = "for example, write \"2%\"";

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Division by 100 leaves an error in the last digits.
        write!(f, "{}%", (self.0 * 1e14).round() / 1e12)
    }
}

impl Serialize for Percent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Percent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Percent, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(Error::custom)
    }
}

macro_rules! schema {
    ($type:ident, $schema:tt) => {
        impl JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    };
}

schema!(BatchLimit, {
    "description": "A number of batches, written as a whole number, or a fraction from 0.0 to 1.0, written with a decimal point.",
    "anyOf": [
        { "type": "integer", "minimum": 0 },
        { "type": "number", "minimum": 0.0, "maximum": 1.0 },
    ],
});
schema!(FastDevRun, {
    "description": "`true`, `false`, or a number of batches.",
    "anyOf": [{ "type": "boolean" }, { "type": "integer", "minimum": 0 }],
});
schema!(Percent, {
    "description": "A percentage of the time, such as `\"2%\"`.",
    "type": "string",
    "pattern": "^\\s*(0*100(\\.0*)?|0*[1-9][0-9]?(\\.[0-9]*)?|0*\\.[0-9]*[1-9][0-9]*)\\s*%\\s*$",
});

/// The schema of `none_or`.
pub(super) struct CountOrNone;

schema!(CountOrNone, { "anyOf": [{ "type": "integer", "minimum": 1 }, { "const": "none" }] });

/// A count or `"none"`, because TOML has no null.
pub(super) mod none_or {
    use super::{Deserializer, Error, Serializer, Unexpected, Visitor, fmt};

    #[allow(clippy::ref_option)] // serde's own signature
    pub(in super::super) fn serialize<S: Serializer>(
        value: &Option<u64>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(n) => serializer.serialize_u64(*n),
            None => serializer.serialize_str("none"),
        }
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<u64>, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Option<u64>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a count, or \"none\"")
            }
            fn visit_unit<E: Error>(self) -> Result<Option<u64>, E> {
                Ok(None)
            }
            fn visit_u64<E: Error>(self, n: u64) -> Result<Option<u64>, E> {
                Ok(Some(n))
            }
            fn visit_i64<E: Error>(self, n: i64) -> Result<Option<u64>, E> {
                u64::try_from(n).map(Some).map_err(|_| E::invalid_value(Unexpected::Signed(n), &self))
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Option<u64>, E> {
                if text == "none" { Ok(None) } else { Err(E::invalid_value(Unexpected::Str(text), &self)) }
            }
        }
        deserializer.deserialize_any(Reader)
    }
}
