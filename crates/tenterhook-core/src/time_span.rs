//! Durations in options: `90 s`, `1h 30m`, `2 days`.

use std::str::FromStr;
use std::time::Duration;

use jiff::SpanRelativeTo;
use jiff::fmt::friendly::SpanParser;

/// A duration: `"90 s"`, `"1h 30m"`, `"2 days"`, `"500 ms"`, or `"DD:HH:MM:SS"` as in Lightning.
///
/// ```
/// use tenterhook_core::TimeSpan;
///
/// assert_eq!("1h 30m".parse(), Ok(TimeSpan::from_secs(5400)));
/// assert_eq!("00:12:00:00".parse::<TimeSpan>()?.to_string(), "12 h");
/// # Ok::<(), tenterhook_core::TimeSpanError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeSpan(pub Duration);

/// The error for a text that is no duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a duration; for example, write \"90 s\", \"1h 30m\" or \"2 days\", or \"DD:HH:MM:SS\" for days, \
     hours, minutes and seconds"
)]
pub struct TimeSpanError(String);

/// Numbers with units as a regular expression, for schemas. The number of digits is limited as in `jiff`.
#[cfg(feature = "schemars")]
macro_rules! units {
    () => {
        concat!(
            r"([0-9]{1,6}\s*(w|wks?|weeks?)\s*)?",
            r"([0-9]{1,6}\s*d(ays?)?\s*)?",
            r"([0-9]{1,8}\s*(h|hrs?|hours?)\s*)?",
            r"([0-9]{1,10}\s*m(in(ute)?s?)?\s*)?",
            r"([0-9]{1,11}\s*s(ec(ond)?s?)?\s*)?",
            r"([0-9]{1,14}\s*(ms|msecs?|milli(second)?s?)\s*)?",
            r"([0-9]{1,17}\s*(us|usecs?|micro(second)?s?)\s*)?",
            r"([0-9]{1,18}\s*(ns|nsecs?|nano(second)?s?)\s*)?",
        )
    };
}
#[cfg(feature = "schemars")]
pub(crate) use units;

#[cfg(feature = "schemars")]
macro_rules! pattern {
    ($first:literal) => {
        concat!(
            "^",
            $first,
            r"\s*([0-9]{1,6}\s*:\s*[0-9]{1,8}\s*:\s*[0-9]{1,10}\s*:\s*[0-9]{1,11}\s*|(?=[0-9])",
            units!(),
            ")$"
        )
    };
}

impl TimeSpan {
    /// A duration in seconds.
    #[must_use]
    pub const fn from_secs(seconds: u64) -> TimeSpan {
        TimeSpan(Duration::from_secs(seconds))
    }

    /// The pattern of durations above zero, for the schema of an option.
    #[cfg(feature = "schemars")]
    pub const ABOVE_ZERO: &str = pattern!(r"(?=.*[1-9])");
}

impl FromStr for TimeSpan {
    type Err = TimeSpanError;

    fn from_str(text: &str) -> Result<TimeSpan, TimeSpanError> {
        let parts: Vec<_> = text.split(':').map(str::trim).collect();
        let units = match parts[..] {
            [days, hours, minutes, seconds] => format!("{days}d {hours}h {minutes}m {seconds}s"),
            _ => text.trim().to_owned(),
        };
        read(&units).map(TimeSpan).ok_or_else(|| TimeSpanError(text.to_owned()))
    }
}

/// Parses whole numbers with units. `jiff` alone would also accept signs, fractions and clock times.
fn read(units: &str) -> Option<Duration> {
    let is_plain = units.chars().all(|sign| sign.is_ascii_alphanumeric() || sign.is_ascii_whitespace());
    if !is_plain || units.ends_with("ago") {
        return None;
    }
    let span = SpanParser::new().parse_span(units).ok()?;
    span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?.try_into().ok()
}

impl std::fmt::Display for TimeSpan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let nanos = self.0.as_nanos();
        let units = [
            (3_600_000_000_000, "h"),
            (60_000_000_000, "min"),
            (1_000_000_000, "s"),
            (1_000_000, "ms"),
            (1000, "us"),
        ];
        match units.iter().find(|(unit, _)| nanos.is_multiple_of(*unit)) {
            _ if nanos == 0 => f.write_str("0 s"),
            Some((unit, name)) => write!(f, "{} {name}", nanos / unit),
            None => write!(f, "{nanos} ns"),
        }
    }
}

/// Serializes a type as its text.
macro_rules! as_text {
    ($Type:ident) => {
        impl serde::Serialize for $Type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $Type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<$Type, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}
pub(crate) use as_text;

as_text!(TimeSpan);

#[cfg(feature = "schemars")]
impl schemars::JsonSchema for TimeSpan {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "TimeSpan".into()
    }
    // Inline, because an option can require a duration above zero.
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": pattern!("") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_can_be_written_in_several_ways() {
        for (text, millis) in [
            ("2 h", 7_200_000),
            ("90min", 5_400_000),
            (" 5  min ", 300_000),
            ("0 s", 0),
            ("00min", 0),
            ("01 s", 1000),
            ("90 sec", 90_000),
            ("1 ms", 1),
            ("1h 30m", 5_400_000),
            ("1h30m 5s", 5_405_000),
            ("2 days", 172_800_000),
            ("1 week", 604_800_000),
            ("00:12:00:00", 43_200_000),
            ("01:00:00:05", 86_405_000),
            (" 1 : 0:0 :0", 86_400_000),
            ("00:00:00:00", 0),
        ] {
            assert_eq!(text.parse(), Ok(TimeSpan(Duration::from_millis(millis))), "{text}");
        }
    }

    #[test]
    fn a_displayed_duration_parses_as_the_same() {
        for text in ["0 s", "2 h", "90 min", "90 s", "1500 ms", "7 us", "1 ns"] {
            let span: TimeSpan = serde_json::from_value(text.into()).expect(text);
            assert_eq!(serde_json::to_value(span).expect(text), text);
        }
    }

    #[test]
    fn any_other_text_is_an_error_with_an_example() {
        for text in [
            "",
            "12",
            "soon",
            "5 steps",
            "0.5 s",
            "-5 min",
            "+1:2:3:4",
            "5 min ago",
            "0 s ago",
            "1 month",
            "30m 1h",
            "12:00:00",
            "x:1:2:3",
            "1h 30",
            "999999999999999999999 s",
        ] {
            let error = text.parse::<TimeSpan>().expect_err(text).to_string();
            assert!(error.starts_with(&format!("`{text}` is not")) && error.contains("\"90 s\""), "{error}");
        }
    }
}
