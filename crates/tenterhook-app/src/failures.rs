//! Failures of a run as text, one line per kind.

use tenterhook::{Failure, FailureKind, Failures};

use crate::format::one_line;

/// One line per kind, and the number of failures of kinds that were not recorded.
pub(crate) fn lines(failures: &Failures) -> Vec<String> {
    let mut lines: Vec<_> = failures.kinds.iter().map(line).collect();
    if failures.left_out > 0 {
        lines.push(format!("and {} more of other kinds", failures.left_out));
    }
    lines
}

/// [`lines`] of failures that did not end the run.
pub(crate) fn contained(failures: &Failures) -> Vec<String> {
    let mut contained = failures.clone();
    contained.kinds.retain(|kind| !kind.aborted && !kind.afterwards);
    lines(&contained)
}

/// One line per kind of failure during clean-up, without failures that `listed` already shows.
pub(crate) fn contained_afterwards(failures: &Failures, listed: &[Failure]) -> Vec<String> {
    let is_listed = |kind: &FailureKind| {
        let is_it = |one: &Failure| one.place == kind.at && one.origin.to_string() == kind.by;
        kind.aborted || listed.iter().any(is_it)
    };
    failures.kinds.iter().filter(|kind| kind.afterwards && !is_listed(kind)).map(line).collect()
}

fn line(kind: &FailureKind) -> String {
    let FailureKind { by, at, panicked, count, step, error, disabled, aborted, .. } = kind;
    let how = if *panicked { "panicked" } else { "failed" };
    let (times, first) = match count {
        1 => (String::new(), ""),
        count => (format!(" {count} times"), "first "),
    };
    let then = match (aborted, disabled) {
        (true, _) => "; that ended the run",
        (_, true) => "; disabled",
        _ => "",
    };
    one_line(&format!("{by} {how}{times} in {at}, {first}at step {step}: {error}{then}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_shows_origin_place_count_and_consequence() {
        let kind = |value| serde_json::from_value::<FailureKind>(value).expect("it reads");
        let once = kind(
            json!({ "by": "module", "at": "backward", "count": 1, "step": 7, "error": "no", "aborted": true }),
        );
        let often = kind(json!({
            "by": "hook `a`", "at": "on_step_end", "panicked": true, "count": 3, "step": 1, "error": "no", "disabled": true,
        }));
        let failures = Failures { kinds: vec![often, once], left_out: 2 };
        let expected = [
            "hook `a` panicked 3 times in on_step_end, first at step 1: no; disabled",
            "module failed in backward, at step 7: no; that ended the run",
            "and 2 more of other kinds",
        ];
        assert_eq!(lines(&failures), expected);
        assert_eq!(contained(&failures), [expected[0], expected[2]]);
    }
}
