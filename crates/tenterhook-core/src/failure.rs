//! Failures, and the policies that decide what they do to the run.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::{Deserialize, Serialize};

use crate::backtraces::FailureTrace;
use crate::progress::epoch_label;

/// Any error that a hook or module returns.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The effect of a hook's error on the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum OnError {
    /// The run ends: `on_exception`, then teardown.
    Abort,
    /// The error is reported and the hook stays enabled. A panic disables it.
    Warn,
    /// The error is reported. The hook is disabled after `max_failures`, or immediately after a panic.
    Disable,
}

impl std::fmt::Display for OnError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.serialize(f)
    }
}

/// A hook's failure policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The effect of an error on the run.
    pub on_error: OnError,
    /// The number of failures after which `disable` disables the hook.
    pub max_failures: u32,
}

impl Policy {
    /// End the run; the default of controllers and update hooks.
    pub const ABORT: Policy = Policy { on_error: OnError::Abort, max_failures: 3 };
    /// Report and continue.
    pub const WARN: Policy = Policy { on_error: OnError::Warn, max_failures: 3 };
    /// Report, and disable the hook after three failures; the default of observers.
    pub const DISABLE: Policy = Policy { on_error: OnError::Disable, max_failures: 3 };
}

impl Default for Policy {
    fn default() -> Policy {
        Policy::DISABLE
    }
}

/// The origin of a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// A hook.
    Hook(String),
    /// The module.
    Module,
    /// The data.
    Data,
    /// The strategy.
    Strategy,
    /// The trainer itself.
    Trainer,
}

impl Origin {
    /// The name of the module where reports and checkpoints name hooks. No hook can have it.
    pub const MODULE: &str = "module";
    /// The name of the trainer where reports and checkpoints name hooks. No hook can have it.
    pub const TRAINER: &str = "trainer";
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Origin::Hook(name) => write!(f, "hook `{name}`"),
            Origin::Module => f.write_str(Origin::MODULE),
            Origin::Data => f.write_str("data"),
            Origin::Strategy => f.write_str("strategy"),
            Origin::Trainer => f.write_str(Origin::TRAINER),
        }
    }
}

/// A failure: where it came from, when, and the error.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.text())]
pub struct Failure {
    /// The origin of the failure.
    pub origin: Origin,
    /// The event or action in which it happened, such as `on_train_batch_end` or `training_step`.
    pub place: &'static str,
    /// The epoch, from 0.
    pub epoch: u64,
    /// The number of completed optimizer steps.
    pub step: u64,
    /// Whether it was a panic.
    pub panicked: bool,
    /// The error.
    #[source]
    pub error: BoxError,
    /// The backtrace, if [backtraces are captured](crate::backtraces::capture).
    pub trace: Option<Box<FailureTrace>>,
}

impl Failure {
    fn text(&self) -> String {
        let Failure { origin, place, epoch, step, panicked, error, .. } = self;
        match origin {
            // Errors of the trainer name their place themselves.
            Origin::Trainer if !panicked => error.to_string(),
            origin => {
                let how = if *panicked { "panicked" } else { "failed" };
                let epoch = epoch_label(*epoch, None);
                format!("{origin} {how} in {place} ({epoch}, step {step}): {error}")
            }
        }
    }
}

/// A failure that did not end the run.
#[derive(Debug)]
pub struct Contained {
    /// The failure.
    pub failure: Failure,
    /// How often the hook has failed, including this time.
    pub count: u32,
    /// Whether the failure disabled the hook.
    pub disabled: bool,
    /// Whether the run was already ending because of another failure.
    pub afterwards: bool,
}

/// Returns the error, or a substitute if its `Display` panics, for safe reporting.
#[must_use]
pub fn ensure_displayable(error: BoxError) -> BoxError {
    match catch_unwind(AssertUnwindSafe(|| error.to_string())) {
        Ok(_) => error,
        Err(panic) => format!("an error whose `Display` panics: {}", panic_message(&*panic)).into(),
    }
}

/// The message of a panic.
#[must_use]
pub fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a message")
        .to_owned()
}
