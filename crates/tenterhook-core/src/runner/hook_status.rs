//! The status of a hook, and the application of its failure policy.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::accounting::Account;
use crate::account::Budget;
use crate::backtraces::{self, FailureTrace, PanicError};
use crate::failure::{BoxError, Contained, Failure, OnError, Origin, ensure_displayable, panic_message};
use crate::hook::HookResult;
use crate::roster::HookInfo;
use crate::spec::HookSpec;

pub(super) struct HookStatus {
    pub(super) enabled: bool,
    /// Whether the hook was registered as enabled.
    pub(super) registered: bool,
    /// The hook was added during the run.
    pub(super) added: bool,
    pub(super) failures: u32,
    /// The hook was disabled after a failure, and has not been enabled since.
    pub(super) gave_up: bool,
    /// Every loss is read for the hook.
    pub(super) wants_losses: bool,
    pub(super) budget: Option<Budget>,
    pub(super) account: Box<Account>,
}

/// An error or a panic of a hook.
pub(super) struct HookError {
    panicked: bool,
    error: BoxError,
    trace: Option<Box<FailureTrace>>,
}

impl HookError {
    pub(super) fn error(error: BoxError) -> HookError {
        match error.downcast::<PanicError>() {
            Ok(mut panicked) => {
                HookError { panicked: true, trace: panicked.take_backtrace(), error: panicked }
            }
            Err(error) => {
                let error = ensure_displayable(error);
                HookError { panicked: false, trace: backtraces::of_error(&error), error }
            }
        }
    }

    pub(super) fn panic(payload: &(dyn std::any::Any + Send)) -> HookError {
        let error = panic_message(payload).into();
        HookError { panicked: true, error, trace: backtraces::of_last_panic() }
    }

    /// The failure of this hook at this epoch and step.
    pub(super) fn into_failure(self, hook: &str, place: &'static str, (epoch, step): (u64, u64)) -> Failure {
        let HookError { panicked, error, trace } = self;
        Failure { origin: Origin::Hook(hook.to_owned()), place, epoch, step, panicked, error, trace }
    }
}

/// Calls a hook and catches its panic.
pub(super) fn attempt<T>(call: impl FnOnce() -> HookResult<T>) -> Result<T, HookError> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => result.map_err(HookError::error),
        Err(panic) => Err(HookError::panic(&*panic)),
    }
}

impl HookStatus {
    pub(super) fn new(enabled: bool, budget: Option<Budget>) -> HookStatus {
        HookStatus {
            enabled,
            registered: enabled,
            added: false,
            failures: 0,
            gave_up: false,
            wants_losses: false,
            budget,
            account: Box::default(),
        }
    }

    /// Counts a failure and applies the hook's policy: `Err` aborts the run, any other failure is contained.
    /// `Ok(true)` if the hook must be disabled.
    pub(super) fn judge(
        &mut self,
        spec: &HookSpec,
        error: HookError,
        place: &'static str,
        at: (u64, u64),
        contained: &mut Vec<Contained>,
    ) -> Result<bool, Failure> {
        self.failures += 1;
        let panicked = error.panicked;
        let failure = error.into_failure(&spec.name, place, at);
        let policy = spec.policy;
        if policy.on_error == OnError::Abort {
            return Err(failure);
        }
        let too_many = policy.on_error == OnError::Disable && self.failures >= policy.max_failures;
        let disabled = self.enabled && !self.gave_up && (panicked || too_many);
        self.gave_up |= disabled;
        contained.push(Contained { failure, count: self.failures, disabled, afterwards: false });
        Ok(disabled)
    }

    pub(super) fn info(&self, spec: &HookSpec) -> HookInfo {
        HookInfo {
            name: spec.name.clone(),
            kind: spec.kind(),
            tier: spec.tier,
            ranks: spec.ranks,
            enabled: self.enabled,
            on_error: spec.policy.on_error,
            failures: self.failures,
            budget: self.budget,
        }
    }
}
