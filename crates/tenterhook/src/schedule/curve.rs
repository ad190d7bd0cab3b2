//! What all schedules that depend on nothing but the count have in common: a warm-up and a length.

use tenterhook_core::{BoxError, OptionError};

use super::{Checked, ScheduleError, Tick};

/// The warm-up of a curve: the ticks it takes, and the share of the curve's first factor it begins with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Warmup {
    pub(super) ticks: u64,
    pub(super) from: f64,
}

impl Warmup {
    pub(super) const NONE: Warmup = Warmup { ticks: 0, from: 1.0 };

    fn share(self, count: u64) -> f64 {
        self.from + (1.0 - self.from) * (count as f64 / self.ticks as f64)
    }

    pub(super) fn problem(self) -> Option<OptionError> {
        let what = || format!("`warmup_from = {}` must be a share between 0 and 1", self.from);
        (!(0.0..=1.0).contains(&self.from)).then(|| OptionError::new("warmup_from", what()))
    }
}

/// The share of the learning rate that a warm-up begins with where nothing else is said: not 0, with which a
/// step would be wasted.
pub(super) fn warmup_from() -> f64 {
    0.01
}

/// A pure function of the count.
pub(super) trait Curve: Checked {
    const NAME: &'static str;

    fn warmup(&self) -> Warmup {
        Warmup::NONE
    }

    /// How many ticks it is said to last, warm-up included.
    fn steps(&self) -> Option<u64> {
        None
    }

    /// The factor after so many ticks since the warm-up.
    fn at(&self, count: u64, length: Length) -> Result<f64, ScheduleError>;
}

/// How long a curve lasts without its warm-up, if that is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Length {
    schedule: &'static str,
    ticks: Option<u64>,
}

impl Length {
    /// At least 1: a training that is shorter than its warm-up never leaves it, and that is no mistake.
    pub(super) fn known(self) -> Result<u64, ScheduleError> {
        let Length { schedule, ticks } = self;
        ticks.map(|ticks| ticks.max(1)).ok_or(ScheduleError::UnknownLength { schedule })
    }

    /// Which share of it has passed after so many ticks; it stays at its end.
    pub(super) fn share(self, count: u64) -> Result<f64, ScheduleError> {
        let ticks = self.known()?;
        Ok(count.min(ticks) as f64 / ticks as f64)
    }
}

/// The factor of a curve, warm-up included.
pub(super) fn factor<C: Curve>(curve: &C, tick: Tick) -> Result<f64, BoxError> {
    if tick.count == 0
        && let Some(problem) = curve.problem()
    {
        return Err(ScheduleError::Options(format!("`{}`: {problem}", C::NAME)).into());
    }
    let warmup = curve.warmup();
    let ticks = curve.steps().or(tick.of).map(|ticks| ticks.saturating_sub(warmup.ticks));
    let length = Length { schedule: C::NAME, ticks };
    if tick.count < warmup.ticks {
        return Ok(curve.at(0, length)? * warmup.share(tick.count));
    }
    Ok(curve.at(tick.count - warmup.ticks, length)?)
}

macro_rules! schedulers {
    ($($Curve:ident)*) => {$(
        impl super::Scheduler for $Curve {
            fn factor(&mut self, tick: super::Tick) -> Result<f64, ::tenterhook_core::BoxError> {
                super::curve::factor(self, tick)
            }
        }
    )*};
}

pub(super) use schedulers;

/// Whether something holds, and what is wrong where it does not.
pub(super) type Rule = (bool, OptionError);

/// `None` when all of these hold, else what the first of them says.
pub(super) fn all<const N: usize>(rules: [Rule; N]) -> Option<OptionError> {
    rules.into_iter().find(|(holds, _)| !holds).map(|(_, problem)| problem)
}

/// That a factor is a number of 0 or more.
pub(super) fn is_factor(key: &str, value: f64) -> Rule {
    let what = format!("`{key} = {value}` must be a number of 0 or more");
    (value.is_finite() && value >= 0.0, OptionError::new(key, what))
}

/// That a count is at least 1.
pub(super) fn is_counted(key: &str, value: u64) -> Rule {
    (value > 0, OptionError::new(key, format!("`{key} = 0` must be at least 1")))
}
