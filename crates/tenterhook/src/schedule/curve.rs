//! Schedules that depend on the number of steps only, with an optional warm-up.

use tenterhook_core::{BoxError, OptionError};

use super::{Checked, ScheduleError, ScheduleStep, Scheduler};

/// A linear warm-up: its steps, and the fraction of the curve's first factor at which it starts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Warmup {
    pub(super) steps: u64,
    pub(super) from: f64,
}

impl Warmup {
    pub(super) const NONE: Warmup = Warmup { steps: 0, from: 1.0 };

    fn fraction(self, count: u64) -> f64 {
        self.from + (1.0 - self.from) * (count as f64 / self.steps as f64)
    }

    fn rule(self) -> Rule {
        let what = format!("`warmup_from = {}` must be a fraction between 0 and 1", self.from);
        ((0.0..=1.0).contains(&self.from), OptionError::new("warmup_from", what))
    }
}

/// The default of `warmup_from`. With 0 the first step would change nothing.
pub(super) fn warmup_from() -> f64 {
    0.01
}

/// A schedule that is a pure function of the number of steps.
pub(super) trait Curve: Send + 'static {
    const NAME: &'static str;

    fn rules(&self) -> Vec<Rule>;

    fn warmup(&self) -> Warmup {
        Warmup::NONE
    }

    /// Its length in steps, including the warm-up, if it is set.
    fn steps(&self) -> Option<u64> {
        None
    }

    /// The factor n steps after the warm-up.
    fn at(&self, count: u64, length: Length) -> Result<f64, ScheduleError>;
}

impl<C: Curve> Checked for C {
    fn problem(&self) -> Option<OptionError> {
        first_problem(self.rules().into_iter().chain([self.warmup().rule()]))
    }
}

impl<C: Curve> Scheduler for C {
    fn factor(&mut self, step: ScheduleStep) -> Result<f64, BoxError> {
        if step.count == 0
            && let Some(problem) = self.problem()
        {
            return Err(ScheduleError::Options(format!("`{}`: {problem}", C::NAME)).into());
        }
        let warmup = self.warmup();
        let steps = self.steps().or(step.total).map(|steps| steps.saturating_sub(warmup.steps));
        let length = Length { schedule: C::NAME, steps };
        if step.count < warmup.steps {
            return Ok(self.at(0, length)? * warmup.fraction(step.count));
        }
        Ok(self.at(step.count - warmup.steps, length)?)
    }
}

/// The length of a curve without its warm-up, if it is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Length {
    schedule: &'static str,
    steps: Option<u64>,
}

impl Length {
    /// The length, at least 1: training may be shorter than the warm-up.
    pub(super) fn known(self) -> Result<u64, ScheduleError> {
        let Length { schedule, steps } = self;
        steps.map(|steps| steps.max(1)).ok_or(ScheduleError::UnknownLength { schedule })
    }

    /// The fraction of the length after n steps, at most 1.
    pub(super) fn fraction(self, count: u64) -> Result<f64, ScheduleError> {
        let steps = self.known()?;
        Ok(count.min(steps) as f64 / steps as f64)
    }
}

/// A condition, and the problem if it is false.
pub(super) type Rule = (bool, OptionError);

pub(super) fn first_problem(rules: impl IntoIterator<Item = Rule>) -> Option<OptionError> {
    rules.into_iter().find(|(holds, _)| !holds).map(|(_, problem)| problem)
}

pub(super) fn non_negative(key: &str, value: f64) -> Rule {
    let what = format!("`{key} = {value}` must be a number of 0 or more");
    (value.is_finite() && value >= 0.0, OptionError::new(key, what))
}

pub(super) fn at_least_one(key: &str, value: u64) -> Rule {
    (value > 0, OptionError::new(key, format!("`{key} = 0` must be at least 1")))
}
