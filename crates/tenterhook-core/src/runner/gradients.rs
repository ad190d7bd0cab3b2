//! Running the update hooks over the gradients of one optimizer.

use super::HookRunner;
use super::accounting::{UPDATE, Watch};
use super::standing::attempt;
use crate::failure::Failure;
use crate::ledger;
use crate::moment::Passage;
use crate::update::{Gradients, GradientsMut, Touched, Update};

impl HookRunner {
    /// Notes what update hooks do to which gradient from now on, or no longer does.
    pub fn trace_updates(&mut self, on: bool) {
        self.traced = on.then(Vec::new);
    }

    /// What update hooks did since the last call, while it is noted.
    pub fn take_traced(&mut self) -> Vec<Touched> {
        self.traced.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Lets every update hook change the gradients, in registration order. One that fails leaves
    /// them as they were before it; then its policy decides.
    pub fn update(&mut self, engine: &mut dyn GradientsMut, cx: &Update<'_>) -> Result<(), Failure> {
        self.publish_changes(cx.moment.shared);
        self.measured(&cx.moment, |runner| runner.update_all(engine, cx))
    }

    fn update_all(&mut self, engine: &mut dyn GradientsMut, cx: &Update<'_>) -> Result<(), Failure> {
        let shared = cx.moment.shared;
        let on = self.accounting.on;
        let mut watch = Watch::begin(self.accounting.weight(UPDATE), shared);
        for next in 0..self.planned.updates.len() {
            let id = self.planned.updates[next];
            let slot = &mut self.slots[id];
            shared.turn.hook.set(id);
            let mut gradients = Gradients::new(engine);
            watch.read = ledger::so_far();
            if on {
                shared.turn.passage.set(Passage::Straight);
            }
            let changed = attempt(|| slot.change(&mut gradients, cx));
            if on {
                slot.standing.account.had_its_turn(UPDATE, &mut watch, shared);
            }
            if let Err(mishap) = changed {
                gradients.undo();
                self.planned.stale |= self.judge(id, mishap, "update", (cx.epoch, cx.step))?;
            } else if let Some(traced) = &mut self.traced {
                traced.extend(gradients.touched(&slot.standing.name, cx));
            }
        }
        self.settle(&cx.moment);
        Ok(())
    }
}
