//! Values with a unit or with two meanings, and how they are written.

use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// How much of something: a count when written as a whole number, a fraction when written with a point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// So many batches.
    Count(u64),
    /// So much of them, from 0 to 1.
    Fraction(f64),
}

impl Amount {
    /// Everything.
    pub const ALL: Amount = Amount::Fraction(1.0);

    /// Whether it is nothing at all.
    #[must_use]
    pub fn is_zero(self) -> bool {
        match self {
            Amount::Count(n) => n == 0,
            Amount::Fraction(f) => f <= 0.0,
        }
    }
}

impl Serialize for Amount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Amount::Count(n) => serializer.serialize_u64(*n),
            Amount::Fraction(f) => serializer.serialize_f64(*f),
        }
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Amount, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Amount;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a count of 0 or more, or a fraction from 0.0 to 1.0")
            }
            fn visit_u64<E: Error>(self, n: u64) -> Result<Amount, E> {
                Ok(Amount::Count(n))
            }
            fn visit_i64<E: Error>(self, n: i64) -> Result<Amount, E> {
                u64::try_from(n)
                    .map(Amount::Count)
                    .map_err(|_| E::invalid_value(Unexpected::Signed(n), &self))
            }
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            fn visit_f64<E: Error>(self, f: f64) -> Result<Amount, E> {
                match f {
                    f if (0.0..=1.0).contains(&f) => Ok(Amount::Fraction(f)),
                    // As in Lightning, 2.0 is the count 2.
                    f if f > 1.0 && f.fract() == 0.0 && f < 1e15 => Ok(Amount::Count(f as u64)),
                    f => Err(E::invalid_value(Unexpected::Float(f), &self)),
                }
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

/// Off, on, or on for so many: `false`, `true` or a count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switch(pub u64);

impl Switch {
    /// Whether it is on.
    #[must_use]
    pub fn is_on(self) -> bool {
        self.0 > 0
    }
}

impl Serialize for Switch {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            0 => serializer.serialize_bool(false),
            n => serializer.serialize_u64(n),
        }
    }
}

impl<'de> Deserialize<'de> for Switch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Switch, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Switch;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true, false, or a count of batches of 0 or more")
            }
            fn visit_bool<E: Error>(self, on: bool) -> Result<Switch, E> {
                Ok(Switch(u64::from(on)))
            }
            fn visit_u64<E: Error>(self, n: u64) -> Result<Switch, E> {
                Ok(Switch(n))
            }
            fn visit_i64<E: Error>(self, n: i64) -> Result<Switch, E> {
                u64::try_from(n).map(Switch).map_err(|_| E::invalid_value(Unexpected::Signed(n), &self))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

/// A share of the time, above 0 and at most all of it: written in per cent, as in `"2%"`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share(f64);

impl Share {
    /// Of 1.
    #[must_use]
    pub fn of_one(self) -> f64 {
        self.0
    }
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Share, String> {
        let number = text.trim().strip_suffix('%').map(str::trim_end).unwrap_or_default();
        let plain = number.chars().all(|sign| sign.is_ascii_digit() || sign == '.');
        match number.parse::<f64>() {
            Ok(percent) if plain && percent > 0.0 && percent <= 100.0 => Ok(Share(percent / 100.0)),
            Ok(_) if plain => Err(format!("`{text}` is not above 0% and at most 100%; {SHARE}")),
            _ => Err(format!("`{text}` is no share of the time; {SHARE}")),
        }
    }
}

const SHARE: &str = "write for example \"2%\"";

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Per cent that were divided by 100 come back with an error in their last digits.
        write!(f, "{}%", (self.0 * 1e14).round() / 1e12)
    }
}

impl Serialize for Share {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Share, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Share;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a share of the time in per cent, such as \"2%\"")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Share, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Reader)
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

schema!(Amount, {
    "description": "A count when written as a whole number, a fraction from 0.0 to 1.0 when written with a point.",
    "anyOf": [
        { "type": "integer", "minimum": 0 },
        { "type": "number", "minimum": 0.0, "maximum": 1.0 },
    ],
});
schema!(Switch, {
    "description": "`true`, `false`, or a count.",
    "anyOf": [{ "type": "boolean" }, { "type": "integer", "minimum": 0 }],
});
schema!(Share, {
    "description": "A share of the time in per cent, such as `\"2%\"`.",
    "type": "string",
    "pattern": "^\\s*(0*100(\\.0*)?|0*[1-9][0-9]?(\\.[0-9]*)?|0*\\.[0-9]*[1-9][0-9]*)\\s*%\\s*$",
});

/// How `none_or` is written, for the schema.
pub(super) struct CountOrNone;

schema!(CountOrNone, { "anyOf": [{ "type": "integer", "minimum": 1 }, { "const": "none" }] });

/// A count that can be unset: `"none"` in TOML, which has no null.
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
