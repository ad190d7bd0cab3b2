//! Showing the activations of a module's step.
//!
//! The module's context decides once per step whether any hook listens, and a point costs that one branch. The values are made by a
//! closure that runs when a hook wants them. An activation is delivered within the module's step, so its moment shows no
//! parameters, and a failure that ends the run waits until the step has returned.

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
    /// Whether any hook wants activations in this phase at this step. When none does, a point should be one
    /// branch and nothing else.
    #[inline]
    #[must_use]
    pub fn wants_activations(&self, phase: Phase, progress: &Progress) -> bool {
        self.plan().wants(Event::Activation)
            && (phase != Phase::Train || self.plan().is_due(Event::Activation, progress.current_step()))
            && self.any_listener(|hook| hook.wants_activations(phase, progress))
    }

    /// Whether any hook wants the activation of this name in this phase at this step. For those that take work to
    /// show.
    #[must_use]
    pub fn wants_point(&self, point: &str, phase: Phase, progress: &Progress) -> bool {
        self.any_listener(|hook| hook.wants_activations(phase, progress) && hook.wants_point(point))
    }

    /// The hooks that want the activation of this name, in the plan's order. One that panics over the question is
    /// not among them.
    #[must_use]
    pub fn hooks_wanting(&self, point: &str) -> Vec<&str> {
        let receivers = self.plan().receivers(Event::Activation).iter().map(|id| &self.slots[*id]);
        let wants =
            |slot: &&Slot| catch_unwind(AssertUnwindSafe(|| slot.hook.wants_point(point))).unwrap_or(false);
        receivers.filter(wants).map(|slot| slot.status.name.as_str()).collect()
    }

    fn any_listener(&self, wanted: impl Fn(&dyn Hook) -> bool) -> bool {
        let mut receivers = self.plan().receivers(Event::Activation).iter();
        let asked = || receivers.any(|id| wanted(&*self.slots[*id].hook));
        // One that cannot say panics again where its panic is judged.
        catch_unwind(AssertUnwindSafe(asked)).unwrap_or(true)
    }

    /// Shows an activation to the hooks that want it, in the plan's order. What aborts the run waits in
    /// [`HookRunner::take_aborted`], since a module's step cannot be left half-way; nobody is shown anything
    /// after it.
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

    /// Ends the run by a failure that comes up within the module's step, as soon as that is over; unless another one does
    /// already.
    pub fn abort(&mut self, failure: Failure) -> &Failure {
        self.aborted.get_or_insert(failure)
    }

    /// The failure within the module's step that ends the run, if there was one.
    #[must_use]
    pub fn aborted(&self) -> Option<&Failure> {
        self.aborted.as_ref()
    }

    /// The same, taken.
    #[inline]
    pub fn take_aborted(&mut self) -> Option<Failure> {
        self.aborted.take()
    }
}
