//! Formats numbers, times, metrics and lists for messages.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use tenterhook_core::Outcome;
use tenterhook_core::plan::TRAIN_LOSS;
pub(crate) use tenterhook_core::readable::{bytes, count, duration, number, plural, short_duration};

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
        assert_eq!([short(0.001), short(0.1 + 0.2), short(1e-7)], ["0.001", "0.3", "1e-7"]);
        assert_eq!(
            [significant(0.123_456_789), significant(1.0), significant(1.234e-7)],
            ["0.123457", "1", "1.234e-7"]
        );
        assert_eq!(
            [significant(f64::NAN), significant(1_234_567.0), significant(-0.1 - 0.2)],
            ["NaN", "1234570", "-0.3"]
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
