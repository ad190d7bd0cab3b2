//! Which gradients vanish or explode, and who has been said to.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use tenterhook_core::Moment;

use super::options::GradientMonitorOptions;
use crate::support::text::list;

/// The parameters whose gradients vanished or exploded when they were last looked at.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Flags {
    vanishing: Flag,
    exploding: Flag,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Flag {
    names: BTreeSet<String>,
    /// Those that have not been said yet, in the order in which they came.
    #[serde(skip)]
    news: Vec<String>,
}

impl Flag {
    fn note(&mut self, name: &str, is_so: bool) {
        if !is_so {
            self.names.remove(name);
        } else if !self.names.contains(name) {
            self.names.insert(name.to_owned());
            self.news.push(name.to_owned());
        }
    }

    fn say_news(&mut self, moment: &Moment<'_>, what: &str) {
        if !self.news.is_empty() {
            let (step, names) = (moment.progress.current_step(), list(&self.news));
            moment.say(format!("at step {step} the gradient norm {what}: {names}"));
            self.news.clear();
        }
    }
}

impl Flags {
    /// How one gradient is.
    pub(super) fn note(&mut self, name: &str, vanishes: bool, explodes: bool) {
        self.vanishing.note(name, vanishes);
        self.exploding.note(name, explodes);
    }

    /// Says who has begun to vanish or to explode since the last time.
    pub(super) fn say_news(&mut self, moment: &Moment<'_>, options: &GradientMonitorOptions) {
        let (low, high) = (options.vanishing_threshold, options.exploding_threshold);
        self.vanishing.say_news(moment, &format!("vanishes (below {low:?}) in"));
        self.exploding.say_news(moment, &format!("explodes (above {high:?}, or not finite) in"));
    }
}
