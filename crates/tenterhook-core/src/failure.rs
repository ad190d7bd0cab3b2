//! What happens when something fails: policies, and the record of a failure.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::{Deserialize, Serialize};

use crate::backtraces::FailureTrace;
use crate::progress::epoch_label;

/// Any error, as hooks and modules may return it.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What a hook's error does to the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum OnError {
    /// Ends the run: `on_exception`, then teardown.
    Abort,
    /// Is reported; the hook stays. A panic disables it all the same.
    Warn,
    /// Is reported; the hook is disabled after `max_failures`, or at once after a panic.
    Disable,
}

impl std::fmt::Display for OnError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            OnError::Abort => "abort",
            OnError::Warn => "warn",
            OnError::Disable => "disable",
        })
    }
}

/// A hook's failure policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// What an error does.
    pub on_error: OnError,
    /// After how many failures `disable` disables.
    pub max_failures: u32,
}

impl Policy {
    /// Ends the run; the default of controllers, update hooks and checkpoints.
    pub const ABORT: Policy = Policy { on_error: OnError::Abort, max_failures: 3 };
    /// Reports and goes on.
    pub const WARN: Policy = Policy { on_error: OnError::Warn, max_failures: 3 };
    /// Reports, and disables after three failures; the default of observers and sinks.
    pub const DISABLE: Policy = Policy { on_error: OnError::Disable, max_failures: 3 };
}

/// Where a failure came from.
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

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Origin::Hook(name) => write!(f, "hook `{name}`"),
            Origin::Module => f.write_str("module"),
            Origin::Data => f.write_str("data"),
            Origin::Strategy => f.write_str("strategy"),
            Origin::Trainer => f.write_str("trainer"),
        }
    }
}

/// One failure: who, where, when and what.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.text())]
pub struct Failure {
    /// Who failed.
    pub origin: Origin,
    /// The event or action it happened in, such as `on_train_batch_end` or `training_step`.
    pub place: &'static str,
    /// The epoch it happened in, from 0.
    pub epoch: u64,
    /// The completed optimizer steps at that time.
    pub step: u64,
    /// Whether it was a panic.
    pub panicked: bool,
    /// What went wrong.
    #[source]
    pub error: BoxError,
    /// The way to it, where [backtraces are kept](crate::backtraces::capture).
    pub trace: Option<Box<FailureTrace>>,
}

impl Failure {
    fn text(&self) -> String {
        let Failure { origin, place, epoch, step, panicked, error, .. } = self;
        match origin {
            // Its errors say themselves what is wrong, and where.
            Origin::Trainer if !panicked => error.to_string(),
            origin => {
                let how = if *panicked { "panicked" } else { "failed" };
                let epoch = epoch_label(*epoch, None);
                format!("{origin} {how} in {place} ({epoch}, step {step}): {error}")
            }
        }
    }
}

/// What a runner did about a failure that did not end the run.
#[derive(Debug)]
pub struct Contained {
    /// The failure.
    pub failure: Failure,
    /// How often the hook has failed, this time included.
    pub count: u32,
    /// Whether the hook was disabled because of it.
    pub disabled: bool,
    /// Whether the run was ending for another failure already.
    pub afterwards: bool,
}

/// The error as it is, if it can be put into words. One that panics when it is asked for them would take down whoever tells of
/// it, so another one stands in its place.
#[must_use]
pub fn ensure_displayable(error: BoxError) -> BoxError {
    match catch_unwind(AssertUnwindSafe(|| error.to_string())) {
        Ok(_) => error,
        Err(panic) => format!("an error that panics when it is shown: {}", panic_message(&*panic)).into(),
    }
}

/// The text of a panic.
#[must_use]
pub fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a message")
        .to_owned()
}
