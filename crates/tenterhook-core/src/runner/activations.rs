//! Delivering the activations of a module's step.
//!
//! The module's context asks once per step whether any hook wants activations; if none does, an activation
//! costs one branch. The values are computed by a closure that runs only if a hook wants them. Since an
//! activation is delivered within the module's step, its context shows no parameters, and a failure that ends
//! the run waits until the step has returned.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::HookRunner;
use super::slot::Slot;
use crate::context::Activation;
use crate::event::Event;
use crate::failure::Failure;
use crate::hook::Hook;
use crate::progress::{Phase, Progress};
use crate::run_context::RunContext;
use crate::tensor::{TensorSource, Tensors};

impl HookRunner {
    /// Whether any hook wants activations in this phase at this step. If none does, an activation must cost
    /// no more than a branch.
    #[inline]
    #[must_use]
    pub fn wants_activations(&self, phase: Phase, progress: &Progress) -> bool {
        self.plan().wants(Event::Activation)
            && (phase != Phase::Train || self.plan().is_due(Event::Activation, progress.current_step()))
            && self.any_wants(|hook| hook.wants_activations(phase, progress))
    }

    /// Whether any hook wants the activation of this name in this phase at this step.
    #[must_use]
    pub fn wants_point(&self, point: &str, phase: Phase, progress: &Progress) -> bool {
        self.any_wants(|hook| hook.wants_activations(phase, progress) && hook.wants_point(point))
    }

    /// The hooks that want the activation of this name, in the plan's order. A hook that panics in
    /// `wants_point` is left out.
    #[must_use]
    pub fn hooks_wanting(&self, point: &str) -> Vec<&str> {
        let receivers = self.plan().receivers(Event::Activation).iter().map(|id| &self.slots[*id]);
        let wants =
            |slot: &&Slot| catch_unwind(AssertUnwindSafe(|| slot.hook.wants_point(point))).unwrap_or(false);
        receivers.filter(wants).map(|slot| slot.spec.name.as_str()).collect()
    }

    fn any_wants(&self, wants: impl Fn(&dyn Hook) -> bool) -> bool {
        let mut receivers = self.plan().receivers(Event::Activation).iter();
        let any = || receivers.any(|id| wants(&*self.slots[*id].hook));
        // A hook that panics here panics again at the delivery, where its policy applies.
        catch_unwind(AssertUnwindSafe(any)).unwrap_or(true)
    }

    /// Delivers an activation to the hooks that want it, in the plan's order. A failure that ends the run is
    /// kept for [`HookRunner::take_aborted`], since a module's step cannot be aborted; no activation is
    /// delivered after it.
    pub fn deliver_activation(&mut self, point: &str, values: &dyn TensorSource, run_cx: RunContext<'_>) {
        if self.aborted.is_some() || values.count() == 0 {
            return;
        }
        let (in_hooks, in_activations) = (&run_cx.shared.in_hooks, &run_cx.shared.in_activations);
        let before = in_hooks.get();
        let activation = Activation { run_cx, point, values: Tensors::new(values) };
        self.aborted = self.deliver(&activation).err();
        in_activations.set(in_activations.get() + in_hooks.get().saturating_sub(before));
    }

    /// Ends the run with this failure of the module's step after the step has returned. Returns the first
    /// such failure.
    pub fn abort(&mut self, failure: Failure) -> &Failure {
        self.aborted.get_or_insert(failure)
    }

    /// The failure within the module's step that ends the run, if there was one.
    #[must_use]
    pub fn aborted(&self) -> Option<&Failure> {
        self.aborted.as_ref()
    }

    /// Takes the failure within the module's step that ends the run.
    #[inline]
    pub fn take_aborted(&mut self) -> Option<Failure> {
        self.aborted.take()
    }
}
