//! A length of time as an option says it.

use std::time::Duration;

use tenterhook_core::{Cadence, OptionError};

/// The same as a regular expression, for schemas.
pub(crate) const PATTERN: &str = r"^(?![0\s:]*$)(\s*[0-9]+\s*(:\s*[0-9]+\s*){3}|\s*0*[1-9][0-9]*\s*(s|sec|seconds?|min|minutes?|h|hours?)\s*)$";

/// `DD:HH:MM:SS`, or a number with its unit; `key` is the option that says it.
pub(crate) fn parse(key: &str, text: &str) -> Result<Duration, OptionError> {
    let seconds = [86_400, 3600, 60, 1];
    let parts: Result<Vec<u64>, _> = text.split(':').map(|part| part.trim().parse()).collect();
    let time = match (parts, text.parse()) {
        (Ok(parts), _) if parts.len() == seconds.len() => {
            let add = |sum: u64, (part, unit): (&u64, u64)| sum.saturating_add(part.saturating_mul(unit));
            Duration::from_secs(parts.iter().zip(seconds).fold(0, add))
        }
        (_, Ok(Cadence::Time(time))) => time,
        _ => Duration::ZERO,
    };
    if time.is_zero() {
        return Err(OptionError::new(format!(
            "`{key}` is \"{text}\", which is no time; write for example \"90 min\", \"2 h\", or \"00:12:00:00\" for \
             days, hours, minutes and seconds"
        )));
    }
    Ok(time)
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
        for text in ["12", "2 epochs", "5 steps", "12:00:00", "00:00:00:00", "x:1:2:3", ""] {
            let error = parse("key", text).expect_err(text).to_string();
            assert!(error.starts_with("`key` is ") && error.contains("\"90 min\""), "{error}");
            assert!(!error.contains("100 steps"), "{error}");
        }
    }
}
