//! What the runner keeps of a hook of any kind, and how it judges the hook's failures.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::accounting::Account;
use crate::account::Budget;
use crate::backtraces::{self, Panicked, Trace};
use crate::failure::{
    BoxError, Contained, Failure, OnError, Origin, Policy, ensure_displayable, panic_message,
};
use crate::hook::HookResult;
use crate::roster::HookInfo;
use crate::spec::HookSpec;

pub(super) struct HookStatus {
    pub(super) name: String,
    pub(super) policy: Policy,
    pub(super) enabled: bool,
    /// Whether it was enabled when it was registered.
    pub(super) registered: bool,
    /// It was added while the run went on.
    pub(super) added: bool,
    pub(super) failures: u32,
    /// It failed once too often, and has not been enabled since.
    pub(super) given_up: bool,
    /// Every loss is read for it.
    pub(super) wants_losses: bool,
    pub(super) budget: Option<Budget>,
    pub(super) account: Box<Account>,
}

/// What went wrong in a hook.
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
        HookError { panicked: true, error: panic_message(payload).into(), trace: backtraces::of_last_panic() }
    }
}

/// Calls a hook, and catches what goes wrong in it.
pub(super) fn attempt<T>(call: impl FnOnce() -> HookResult<T>) -> Result<T, HookError> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(HookError::error(error)),
        Err(panic) => Err(HookError::panic(&*panic)),
    }
}

impl HookStatus {
    pub(super) fn new(name: String, policy: Policy) -> HookStatus {
        HookStatus {
            name,
            policy,
            enabled: true,
            registered: true,
            added: false,
            failures: 0,
            given_up: false,
            wants_losses: false,
            budget: None,
            account: Box::default(),
        }
    }

    /// Counts a failure and judges it by the hook's policy: an error is what aborts the run, every
    /// other failure is contained. `Ok(true)` when the hook must be disabled.
    pub(super) fn judge(
        &mut self,
        error: HookError,
        place: &'static str,
        at: (u64, u64),
        contained: &mut Vec<Contained>,
    ) -> Result<bool, Failure> {
        self.failures += 1;
        let panicked = error.panicked;
        let failure = self.failure(error, place, at);
        if self.policy.on_error == OnError::Abort {
            return Err(failure);
        }
        let too_many = self.policy.on_error == OnError::Disable && self.failures >= self.policy.max_failures;
        let disabled = self.enabled && !self.given_up && (panicked || too_many);
        self.given_up |= disabled;
        contained.push(Contained { failure, count: self.failures, disabled, afterwards: false });
        Ok(disabled)
    }

    /// What went wrong, with who, where and at which epoch and step.
    pub(super) fn failure(
        &self,
        error: HookError,
        place: &'static str,
        (epoch, step): (u64, u64),
    ) -> Failure {
        let HookError { panicked, error, trace } = error;
        Failure { origin: Origin::Hook(self.name.clone()), place, epoch, step, panicked, error, trace }
    }

    pub(super) fn info(&self, spec: &HookSpec) -> HookInfo {
        let HookStatus { name, policy, enabled, failures, budget, .. } = self;
        HookInfo {
            name: name.clone(),
            kind: spec.kind(),
            tier: spec.tier,
            ranks: spec.ranks,
            enabled: *enabled,
            on_error: policy.on_error,
            failures: *failures,
            budget: *budget,
        }
    }
}
