//! Number formats of templates, a subset of those of Python.

/// The maximum width and precision.
const MAX_DIGITS: usize = 40;

/// Examples of formats, for messages.
pub(crate) const EXAMPLES: &str = "`.2f`, `04d`, `.3e`, `.4g` or `.1%`";

/// Formats a number with a format such as `.2f`, `04d`, `e`, `.3g` or `.1%`; an empty one is the shortest form. `None` if the
/// format is not valid.
pub(crate) fn formatted(value: f64, spec: &str) -> Option<String> {
    let (numbers, kind) = match spec.char_indices().next_back() {
        Some((at, kind)) if !kind.is_ascii_digit() => (&spec[..at], Some(kind)),
        _ => (spec, None),
    };
    let (width, precision) = match numbers.split_once('.') {
        Some((width, precision)) => (width, Some(number(precision)?)),
        None => (numbers, None),
    };
    let zeros = width.starts_with('0');
    let width = if width.is_empty() { 0 } else { number(width)? };
    let digits = precision.unwrap_or(6);
    let text = match kind {
        _ if !value.is_finite() => not_finite(value).to_owned(),
        None if precision.is_none() => value.to_string(),
        None | Some('g') => general(value, digits),
        Some('d') if precision.is_none() => format!("{value:.0}"),
        Some('f') => format!("{value:.digits$}"),
        Some('e') => scientific(value, digits),
        Some('%') => format!("{:.digits$}%", value * 100.0),
        _ => return None,
    };
    // An invalid kind must also be found for values that are not finite.
    let known = kind.is_none_or(|kind| "dfeg%".contains(kind) && (kind != 'd' || precision.is_none()));
    known.then(|| padded(&text, width, zeros))
}

fn number(text: &str) -> Option<usize> {
    text.parse().ok().filter(|number| *number <= MAX_DIGITS)
}

fn not_finite(value: f64) -> &'static str {
    if value.is_nan() {
        "nan"
    } else if value > 0.0 {
        "inf"
    } else {
        "-inf"
    }
}

/// Scientific notation with a sign and at least two digits in the exponent.
fn scientific(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$e}");
    let Some((mantissa, exponent)) = text.split_once('e') else { return text };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

/// The format `g`: this many significant digits, fixed or scientific, without trailing zeros.
fn general(value: f64, digits: usize) -> String {
    let digits = digits.max(1);
    let text = scientific(value, digits - 1);
    let Some((mantissa, exponent)) = text.split_once('e') else { return text };
    let at: i32 = exponent.parse().unwrap_or_default();
    let most = i32::try_from(digits).unwrap_or(i32::MAX);
    if at < -4 || at >= most {
        return format!("{}e{exponent}", without_zeros(mantissa));
    }
    let behind = usize::try_from(most - 1 - at).unwrap_or_default();
    without_zeros(&format!("{value:.behind$}")).to_owned()
}

fn without_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

/// Pads to the width; zeros go between the sign and the number.
fn padded(text: &str, width: usize, zeros: bool) -> String {
    if !zeros {
        return format!("{text:>width$}");
    }
    match text.strip_prefix('-') {
        Some(number) => format!("-{number:0>0$}", width.saturating_sub(1)),
        None => format!("{text:0>width$}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_formatted_as_by_python() {
        for (value, spec, expected) in [
            (0.123_456, "", "0.123456"),
            (7.0, "", "7"),
            (0.123_456, ".2f", "0.12"),
            (0.123_456, "f", "0.123456"),
            (-1.5, "06.1f", "-001.5"),
            (7.0, "04d", "0007"),
            (7.0, "3d", "  7"),
            (0.000_123, ".1e", "1.2e-04"),
            (1234.5, "e", "1.234500e+03"),
            (0.000_012_345, ".3g", "1.23e-05"),
            (0.25, "g", "0.25"),
            (1234.5, ".2", "1.2e+03"),
            (0.123_456, ".1%", "12.3%"),
            (f64::NAN, ".2f", "nan"),
            (f64::NEG_INFINITY, "d", "-inf"),
        ] {
            assert_eq!(formatted(value, spec).as_deref(), Some(expected), "{value} {spec}");
        }
    }

    #[test]
    fn anything_else_is_not_a_format() {
        for spec in ["zz", "q", ".d", ".2d", ".f2", "+.2f", "-1f", ".99999f", "70000d", ">5", ".", "é"] {
            for value in [1.0, f64::NAN] {
                assert_eq!(formatted(value, spec), None, "{spec}");
            }
        }
    }
}
