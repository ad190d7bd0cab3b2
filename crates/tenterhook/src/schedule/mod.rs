//! Learning-rate schedules, independent of the engine. A schedule returns a factor, by which the base
//! learning rates of all parameter groups are multiplied.
//!
//! The fields of a schedule are its options: `Cosine { min_factor: 0.1, ..Cosine::default() }` in code is
//! `use = "cosine"` with `min_factor = 0.1` in a configuration. Schedules that are named like those of
//! PyTorch return the same numbers. `Plateau` has private state, so its options are set one by one: `let mut
//! plateau = Plateau::default(); plateau.factor = 0.5;`.

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

use crate::registry::Factory;

/// The progress of a schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ScheduleStep {
    /// Number of steps of the schedule: 0 before training, and 1 after its first step.
    pub count: u64,
    /// Number of its steps at the end of training, if known.
    pub total: Option<u64>,
    /// The value of the monitored metric, if there is one.
    pub metric: Option<f64>,
}

/// A learning-rate schedule.
pub trait Scheduler: Send + 'static {
    /// The factor of the base learning rates. Called once with a count of 0 before training, and then after
    /// each step of the schedule.
    fn factor(&mut self, step: ScheduleStep) -> Result<f64, BoxError>;

    /// Its state for a checkpoint, without the number of steps.
    fn state(&self) -> Value {
        Value::Null
    }

    /// Loads its state from a checkpoint.
    fn load_state(&mut self, _state: &Value) -> Result<(), BoxError> {
        Ok(())
    }
}

/// An error of a schedule.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// Its options are invalid.
    #[error("{0}")]
    Options(String),
    /// Its length is that of training, which is unknown.
    #[error(
        "the length of `{schedule}` is that of training, which is unknown; give it `steps`, or limit \
         training with `max_steps` or `max_epochs`"
    )]
    UnknownLength {
        /// The schedule's name.
        schedule: &'static str,
    },
    /// It needs the value of a metric.
    #[error("`plateau` needs a metric; name it with `monitor`")]
    NoMetric,
}

/// A schedule from a closure, which maps the [`ScheduleStep`] to the factor.
///
/// ```
/// use tenterhook::schedule::{Scheduler, ScheduleStep, from_fn};
///
/// let mut halved_every_ten = from_fn(|step| 0.5_f64.powf((step.count / 10) as f64));
/// assert_eq!(halved_every_ten.factor(ScheduleStep { count: 25, ..ScheduleStep::default() })?, 0.25);
/// # Ok::<(), tenterhook::BoxError>(())
/// ```
pub fn from_fn<F: FnMut(ScheduleStep) -> f64 + Send + 'static>(factor: F) -> FromFn<F> {
    FromFn(factor)
}

/// See [`from_fn`].
pub struct FromFn<F>(F);

impl<F: FnMut(ScheduleStep) -> f64 + Send + 'static> Scheduler for FromFn<F> {
    fn factor(&mut self, step: ScheduleStep) -> Result<f64, BoxError> {
        Ok((self.0)(step))
    }
}

/// A built-in schedule.
pub(crate) struct BuiltIn {
    /// Its name in `use`.
    pub(crate) name: &'static str,
    /// Its purpose, in one line.
    pub(crate) purpose: &'static str,
    pub(crate) factory: fn(String) -> Factory<Box<dyn Scheduler>>,
}

/// Options that can be invalid.
pub(crate) trait Checked {
    /// The first problem of the options.
    fn problem(&self) -> Option<OptionError>;
}

fn factory<S: Scheduler + Checked + DeserializeOwned + JsonSchema>(
    name: String,
) -> Factory<Box<dyn Scheduler>> {
    let build = |schedule: S| match schedule.problem() {
        Some(problem) => Err(problem),
        None => Ok(Box::new(schedule) as Box<dyn Scheduler>),
    };
    Factory::new(name, build)
}

macro_rules! built_ins {
    ($($name:literal $Schedule:ident $purpose:literal;)*) => {
        /// All built-in schedules.
        pub(crate) const BUILT_INS: &[BuiltIn] =
            &[$(BuiltIn { name: $name, purpose: $purpose, factory: factory::<$Schedule> },)*];
    };
}

built_ins! {
    "constant" Constant "constant factor, for some steps or always";
    "linear" Linear "linear change from one factor to another";
    "cosine" Cosine "cosine annealing";
    "exponential" Exponential "exponential decay";
    "step" Step "decay by a factor at regular intervals";
    "multi_step" MultiStep "decay by a factor at given steps";
    "one_cycle" OneCycle "one-cycle policy: rise to the full learning rate, then decay to nearly zero";
    "inverse_sqrt" InverseSqrt "linear warm-up, then inverse square root decay, as for transformers";
    "plateau" Plateau "reduces the learning rate when a metric stops improving";
}

#[cfg(test)]
mod tests;
