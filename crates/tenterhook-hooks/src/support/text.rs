//! Formats numbers, times, metrics and lists for messages.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use tenterhook_core::Outcome;
use tenterhook_core::plan::TRAIN_LOSS;

/// A number with four significant digits.
pub(crate) fn number(value: f64) -> String {
    let size = value.abs();
    if value != 0.0 && !(1e-3..1e5).contains(&size) { format!("{value:.3e}") } else { format!("{value:.4}") }
}

/// A number with at most four significant digits and no trailing zeros: `0.001`.
pub(crate) fn short(value: f64) -> String {
    let rounded: f64 = format!("{value:.3e}").parse().unwrap_or(value);
    format!("{rounded:?}")
}

/// A number with at most six significant digits and no trailing zeros.
pub(crate) fn significant(value: f64) -> String {
    let rounded: f64 = format!("{value:.5e}").parse().unwrap_or(value);
    let size = rounded.abs();
    let is_plain = rounded == 0.0 || !size.is_finite() || (1e-4..1e9).contains(&size);
    if is_plain { rounded.to_string() } else { format!("{rounded:e}") }
}

/// A count with separators for thousands.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count with its noun: `1 step`, `2,000 steps`, `2 batches`.
pub(crate) fn plural(number: u64, what: &str) -> String {
    let ending = match what {
        _ if number == 1 => "",
        _ if what.ends_with("tch") => "es",
        _ => "s",
    };
    format!("{} {what}{ending}", count(number))
}

/// A size in the largest fitting unit.
pub(crate) fn bytes(number: u64) -> String {
    let (mut size, mut unit) = (number as f64, "B");
    for larger in ["KiB", "MiB", "GiB", "TiB"] {
        if size < 1024.0 {
            break;
        }
        (size, unit) = (size / 1024.0, larger);
    }
    if unit == "B" { format!("{number} B") } else { format!("{size:.1} {unit}") }
}

/// A duration, rounded for reading.
pub(crate) fn duration(time: Duration) -> String {
    let (seconds, whole) = (time.as_secs_f64(), time.as_secs());
    match whole {
        _ if seconds < 1.0 => short_duration(seconds),
        0..10 => format!("{seconds:.1} s"),
        10..60 => format!("{whole} s"),
        60..3600 => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} min", whole / 3600, whole / 60 % 60),
    }
}

/// A short duration with three significant digits.
pub(crate) fn short_duration(seconds: f64) -> String {
    let (value, unit) = match seconds {
        s if s >= 1.0 => (s, "s"),
        s if s >= 1e-3 => (s * 1e3, "ms"),
        s if s >= 1e-6 => (s * 1e6, "µs"),
        s if s > 0.0 => (s * 1e9, "ns"),
        _ => return "0 s".into(),
    };
    match value {
        v if v >= 100.0 => format!("{v:.0} {unit}"),
        v if v >= 10.0 => format!("{v:.1} {unit}"),
        v => format!("{v:.2} {unit}"),
    }
}

/// Appends metrics as `name value`. A metric with its plain name is not repeated as `name_step` or `name_epoch`.
pub(crate) fn add_metrics(line: &mut String, metrics: &BTreeMap<String, f64>) {
    for (name, value) in metrics {
        let plain = name.strip_suffix("_step").or_else(|| name.strip_suffix("_epoch"));
        if plain.is_none_or(|plain| !metrics.contains_key(plain)) {
            let _ = write!(line, "  {name} {}", number(*value));
        }
    }
}

/// The metrics without the training loss.
pub(crate) fn without_loss(mut metrics: BTreeMap<String, f64>) -> BTreeMap<String, f64> {
    metrics.remove(TRAIN_LOSS);
    metrics
}

/// How a run ended.
pub(crate) fn outcome(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Stopped { by, reason } => format!("stopped by `{by}` ({reason})"),
        Outcome::Interrupted { signal } => format!("interrupted by {signal}"),
        Outcome::Failed { error } => format!("failed ({error})"),
        _ => "completed".into(),
    }
}

/// How a run ended, in one word.
#[cfg(feature = "http")]
pub(crate) fn ended(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Stopped { .. } => "stopped",
        Outcome::Interrupted { .. } => "interrupted",
        Outcome::Failed { .. } => "failed",
        _ => "completed",
    }
}

/// The maximum number of names in a list.
pub(crate) const MAX_LISTED: usize = 20;

/// A list of names, with the number of those left out.
pub(crate) fn list(names: &[String]) -> String {
    let shown: Vec<_> = names.iter().take(MAX_LISTED).map(|name| format!("`{name}`")).collect();
    let more = names.len().saturating_sub(MAX_LISTED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded() {
        assert_eq!([number(0.98765), number(0.000_012_34), number(0.0)], ["0.9877", "1.234e-5", "0.0000"]);
        assert_eq!([short(0.001), short(0.1 + 0.2), short(1e-7)], ["0.001", "0.3", "1e-7"]);
        assert_eq!(
            [significant(0.123_456_789), significant(1.0), significant(1.234e-7)],
            ["0.123457", "1", "1.234e-7"]
        );
        assert_eq!(
            [significant(f64::NAN), significant(1_234_567.0), significant(-0.1 - 0.2)],
            ["NaN", "1234570", "-0.3"]
        );
        assert_eq!([count(7), count(1234), count(123_456)], ["7", "1,234", "123,456"]);
        assert_eq!(plural(2, "epoch"), "2 epochs");
        assert_eq!(
            [plural(1, "batch"), plural(2000, "step"), plural(2, "batch")],
            ["1 batch", "2,000 steps", "2 batches"]
        );
        assert_eq!([bytes(1023), bytes(1024), bytes(5 << 20)], ["1023 B", "1.0 KiB", "5.0 MiB"]);
    }

    #[test]
    fn durations_are_rounded() {
        let times = [0.42, 4.2, 12.0, 75.0, 7300.0].map(|s| duration(Duration::from_secs_f64(s)));
        assert_eq!(times, ["420 ms", "4.2 s", "12 s", "1 min 15 s", "2 h 01 min"]);
        assert_eq!(
            [2.5, 0.0123, 1.5e-5, 1e-9, 0.0].map(short_duration),
            ["2.50 s", "12.3 ms", "15.0 µs", "1.00 ns", "0 s"]
        );
    }

    #[test]
    fn a_metric_is_shown_once() {
        let names = ["x", "x_step", "x_epoch", "y_step"];
        let metrics = names.map(|name| (name.to_owned(), 1.0)).into();
        let mut line = String::from("step 3");
        add_metrics(&mut line, &metrics);
        assert_eq!(line, "step 3  x 1.0000  y_step 1.0000");
    }

    #[test]
    fn long_lists_are_cut_and_say_how_many_are_left_out() {
        let names: Vec<_> = (0..23).map(|at| format!("w{at}")).collect();
        assert_eq!(list(&names[..2]), "`w0`, `w1`");
        assert!(list(&names).ends_with("`w19` and 3 more"));
    }
}
