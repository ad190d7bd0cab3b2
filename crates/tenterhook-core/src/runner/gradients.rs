//! Running the update hooks over the gradients of one optimizer.

use super::HookRunner;
use super::standing::attempt;
use crate::failure::Failure;
use crate::update::{Gradients, GradientsMut, Update};

impl HookRunner {
    /// Whether any update hook would run. Without one the gradients are not touched at all.
    #[inline]
    #[must_use]
    pub fn updates_gradients(&self) -> bool {
        self.updates.iter().any(|slot| slot.standing.enabled)
    }

    /// Lets every update hook change the gradients, in registration order. One that fails leaves
    /// them as they were before it; then its policy decides.
    pub fn update(&mut self, engine: &mut dyn GradientsMut, cx: &Update<'_>) -> Result<(), Failure> {
        self.publish_changes(cx.moment.shared);
        self.measured(&cx.moment, |runner| runner.update_all(engine, cx))
    }

    fn update_all(&mut self, engine: &mut dyn GradientsMut, cx: &Update<'_>) -> Result<(), Failure> {
        let shared = cx.moment.shared;
        let first = self.slots.len();
        for (at, slot) in self.updates.iter_mut().enumerate().filter(|(_, slot)| slot.standing.enabled) {
            shared.current.set(first + at);
            let mut gradients = Gradients::new(engine);
            let Err(mishap) = attempt(|| slot.hook.update(&mut gradients, cx)) else { continue };
            gradients.undo();
            self.unpublished.set(true);
            let disabled = slot.standing.judge(mishap, "update", (cx.epoch, cx.step), &mut self.contained)?;
            slot.standing.enabled = !disabled;
        }
        self.settle(&cx.moment);
        Ok(())
    }
}
