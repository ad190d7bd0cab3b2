//! Formatting of numbers, times, sizes and untrusted text.

/// `one_line` escapes characters that could control a terminal, and joins lines with ` / `.
pub(crate) use tenterhook::printable::{Side, line as one_line, table};

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

/// A size in bytes with a binary unit.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut size = count as f64 / 1024.0;
    let mut units = UNITS.into_iter();
    let mut unit = units.next().unwrap_or_default();
    // 1024 of one unit is 1 of the next, also after rounding.
    while size >= 1023.95
        && let Some(next) = units.next()
    {
        (size, unit) = (size / 1024.0, next);
    }
    format!("{size:.1} {unit}")
}

/// A count with its noun, such as `2 steps`.
pub(crate) fn plural(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
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

/// A number with four decimals, or in scientific notation if it is very small or large.
pub(crate) fn number(value: f64) -> String {
    let size = value.abs();
    if value != 0.0 && !(1e-3..1e5).contains(&size) { format!("{value:.3e}") } else { format!("{value:.4}") }
}

/// A duration in seconds, minutes or hours.
pub(crate) fn duration(seconds: f64) -> String {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // no run lasts so long
    let whole = seconds.round() as u64;
    match whole {
        _ if seconds < 10.0 => format!("{seconds:.1} s"),
        0..60 => format!("{whole} s"),
        60..3600 => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} min", whole / 3600, whole / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_and_durations_are_readable() {
        assert_eq!(metric("val/accuracy", 0.98765), "98.77 %");
        assert_eq!(metric("val/loss", 0.98765), "0.9877");
        assert_eq!(number(0.000_012_34), "1.234e-5");
        let times: Vec<_> = [0.42, 12.0, 75.0, 7300.0].into_iter().map(duration).collect();
        assert_eq!(times, ["0.4 s", "12 s", "1 min 15 s", "2 h 01 min"]);
    }

    #[test]
    fn sizes_have_binary_units() {
        let sizes = [0, 1023, 1024, 1536, 1024 * 1024 - 1, 5 << 20, 7 << 30, 3 << 50].map(bytes);
        assert_eq!(
            sizes,
            ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1.0 MiB", "5.0 MiB", "7.0 GiB", "3072.0 TiB"]
        );
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
