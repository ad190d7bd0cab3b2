//! Showing the activations of a module's step to the forward hooks.

use super::HookRunner;
use super::standing::attempt;
use crate::failure::Failure;
use crate::forward::Activation;
use crate::moment::Shared;
use crate::progress::{Phase, Progress};
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
        for slot in &mut self.forwards {
            if !slot.standing.enabled {
                continue;
            }
            let call = || if slot.hook.wants(point) { slot.hook.on_activation(&activation) } else { Ok(()) };
            let Err(mishap) = attempt(call) else { continue };
            self.unpublished.set(true);
            let at = (progress.epoch, progress.step);
            match slot.standing.judge(mishap, "on_activation", at, &mut self.contained) {
                Ok(disabled) => slot.standing.enabled = !disabled,
                Err(failure) => self.aborted = self.aborted.take().or(Some(failure)),
            }
        }
        self.listening = self.forwards.iter().any(|slot| slot.standing.enabled);
    }

    /// The failure of a forward hook that ends the run, if there was one.
    #[inline]
    pub fn take_aborted(&mut self) -> Option<Failure> {
        self.aborted.take()
    }
}
