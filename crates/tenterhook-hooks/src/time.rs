//! A length of time as an option says it.

use std::time::Duration;

use tenterhook_core::{Cadence, OptionError};

/// The same as a regular expression, for schemas.
pub(crate) const PATTERN: &str = r"^(?![0\s:]*$)(\s*[0-9]+\s*(:\s*[0-9]+\s*){3}|\s*0*[1-9][0-9]*\s*(s|sec|seconds?|min|minutes?|h|hours?)\s*)$";

/// The same where zero is allowed.
pub(crate) const PATTERN_OR_ZERO: &str =
    r"^(\s*[0-9]+\s*(:\s*[0-9]+\s*){3}|\s*[0-9]+\s*(s|sec|seconds?|min|minutes?|h|hours?)\s*)$";

/// `DD:HH:MM:SS`, or a number with its unit; `key` is the option that says it.
pub(crate) fn parse(key: &str, text: &str) -> Result<Duration, OptionError> {
    read(text).filter(|time| !time.is_zero()).ok_or_else(|| no_time(key, text))
}

/// The same where zero is allowed.
pub(crate) fn parse_or_zero(key: &str, text: &str) -> Result<Duration, OptionError> {
    read(text).ok_or_else(|| no_time(key, text))
}

fn read(text: &str) -> Option<Duration> {
    let seconds = [86_400, 3600, 60, 1];
    let parts: Result<Vec<u64>, _> = text.split(':').map(|part| part.trim().parse()).collect();
    if let Some(parts) = parts.ok().filter(|parts| parts.len() == seconds.len()) {
        let add = |sum: u64, (part, unit): (&u64, u64)| sum.saturating_add(part.saturating_mul(unit));
        return Some(Duration::from_secs(parts.iter().zip(seconds).fold(0, add)));
    }
    // A cadence is never zero.
    let unit = text.trim().trim_start_matches('0');
    let zero = unit.len() < text.trim().len() && !unit.starts_with(|c: char| c.is_ascii_digit());
    match (if zero { format!("1{unit}") } else { text.to_owned() }).parse() {
        Ok(Cadence::Time(time)) => Some(if zero { Duration::ZERO } else { time }),
        _ => None,
    }
}

fn no_time(key: &str, text: &str) -> OptionError {
    OptionError::new(key, format!("`{key}` is \"{text}\", which is no time")).fix(
        "write for example \"90 min\", \"2 h\", or \"00:12:00:00\" for \
         days, hours, minutes and seconds; the smallest unit is 1 s",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_in_either_way_and_anything_else_refused() {
        for (text, expected) in
            [("2 h", 7200), ("90min", 5400), ("00:12:00:00", 43_200), ("01:00:00:05", 86_405), ("3 s", 3)]
        {
            assert_eq!(parse("key", text), Ok(Duration::from_secs(expected)));
        }
        for (text, expected) in [("0 s", 0), ("00min", 0), ("00:00:00:00", 0), ("01 s", 1), ("2 h", 7200)] {
            assert_eq!(parse_or_zero("key", text), Ok(Duration::from_secs(expected)), "{text}");
        }
        for text in ["0", "0 steps", "1 ms", "0.01 s"] {
            let error = parse_or_zero("key", text).expect_err(text).to_string();
            assert!(error.contains("the smallest unit is 1 s"), "{error}");
        }
        for text in ["12", "0 s", "2 epochs", "5 steps", "12:00:00", "00:00:00:00", "x:1:2:3", ""] {
            let error = parse("key", text).expect_err(text).to_string();
            assert!(error.starts_with("`key` is ") && error.contains("\"90 min\""), "{error}");
            assert!(!error.contains("100 steps"), "{error}");
        }
    }
}
