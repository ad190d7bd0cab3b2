//! Learning-rate schedules, independent of the engine: a schedule yields a factor, and the engine
//! multiplies every parameter group's own learning rate by it.
//!
//! A schedule is its own options: `Cosine { min_factor: 0.1, ..Cosine::default() }` in code is
//! `use = "cosine"` with `min_factor = 0.1` in a configuration. Those with the name of one of
//! torch's yield the same numbers as that one. `Plateau` also remembers what it has seen, so its options
//! are set one by one: `let mut plateau = Plateau::default(); plateau.factor = 0.5;`.

mod curve;
mod cycle;
mod plateau;
mod shapes;
mod steps;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tenterhook_core::{BoxError, OptionError};

pub use cycle::{Anneal, OneCycle};
pub use plateau::{Direction, Plateau, ThresholdMode};
pub use shapes::{Constant, Cosine, Exponential, InverseSqrt, Linear};
pub use steps::{MultiStep, Step};

use crate::registry::Maker;

/// Where a schedule stands when it is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tick {
    /// How often it has stepped: 0 before training, and 1 after its first step.
    pub count: u64,
    /// How often it will have stepped at the end of training, where that is known.
    pub of: Option<u64>,
    /// The metric it waits for, when it is one on a plateau.
    pub metric: Option<f64>,
}

/// Changes the learning rates of an optimizer over time.
pub trait Scheduler: Send + 'static {
    /// What every learning rate is multiplied by from here on. Asked once with a count of 0 before
    /// training, and then after every step of its own.
    fn factor(&mut self, tick: Tick) -> Result<f64, BoxError>;

    /// What it remembers beyond the count, for a checkpoint.
    fn state(&self) -> Value {
        Value::Null
    }

    /// What it remembered.
    fn load_state(&mut self, _state: &Value) -> Result<(), BoxError> {
        Ok(())
    }
}

/// Why a schedule has no factor to give.
#[derive(Debug, thiserror::Error)]
pub enum ScheduleError {
    /// Its options cannot work.
    #[error("{0}")]
    Options(String),
    /// It ends with training, and nobody knows when that is.
    #[error(
        "`{schedule}` lasts as long as training, whose length is unknown; give it `steps`, or limit \
         training with `max_steps` or `max_epochs`"
    )]
    UnknownLength {
        /// The schedule's name.
        schedule: &'static str,
    },
    /// It judges a metric and was given none.
    #[error("`plateau` judges a metric; name the one to judge with `monitor`")]
    NoMetric,
}

/// A closure as a schedule: it gets the [`Tick`] and yields the factor.
///
/// ```
/// use tenterhook::schedule::{Scheduler, Tick, from_fn};
///
/// let mut halved_every_ten = from_fn(|tick| 0.5_f64.powf((tick.count / 10) as f64));
/// assert_eq!(halved_every_ten.factor(Tick { count: 25, ..Tick::default() })?, 0.25);
/// # Ok::<(), tenterhook::BoxError>(())
/// ```
pub fn from_fn<F: FnMut(Tick) -> f64 + Send + 'static>(factor: F) -> FromFn<F> {
    FromFn(factor)
}

/// See [`from_fn`].
pub struct FromFn<F>(F);

impl<F: FnMut(Tick) -> f64 + Send + 'static> Scheduler for FromFn<F> {
    fn factor(&mut self, tick: Tick) -> Result<f64, BoxError> {
        Ok((self.0)(tick))
    }
}

/// A schedule that a configuration can name.
pub(crate) struct BuiltIn {
    /// What stands behind `use`.
    pub(crate) name: &'static str,
    /// What it is for, in one line.
    pub(crate) purpose: &'static str,
    pub(crate) maker: fn(String) -> Maker<Box<dyn Scheduler>>,
}

/// Options that can say what is wrong with them.
pub(crate) trait Checked {
    /// What cannot work.
    fn problem(&self) -> Option<OptionError>;
}

fn maker<S: Scheduler + Checked + DeserializeOwned + JsonSchema>(name: String) -> Maker<Box<dyn Scheduler>> {
    let make = |schedule: S| match schedule.problem() {
        Some(problem) => Err(problem),
        None => Ok(Box::new(schedule) as Box<dyn Scheduler>),
    };
    Maker::new(name, make)
}

macro_rules! built_ins {
    ($($name:literal $Schedule:ident $purpose:literal;)*) => {
        /// Every built-in schedule. This list is the only place that knows them all.
        pub(crate) const BUILT_INS: &[BuiltIn] =
            &[$(BuiltIn { name: $name, purpose: $purpose, maker: maker::<$Schedule> },)*];
    };
}

built_ins! {
    "constant" Constant "multiplies by one factor, for some time or always";
    "linear" Linear "goes along a straight line from one factor to another";
    "cosine" Cosine "comes down along half a cosine";
    "exponential" Exponential "multiplies by the same number at every step";
    "step" Step "multiplies by the same number after every so many steps";
    "multi_step" MultiStep "multiplies by the same number at given steps";
    "one_cycle" OneCycle "rises to the full learning rate and comes down to next to nothing";
    "inverse_sqrt" InverseSqrt "rises, then falls with the root of the number of steps, as for transformers";
    "plateau" Plateau "lowers the learning rate when a metric stops improving";
}

#[cfg(test)]
mod tests;
