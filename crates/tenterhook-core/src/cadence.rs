//! How often, with its unit: `100 steps`, `1 epoch`, `5 min`.

use std::str::FromStr;
use std::time::Duration;

/// A distance in the course of training. Units are part of it, so no integer is ever bare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cadence {
    /// Optimizer steps.
    Steps(u64),
    /// Epochs.
    Epochs(u64),
    /// Micro-batches.
    Batches(u64),
    /// Wall time.
    Time(Duration),
}

/// Why a text is not a cadence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a cadence: {problem}; write for example \"100 steps\", \"2 epochs\", \"50 batches\" or \"5 min\""
)]
pub struct CadenceError {
    text: String,
    problem: &'static str,
}

impl FromStr for Cadence {
    type Err = CadenceError;

    fn from_str(text: &str) -> Result<Cadence, CadenceError> {
        let error = |problem| CadenceError { text: text.to_owned(), problem };
        let trimmed = text.trim();
        let unit_at = trimmed.find(|c: char| c.is_alphabetic()).ok_or_else(|| error("it has no unit"))?;
        let (number, unit) = trimmed.split_at(unit_at);
        let number: u64 =
            number.trim().parse().map_err(|_| error("it does not begin with a whole number"))?;
        if number == 0 {
            return Err(error("zero is not a distance"));
        }
        let seconds = |factor| Cadence::Time(Duration::from_secs(number.saturating_mul(factor)));
        Ok(match unit.trim() {
            "step" | "steps" => Cadence::Steps(number),
            "epoch" | "epochs" => Cadence::Epochs(number),
            "batch" | "batches" => Cadence::Batches(number),
            "s" | "sec" | "second" | "seconds" => seconds(1),
            "min" | "minute" | "minutes" => seconds(60),
            "h" | "hour" | "hours" => seconds(3600),
            _ => return Err(error("its unit is unknown")),
        })
    }
}

impl std::fmt::Display for Cadence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (number, unit) = match self {
            Cadence::Steps(n) => (*n, "step"),
            Cadence::Epochs(n) => (*n, "epoch"),
            Cadence::Batches(1) => return f.write_str("1 batch"),
            Cadence::Batches(n) => return write!(f, "{n} batches"),
            Cadence::Time(time) => {
                let (seconds, minute, hour) = (time.as_secs(), 60, 3600);
                return match seconds {
                    0 => f.write_str("0 s"),
                    _ if seconds.is_multiple_of(hour) => write!(f, "{} h", seconds / hour),
                    _ if seconds.is_multiple_of(minute) => write!(f, "{} min", seconds / minute),
                    _ => write!(f, "{seconds} s"),
                };
            }
        };
        write!(f, "{number} {unit}{}", if number == 1 { "" } else { "s" })
    }
}

impl serde::Serialize for Cadence {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Cadence {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Cadence, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(feature = "schemars")]
impl schemars::JsonSchema for Cadence {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Cadence".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "A distance in the course of training, such as \"100 steps\", \"2 epochs\", \"50 batches\" or \"5 min\".",
            "type": "string",
            "pattern": "^\\s*0*[1-9][0-9]*\\s*(steps?|epochs?|batch|batches|s|sec|seconds?|min|minutes?|h|hours?)\\s*$",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cadence_is_a_number_with_a_unit() {
        assert_eq!("100 steps".parse(), Ok(Cadence::Steps(100)));
        assert_eq!("1 epoch".parse(), Ok(Cadence::Epochs(1)));
        assert_eq!("32batches".parse(), Ok(Cadence::Batches(32)));
        assert_eq!(" 5 min ".parse(), Ok(Cadence::Time(Duration::from_mins(5))));
        for text in ["1 step", "2 epochs", "1 batch", "3 batches", "90 s", "5 min", "2 h"] {
            assert_eq!(text.parse::<Cadence>().expect(text).to_string(), text);
            let read: Cadence = serde_json::from_value(text.into()).expect(text);
            assert_eq!(serde_json::to_value(read).expect(text), text);
        }
    }

    #[test]
    fn anything_else_is_an_error_that_says_what_to_write() {
        for (text, problem) in [
            ("100", "it has no unit"),
            ("steps", "it does not begin with a whole number"),
            ("1.5 epochs", "it does not begin with a whole number"),
            ("0 steps", "zero is not a distance"),
            ("3 moons", "its unit is unknown"),
        ] {
            let error = text.parse::<Cadence>().expect_err(text).to_string();
            assert!(error.contains(problem) && error.contains("\"100 steps\""), "{error}");
        }
    }
}
