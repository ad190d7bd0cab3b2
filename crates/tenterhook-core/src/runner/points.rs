//! Showing the activations of a module's step to the forward hooks.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{HookRunner, judge};
use crate::failure::{Failure, Origin, panic_message};
use crate::forward::Activation;
use crate::moment::{Phase, Progress, Shared};
use crate::tensor::{TensorSource, Tensors};

impl HookRunner {
    /// Whether any forward hook would run. When none would, a point is this branch and nothing else.
    #[inline]
    #[must_use]
    pub fn listens(&self) -> bool {
        self.listening
    }

    /// Shows an activation to the forward hooks that want it, in registration order. What aborts the
    /// run waits in [`HookRunner::take_aborted`], since a module's step cannot be left half-way.
    pub fn show(
        &mut self,
        point: &str,
        values: &dyn TensorSource,
        (phase, progress): (Phase, Progress),
        shared: &Shared,
    ) {
        let activation = Activation { point, values: Tensors::new(values), phase, progress, shared };
        for slot in self.forwards.iter_mut().filter(|slot| slot.enabled && slot.hook.wants(point)) {
            let run = catch_unwind(AssertUnwindSafe(|| slot.hook.on_activation(&activation)));
            let (panicked, error) = match run {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => (false, error),
                Err(panic) => (true, panic_message(&*panic).into()),
            };
            slot.failures += 1;
            let failure = Failure {
                origin: Origin::Hook(slot.name.clone()),
                place: "on_activation",
                epoch: progress.epoch,
                step: progress.step,
                panicked,
                error,
            };
            match judge(slot.policy, slot.failures, failure, &mut self.contained) {
                Ok(disabled) => slot.enabled = !disabled,
                Err(failure) => self.aborted = self.aborted.take().or(Some(failure)),
            }
        }
        self.listening = self.forwards.iter().any(|slot| slot.enabled);
    }

    /// The failure of a forward hook that ends the run, if there was one.
    #[inline]
    pub fn take_aborted(&mut self) -> Option<Failure> {
        self.aborted.take()
    }
}
