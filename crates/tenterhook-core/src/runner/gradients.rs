//! Running the update hooks on the gradients of one optimizer.

use super::HookRunner;
use super::accounting::{UPDATE, Watch};
use super::hook_status::attempt;
use crate::failure::Failure;
use crate::read_counter;
use crate::run_context::GateResult;
use crate::update::{GradientChange, Gradients, GradientsMut, Update};

impl HookRunner {
    /// Starts or stops recording which update hook changes which gradient.
    pub fn trace_gradient_changes(&mut self, on: bool) {
        self.gradient_changes = on.then(Vec::new);
    }

    /// The recorded changes since the last call.
    pub fn take_gradient_changes(&mut self) -> Vec<GradientChange> {
        self.gradient_changes.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Runs all update hooks in registration order. The changes of a hook that fails are undone, and its
    /// failure policy applies.
    pub fn update(&mut self, engine: &mut dyn GradientsMut, cx: &Update<'_>) -> Result<(), Failure> {
        self.publish_changes(cx.run_cx.shared);
        self.measured(&cx.run_cx, |runner| runner.update_all(engine, cx))
    }

    fn update_all(&mut self, engine: &mut dyn GradientsMut, cx: &Update<'_>) -> Result<(), Failure> {
        let shared = cx.run_cx.shared;
        let on = self.accounting.on;
        let mut watch = Watch::begin(self.accounting.weight(UPDATE), shared);
        for next in 0..self.active.updates.len() {
            let id = self.active.updates[next];
            let slot = &mut self.slots[id];
            shared.current.hook.set(id);
            let mut gradients = Gradients::new(engine);
            watch.read = read_counter::value();
            if on {
                shared.current.gate.set(GateResult::NoGate);
            }
            let changed = attempt(|| slot.change(&mut gradients, cx));
            if on {
                slot.status.account.end_turn(UPDATE, &mut watch, shared);
            }
            if let Err(error) = changed {
                gradients.undo();
                self.active.outdated |= self.judge(id, error, "update", (cx.epoch, cx.step))?;
            } else if let Some(changes) = &mut self.gradient_changes {
                changes.extend(gradients.changes_by(&slot.spec.name, cx));
            }
        }
        self.apply_roster_changes(&cx.run_cx);
        Ok(())
    }
}
