//! Sizes in bytes as options.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The units in upper case, largest first.
const UNITS: [(&str, u64); 9] = [
    ("TIB", 1 << 40),
    ("TB", 1_000_000_000_000),
    ("GIB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MIB", 1 << 20),
    ("MB", 1_000_000),
    ("KIB", 1 << 10),
    ("KB", 1000),
    ("B", 1),
];

/// A number of bytes, at least one: `1048576`, or `"1 MiB"` in a configuration.
///
/// ```
/// use tenterhook_hooks::ByteSize;
///
/// assert_eq!("64 MB".parse(), Ok(ByteSize(64_000_000)));
/// assert_eq!(ByteSize(1 << 30).to_string(), "1 GiB");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "NumberOrText", into = "String")]
pub struct ByteSize(pub u64);

/// A text is not a number of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByteSizeError(String);

impl fmt::Display for ByteSizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ByteSizeError(text) = self;
        write!(
            f,
            "\"{text}\" is not a number of bytes; write a whole number above 0 with a unit, such as \"64 MB\" or \
             \"1 GiB\""
        )
    }
}

impl std::error::Error for ByteSizeError {}

impl FromStr for ByteSize {
    type Err = ByteSizeError;

    fn from_str(text: &str) -> Result<ByteSize, ByteSizeError> {
        let trimmed = text.trim();
        let digits = trimmed.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(digits);
        let unit = unit.trim_start().to_ascii_uppercase();
        let unit = if unit.is_empty() { "B" } else { unit.as_str() };
        let factor = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor);
        let bytes = number.parse::<u64>().ok().zip(factor).and_then(|(number, by)| number.checked_mul(by));
        bytes.filter(|bytes| *bytes > 0).map(ByteSize).ok_or_else(|| ByteSizeError(text.to_owned()))
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (power, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
            if self.0 > 0 && self.0.is_multiple_of(1 << power) {
                return write!(f, "{} {unit}", self.0 >> power);
            }
        }
        write!(f, "{} B", self.0)
    }
}

impl From<ByteSize> for String {
    fn from(size: ByteSize) -> String {
        size.to_string()
    }
}

/// The forms of a size in a configuration.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a number of bytes such as 1048576, \"64 MB\" or \"1 GiB\"")]
enum NumberOrText {
    Number(u64),
    Text(String),
}

impl TryFrom<NumberOrText> for ByteSize {
    type Error = ByteSizeError;

    fn try_from(size: NumberOrText) -> Result<ByteSize, ByteSizeError> {
        match size {
            NumberOrText::Number(bytes) => bytes.to_string().parse(),
            NumberOrText::Text(text) => text.parse(),
        }
    }
}

impl JsonSchema for ByteSize {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ByteSize".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "A number of bytes, such as 1048576, \"64 MB\" or \"1 GiB\".",
            "type": ["integer", "string"],
            "minimum": 1,
            "pattern": "^\\s*0*[1-9][0-9]*\\s*(([kKmMgGtT][iI]?)?[bB])?\\s*$",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_a_number_or_a_text_with_a_unit() {
        for (text, bytes) in [
            ("512", 512),
            ("512 B", 512),
            ("64 MB", 64_000_000),
            ("64mib", 64 << 20),
            (" 1 GiB ", 1 << 30),
            ("3kB", 3000),
            ("2 TB", 2_000_000_000_000),
        ] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
            let read: ByteSize = serde_json::from_value(text.into()).expect(text);
            assert_eq!(read, ByteSize(bytes));
        }
        assert_eq!(serde_json::from_str::<ByteSize>("4096").expect("a number"), ByteSize(4096));
        for text in ["256 MiB", "1 GiB", "1000 B", "3 KiB", "5 TiB"] {
            let size: ByteSize = text.parse().expect(text);
            assert_eq!(serde_json::to_value(size).expect(text), text, "it is written as it was read");
        }
    }

    #[test]
    fn anything_else_is_an_error_with_examples() {
        for wrong in ["", "much", "0", "0 MiB", "-1", "1.5 GiB", "5 bits", "99999999999 TiB"] {
            let error = wrong.parse::<ByteSize>().expect_err(wrong).to_string();
            assert!(error.contains(&format!("\"{wrong}\"")) && error.contains("\"64 MB\""), "{error}");
        }
        for wrong in ["-1", "0", "true", "[1]", "1.5"] {
            let error = serde_json::from_str::<ByteSize>(wrong).expect_err(wrong).to_string();
            assert!(error.contains("\"64 MB\""), "{error}");
        }
    }
}
