//! Formatting of numbers, times, sizes and untrusted text.

/// `one_line` escapes characters that could control a terminal, and joins lines with ` / `.
pub(crate) use tenterhook::printable::{Side, line as one_line, table};
pub(crate) use tenterhook::readable::{bytes, duration, number, plural, short_duration};

/// Text cut to a maximum number of characters.
pub(crate) fn truncated(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(3)).chain("...".chars()).collect()
}

/// A UTC timestamp of `run.json`, to the second.
pub(crate) fn utc_time(written: &str) -> String {
    one_line(written.get(..19).unwrap_or(written)).replace('T', " ")
}

/// A number as JSON; non-finite numbers are strings, as in `run.json`.
pub(crate) fn json_number(value: f64) -> serde_json::Value {
    if value.is_finite() { value.into() } else { value.to_string().to_lowercase().into() }
}

/// Whether a metric is shown in summaries. Those of activations are not: there is one per point and statistic.
pub(crate) fn in_summaries(name: &str) -> bool {
    let what = name.split('/').nth(1).unwrap_or(name);
    what != "act" && !what.starts_with("act_")
}

/// A metric: accuracies in percent, all others with four digits.
pub(crate) fn metric(name: &str, value: f64) -> String {
    if name.split('/').any(|part| part == "accuracy") && (0.0..=1.0).contains(&value) {
        format!("{:.2} %", value * 100.0)
    } else {
        number(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_readable() {
        assert_eq!(metric("val/accuracy", 0.98765), "98.77 %");
        assert_eq!(metric("val/loss", 0.98765), "0.9877");
    }

    #[test]
    fn untrusted_text_cannot_control_the_terminal() {
        assert_eq!(one_line("a\x1b[31m\tb\nc\n"), "a\\u{1b}[31m\\tb / c");
        assert_eq!((truncated("längere", 6).as_str(), truncated("länge", 5).as_str()), ("län...", "länge"));
        assert_eq!(utc_time("2026-11-16T02:37:41.123Z"), "2026-11-16 02:37:41");
        assert_eq!(utc_time("soon"), "soon");
        assert_eq!(json_number(f64::NEG_INFINITY), "-inf");
    }
}
