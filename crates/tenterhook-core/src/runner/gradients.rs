//! Running the update hooks over the gradients of one optimizer.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{HookRunner, judge};
use crate::failure::{Failure, Origin, panic_message};
use crate::update::{Gradients, GradientsMut, Update};

impl HookRunner {
    /// Whether any update hook would run. Without one the gradients are not touched at all.
    #[inline]
    #[must_use]
    pub fn updates_gradients(&self) -> bool {
        self.updates.iter().any(|slot| slot.enabled)
    }

    /// Lets every update hook change the gradients, in registration order. One that fails leaves
    /// them as they were before it; then its policy decides.
    pub fn update(&mut self, engine: &mut dyn GradientsMut, cx: &Update<'_>) -> Result<(), Failure> {
        for slot in self.updates.iter_mut().filter(|slot| slot.enabled) {
            let mut gradients = Gradients::new(engine);
            let run = catch_unwind(AssertUnwindSafe(|| slot.hook.update(&mut gradients, cx)));
            let (panicked, error) = match run {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => (false, error),
                Err(panic) => (true, panic_message(&*panic).into()),
            };
            gradients.undo();
            slot.failures += 1;
            let failure = Failure {
                origin: Origin::Hook(slot.name.clone()),
                place: "update",
                epoch: cx.epoch,
                step: cx.step,
                panicked,
                error,
            };
            if judge(slot.policy, slot.failures, failure, &mut self.contained)? {
                slot.enabled = false;
            }
        }
        Ok(())
    }
}
