//! Serializes `f64` as JSON, including NaN and infinities, which JSON itself cannot represent, because a
//! diverged run must be resumable too.
//!
//! Use as `#[serde(with = "tenterhook_core::number")]`.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Finite(f64),
    Other(NotFinite),
}

#[derive(Clone, Copy, Serialize, Deserialize)]
enum NotFinite {
    #[serde(rename = "nan")]
    Nan,
    #[serde(rename = "inf")]
    Infinity,
    #[serde(rename = "-inf")]
    NegativeInfinity,
}

impl From<f64> for Written {
    fn from(number: f64) -> Written {
        match number {
            n if n.is_finite() => Written::Finite(n),
            n if n.is_nan() => Written::Other(NotFinite::Nan),
            n if n > 0.0 => Written::Other(NotFinite::Infinity),
            _ => Written::Other(NotFinite::NegativeInfinity),
        }
    }
}

impl From<Written> for f64 {
    fn from(written: Written) -> f64 {
        match written {
            Written::Finite(n) => n,
            Written::Other(NotFinite::Nan) => f64::NAN,
            Written::Other(NotFinite::Infinity) => f64::INFINITY,
            Written::Other(NotFinite::NegativeInfinity) => f64::NEG_INFINITY,
        }
    }
}

/// Serializes a number.
pub fn serialize<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    Written::from(*number).serialize(serializer)
}

/// Deserializes a number.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Written::deserialize(deserializer).map(f64::from)
}

/// Serializes an optional number.
pub mod option {
    use super::{Deserialize, Deserializer, Serialize, Serializer, Written};

    /// Serializes an optional number.
    #[allow(clippy::ref_option)] // serde's own signature
    pub fn serialize<S: Serializer>(number: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
        number.map(Written::from).serialize(serializer)
    }

    /// Deserializes an optional number.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
        Ok(Option::<Written>::deserialize(deserializer)?.map(f64::from))
    }
}

/// Serializes a map of numbers.
pub mod map {
    use std::collections::BTreeMap;

    use super::{Deserialize, Deserializer, Serializer, Written};

    /// Serializes a map of numbers.
    pub fn serialize<S: Serializer>(
        numbers: &BTreeMap<String, f64>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_map(numbers.iter().map(|(name, number)| (name, Written::from(*number))))
    }

    /// Deserializes a map of numbers.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<String, f64>, D::Error> {
        let written = BTreeMap::<String, Written>::deserialize(deserializer)?;
        Ok(written.into_iter().map(|(name, number)| (name, number.into())).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[derive(Debug, Serialize, Deserialize)]
    struct Numbers {
        #[serde(with = "super")]
        one: f64,
        #[serde(with = "option")]
        maybe: Option<f64>,
        #[serde(with = "map")]
        named: BTreeMap<String, f64>,
    }

    #[test]
    fn every_number_survives_to_the_bit() {
        for number in [0.1 + 0.2, -0.0, 3.0, 1e300, 5e-324, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            for maybe in [None, Some(number)] {
                let numbers =
                    Numbers { one: number, maybe, named: BTreeMap::from([("x".to_owned(), number)]) };
                let text = serde_json::to_string(&numbers).expect("it writes");
                let read: Numbers = serde_json::from_str(&text).expect("it reads");
                assert_eq!(read.one.to_bits(), number.to_bits(), "{text}");
                assert_eq!(read.maybe.map(f64::to_bits), maybe.map(f64::to_bits), "{text}");
                assert_eq!(read.named["x"].to_bits(), number.to_bits(), "{text}");
            }
        }
    }
}
