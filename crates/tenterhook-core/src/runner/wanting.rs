//! Who wants which activation, for those who want to know it before there is one.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::HookRunner;
use crate::event::Event;

impl HookRunner {
    /// The hooks that want the activation of this name, in the plan's order. One that panics over the question is
    /// not among them.
    #[must_use]
    pub fn hooks_wanting(&self, point: &str) -> Vec<&str> {
        let receivers = self.plan.receivers(Event::Activation).iter().map(|id| &self.slots[*id]);
        let wanting = receivers.filter(|slot| {
            let asked = AssertUnwindSafe(|| slot.hook.wants_point(point));
            catch_unwind(asked).unwrap_or(false)
        });
        wanting.map(|slot| slot.standing.name.as_str()).collect()
    }
}
