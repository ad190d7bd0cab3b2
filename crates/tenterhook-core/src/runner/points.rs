//! Showing the activations of a module's step.

use super::{HookRunner, Part};
use crate::context::Activation;
use crate::event::Event;
use crate::failure::Failure;
use crate::moment::Moment;
use crate::tensor::{TensorSource, Tensors};

impl HookRunner {
    /// Whether any hook wants activations. When none does, a point is this branch and nothing else.
    #[inline]
    #[must_use]
    pub fn listens(&self) -> bool {
        self.plan.wants(Event::Activation)
    }

    /// Shows an activation to the hooks that want it, in the plan's order. What aborts the run waits in
    /// [`HookRunner::take_aborted`], since a module's step cannot be left half-way; nobody is shown anything
    /// after it.
    pub fn show(&mut self, point: &str, values: &dyn TensorSource, moment: Moment<'_>) {
        if self.aborted.is_some() {
            return;
        }
        let (in_hooks, at_points) = (&moment.shared.in_hooks, &moment.shared.at_points);
        let before = in_hooks.get();
        let activation = Activation { moment, point, values: Tensors::new(values) };
        let mut cursor = self.cursor(Event::Activation, Part::All);
        self.aborted = self.deliver(&activation, &mut cursor).err();
        at_points.set(at_points.get() + in_hooks.get().saturating_sub(before));
    }

    /// The failure in an activation that ends the run, if there was one.
    #[inline]
    pub fn take_aborted(&mut self) -> Option<Failure> {
        self.aborted.take()
    }
}
