//! Intervals of training with their unit: `100 steps`, `1 epoch`, `5 min`.

use std::str::FromStr;
use std::time::Duration;

use crate::time_span::{TimeSpan, as_text};

/// An interval or a length of training, with its unit.
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

/// The error for a text that is not a cadence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a cadence: {problem}; for example, write \"100 steps\", \"2 epochs\", \"50 batches\" or \"5 min\""
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
        let cadence = match unit.trim() {
            "step" | "steps" => Cadence::Steps(number),
            "epoch" | "epochs" => Cadence::Epochs(number),
            "batch" | "batches" => Cadence::Batches(number),
            _ => Cadence::Time(trimmed.parse::<TimeSpan>().map_err(|_| error("its unit is unknown"))?.0),
        };
        let zero =
            [Cadence::Steps(0), Cadence::Epochs(0), Cadence::Batches(0), Cadence::Time(Duration::ZERO)];
        if zero.contains(&cadence) { Err(error("it must be more than zero")) } else { Ok(cadence) }
    }
}

impl std::fmt::Display for Cadence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (number, unit) = match self {
            Cadence::Steps(n) => (*n, "step"),
            Cadence::Epochs(n) => (*n, "epoch"),
            Cadence::Batches(1) => return f.write_str("1 batch"),
            Cadence::Batches(n) => return write!(f, "{n} batches"),
            Cadence::Time(time) => return TimeSpan(*time).fmt(f),
        };
        write!(f, "{number} {unit}{}", if number == 1 { "" } else { "s" })
    }
}

as_text!(Cadence);

#[cfg(feature = "schemars")]
impl schemars::JsonSchema for Cadence {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Cadence".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "An interval or a length of training, such as \"100 steps\", \"2 epochs\", \"50 batches\" or \"5 min\".",
            "type": "string",
            "pattern": concat!(
                r"^\s*(0*[1-9][0-9]*\s*(steps?|epochs?|batch|batches)\s*|(?=[0-9])(?=.*[1-9])",
                crate::time_span::units!(),
                ")$"
            ),
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
        assert_eq!("1h 30m".parse(), Ok(Cadence::Time(Duration::from_mins(90))));
        for text in ["1 step", "2 epochs", "1 batch", "3 batches", "90 s", "5 min", "2 h"] {
            assert_eq!(text.parse::<Cadence>().expect(text).to_string(), text);
            let read: Cadence = serde_json::from_value(text.into()).expect(text);
            assert_eq!(serde_json::to_value(read).expect(text), text);
        }
    }

    #[test]
    fn any_other_text_is_an_error_with_an_example() {
        for (text, problem) in [
            ("100", "it has no unit"),
            ("steps", "it does not begin with a whole number"),
            ("1.5 epochs", "it does not begin with a whole number"),
            ("0 steps", "it must be more than zero"),
            ("3 moons", "its unit is unknown"),
            ("0 ms", "it must be more than zero"),
        ] {
            let error = text.parse::<Cadence>().expect_err(text).to_string();
            assert!(error.contains(problem) && error.contains("\"100 steps\""), "{error}");
        }
    }
}
