//! Which activations are looked at, and which patterns choose none.

use std::cell::RefCell;

use tenterhook_core::{Moment, Pattern};

use super::NanGuardOptions;
use crate::text;

/// The patterns of `points`, and until a batch is over the points that were asked about.
#[derive(Clone, Debug)]
pub(super) struct Points {
    patterns: Vec<Pattern>,
    /// `None` once it is known which patterns choose nothing.
    asked: RefCell<Option<Vec<String>>>,
}

impl Points {
    pub(super) fn new(patterns: Vec<Pattern>, options: &NanGuardOptions) -> Points {
        // What nobody chose needs no proof that it chooses something.
        let chosen = options.check_activations && options.points != NanGuardOptions::default().points;
        Points { patterns, asked: RefCell::new(chosen.then(Vec::new)) }
    }

    /// Whether this point is looked at.
    pub(super) fn want(&self, point: &str) -> bool {
        if let Some(asked) = &mut *self.asked.borrow_mut()
            && !asked.iter().any(|known| known == point)
        {
            asked.push(point.to_owned());
        }
        self.patterns.iter().any(|pattern| pattern.matches(point))
    }

    /// After the first batch: says which patterns choose nothing, so that a slip is not mistaken for silence.
    pub(super) fn say_what_matches_nothing(&mut self, moment: &Moment<'_>) {
        let Some(points) = self.asked.take() else { return };
        let chooses = |pattern: &&Pattern| points.iter().any(|point| pattern.matches(point));
        let idle = self.patterns.iter().filter(|pattern| !chooses(pattern));
        let idle: Vec<_> = idle.map(ToString::to_string).collect();
        if idle.is_empty() {
            return;
        }
        let idle = text::listed(&idle);
        moment.say(if points.is_empty() {
            format!("`points`: nothing matches {idle}, since the module shows no activations")
        } else {
            format!("`points`: no hook point matches {idle}; there are: {}", text::listed(&points))
        });
    }
}
