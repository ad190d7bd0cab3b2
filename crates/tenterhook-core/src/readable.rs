//! Formats numbers, sizes and durations for reading.

/// A number with four significant digits.
#[must_use]
pub fn number(value: f64) -> String {
    let size = value.abs();
    if value != 0.0 && !(1e-3..1e5).contains(&size) { format!("{value:.3e}") } else { format!("{value:.4}") }
}

/// A count with separators for thousands.
#[must_use]
pub fn count(number: u64) -> String {
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
#[must_use]
pub fn plural(number: u64, what: &str) -> String {
    let ending = match what {
        _ if number == 1 => "",
        _ if what.ends_with("tch") => "es",
        _ => "s",
    };
    format!("{} {what}{ending}", count(number))
}

/// A size with a binary unit.
#[must_use]
pub fn bytes(count: u64) -> String {
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

/// A duration in seconds, rounded for reading.
#[must_use]
pub fn duration(seconds: f64) -> String {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates
    let whole = seconds.round() as u64;
    match whole {
        _ if seconds < 1.0 => short_duration(seconds),
        _ if seconds < 10.0 => format!("{seconds:.1} s"),
        0..60 => format!("{whole} s"),
        60..3600 => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} min", whole / 3600, whole / 60 % 60),
    }
}

/// A duration in seconds with three significant digits.
#[must_use]
pub fn short_duration(seconds: f64) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_counts_are_rounded_and_separated() {
        assert_eq!([number(0.98765), number(0.000_012_34), number(0.0)], ["0.9877", "1.234e-5", "0.0000"]);
        assert_eq!([count(7), count(1234), count(123_456)], ["7", "1,234", "123,456"]);
        assert_eq!(plural(2, "epoch"), "2 epochs");
        assert_eq!(
            [plural(1, "batch"), plural(2000, "step"), plural(2, "batch")],
            ["1 batch", "2,000 steps", "2 batches"]
        );
    }

    #[test]
    fn durations_are_rounded() {
        let times = [0.42, 4.2, 12.0, 75.0, 7300.0].map(duration);
        assert_eq!(times, ["420 ms", "4.2 s", "12 s", "1 min 15 s", "2 h 01 min"]);
        assert_eq!(
            [2.5, 0.0123, 1.5e-5, 1e-9, 0.0].map(short_duration),
            ["2.50 s", "12.3 ms", "15.0 µs", "1.00 ns", "0 s"]
        );
    }

    #[test]
    fn sizes_have_binary_units() {
        let sizes = [0, 1023, 1024, 1536, 1024 * 1024 - 1, 5 << 20, 7 << 30, 3 << 50].map(bytes);
        assert_eq!(
            sizes,
            ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1.0 MiB", "5.0 MiB", "7.0 GiB", "3072.0 TiB"]
        );
    }
}
