//! What the runner keeps of a hook of any kind, and how it judges the hook's failures.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::accounting::Account;
use crate::account::Budget;
use crate::backtraces::{self, Panicked, Trace};
use crate::failure::{BoxError, Contained, Failure, OnError, Origin, Policy, panic_message, speakable};
use crate::hook::HookResult;
use crate::roster::HookInfo;
use crate::spec::HookSpec;

pub(super) struct Standing {
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
pub(super) struct Mishap {
    panicked: bool,
    error: BoxError,
    trace: Option<Box<Trace>>,
}

impl Mishap {
    pub(super) fn error(error: BoxError) -> Mishap {
        match error.downcast::<Panicked>() {
            Ok(mut panicked) => Mishap { panicked: true, trace: panicked.take_trace(), error: panicked },
            Err(error) => {
                let error = speakable(error);
                Mishap { panicked: false, trace: backtraces::of_error(&error), error }
            }
        }
    }

    pub(super) fn panic(payload: &(dyn std::any::Any + Send)) -> Mishap {
        Mishap { panicked: true, error: panic_message(payload).into(), trace: backtraces::of_panic() }
    }
}

/// Calls a hook, and catches what goes wrong in it.
pub(super) fn attempt<T>(call: impl FnOnce() -> HookResult<T>) -> Result<T, Mishap> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(Mishap::error(error)),
        Err(panic) => Err(Mishap::panic(&*panic)),
    }
}

impl Standing {
    pub(super) fn new(name: String, policy: Policy) -> Standing {
        Standing {
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
        mishap: Mishap,
        place: &'static str,
        at: (u64, u64),
        contained: &mut Vec<Contained>,
    ) -> Result<bool, Failure> {
        self.failures += 1;
        let panicked = mishap.panicked;
        let failure = self.failure(mishap, place, at);
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
    pub(super) fn failure(&self, mishap: Mishap, place: &'static str, (epoch, step): (u64, u64)) -> Failure {
        let Mishap { panicked, error, trace } = mishap;
        Failure { origin: Origin::Hook(self.name.clone()), place, epoch, step, panicked, error, trace }
    }

    pub(super) fn info(&self, spec: &HookSpec) -> HookInfo {
        let Standing { name, policy, enabled, failures, budget, .. } = self;
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
