//! Which activations a hook looks at, and which patterns choose none.

use std::cell::RefCell;

use tenterhook_core::{Moment, OptionError, Pattern};

use crate::support::text;

/// The patterns of `points`, and until a batch is over the points that were asked about.
#[derive(Clone, Debug)]
pub(crate) struct Points {
    patterns: Vec<Pattern>,
    /// One of the patterns is `**`.
    all: bool,
    /// `None` once it is known which patterns choose nothing.
    asked: RefCell<Option<Vec<String>>>,
}

impl Points {
    /// What an option `points` says; `chosen` is false where nobody did, and then it needs no proof that it
    /// chooses something.
    pub(crate) fn new(points: &[String], chosen: bool) -> Result<Points, OptionError> {
        let patterns = points.iter().map(|point| point.parse()).collect::<Result<_, _>>();
        let patterns = patterns.map_err(|error| OptionError::new("points", format!("`points`: {error}")))?;
        let all = points.iter().any(|point| point == "**");
        Ok(Points { patterns, all, asked: RefCell::new(chosen.then(Vec::new)) })
    }

    /// Whether this point is looked at.
    pub(crate) fn want(&self, point: &str) -> bool {
        if let Some(asked) = &mut *self.asked.borrow_mut()
            && !asked.iter().any(|known| known == point)
        {
            asked.push(point.to_owned());
        }
        self.all || self.patterns.iter().any(|pattern| pattern.matches(point))
    }

    /// After the first batch: says which patterns choose nothing, so that a slip is not mistaken for silence.
    pub(crate) fn say_what_matches_nothing(&mut self, moment: &Moment<'_>) {
        let Some(mut points) = self.asked.take() else { return };
        let chooses = |pattern: &&Pattern| points.iter().any(|point| pattern.matches(point));
        let idle = self.patterns.iter().filter(|pattern| !chooses(pattern));
        let idle: Vec<_> = idle.map(ToString::to_string).collect();
        if idle.is_empty() {
            return;
        }
        nearest_first(&mut points, &idle);
        let idle = text::list(&idle);
        moment.say(if points.is_empty() {
            format!("`points`: nothing matches {idle}, since the module shows no activations")
        } else {
            format!("`points`: no hook point matches {idle}; there are: {}", text::list(&points))
        });
    }
}

/// Where there are too many names to say, those that were perhaps meant come first.
fn nearest_first(points: &mut [String], idle: &[String]) {
    if points.len() > text::MAX_LISTED {
        let likeness = |point: &String| {
            let each = idle.iter().map(|pattern| strsim::jaro_winkler(pattern, point));
            each.fold(0.0, f64::max)
        };
        points.sort_by(|one, other| likeness(other).total_cmp(&likeness(one)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_names_the_nearest_come_first_and_of_a_few_none_is_moved() {
        let mut many: Vec<_> = (0..30).map(|at| format!("blocks.{at}.mlp")).collect();
        many.push("head".to_owned());
        nearest_first(&mut many, &["heat".to_owned()]);
        assert_eq!(many[0], "head");
        let mut few = vec!["blocks.0.mlp".to_owned(), "head".to_owned()];
        nearest_first(&mut few, &["heat".to_owned()]);
        assert_eq!(few[0], "blocks.0.mlp");
    }
}
