//! The option `points`: selects hook points by patterns of their names.

use std::cell::RefCell;

use tenterhook_core::{OptionError, Pattern, RunContext};

use crate::support::text;

/// The hook points selected by the option `points`.
#[derive(Clone, Debug)]
pub(crate) struct PointFilter {
    patterns: Vec<Pattern>,
    /// Whether one of the patterns is `**`.
    all: bool,
    /// The points seen in the first batch; `None` once unmatched patterns were reported.
    seen: RefCell<Option<Vec<String>>>,
}

impl PointFilter {
    /// Parses the value of `points`. Unmatched patterns are reported only if `is_set`: the default may match nothing.
    pub(crate) fn new(points: &[String], is_set: bool) -> Result<PointFilter, OptionError> {
        let patterns = points.iter().map(|point| point.parse()).collect::<Result<_, _>>();
        let patterns = patterns.map_err(|error| OptionError::new("points", format!("`points`: {error}")))?;
        let all = points.iter().any(|point| point == "**");
        Ok(PointFilter { patterns, all, seen: RefCell::new(is_set.then(Vec::new)) })
    }

    /// Whether the hook point is selected.
    pub(crate) fn matches(&self, point: &str) -> bool {
        if let Some(seen) = &mut *self.seen.borrow_mut()
            && !seen.iter().any(|known| known == point)
        {
            seen.push(point.to_owned());
        }
        self.all || self.patterns.iter().any(|pattern| pattern.matches(point))
    }

    /// After the first batch: reports patterns that match no hook point, such as a misspelt name.
    pub(crate) fn report_unmatched(&mut self, run_cx: &RunContext<'_>) {
        let Some(mut points) = self.seen.take() else { return };
        let is_matched = |pattern: &&Pattern| points.iter().any(|point| pattern.matches(point));
        let unmatched = self.patterns.iter().filter(|pattern| !is_matched(pattern));
        let unmatched: Vec<_> = unmatched.map(ToString::to_string).collect();
        if unmatched.is_empty() {
            return;
        }
        nearest_first(&mut points, &unmatched);
        let unmatched = text::list(&unmatched);
        run_cx.say(if points.is_empty() {
            format!("`points`: nothing matches {unmatched}: the module exposes no activations")
        } else {
            format!("`points`: no hook point matches {unmatched}; there are: {}", text::list(&points))
        });
    }
}

/// If there are too many names to list, sorts the most similar first.
fn nearest_first(points: &mut [String], unmatched: &[String]) {
    if points.len() > text::MAX_LISTED {
        let similarity = |point: &String| {
            let each = unmatched.iter().map(|pattern| strsim::jaro_winkler(pattern, point));
            each.fold(0.0, f64::max)
        };
        points.sort_by(|one, other| similarity(other).total_cmp(&similarity(one)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_names_are_sorted_by_similarity_and_few_keep_their_order() {
        let mut many: Vec<_> = (0..30).map(|at| format!("blocks.{at}.mlp")).collect();
        many.push("head".to_owned());
        nearest_first(&mut many, &["heat".to_owned()]);
        assert_eq!(many[0], "head");
        let mut few = vec!["blocks.0.mlp".to_owned(), "head".to_owned()];
        nearest_first(&mut few, &["heat".to_owned()]);
        assert_eq!(few[0], "blocks.0.mlp");
    }
}
