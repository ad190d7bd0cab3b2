//! Looking every so many steps: what the plan is told of it, and what is said where the run is too short.

use tenterhook_core::{Access, Cadence, Moment, Progress};

/// The most bins that a histogram may have: a line of `histograms.jsonl` holds all of them.
pub(crate) const MOST_BINS: usize = 10_000;

/// A hook's `log_frequency`, and what it is when nobody sets it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) every: u64,
    pub(crate) default: u64,
}

impl Pace {
    /// Whether the step at hand is one to look at.
    pub(crate) fn is_due(self, progress: &Progress) -> bool {
        progress.current_step().is_multiple_of(self.every)
    }

    /// What the plan is told. What nobody chose is no reason to refuse a short run.
    pub(crate) fn access(self) -> Access {
        let every = Cadence::Steps(self.every);
        if self.every == self.default { Access::none().paced(every) } else { Access::none().every(every) }
    }

    /// Says that the run is too short, where nobody chose how often to look.
    pub(crate) fn say_that_it_is_too_short(self, moment: &Moment<'_>, what: &str) {
        let (run, every) = (moment.run, self.every);
        let Some(steps) = run.total_steps else { return };
        if every == self.default && steps < every && !run.fast_dev_run {
            moment.say(format!(
                "`log_frequency` is {every}, and this run has only {steps} steps, so no {what} will be looked at"
            ));
        }
    }
}
