//! Running the update hooks over the gradients of one optimizer.

use super::HookRunner;
use super::accounting::{UPDATE, Watch};
use super::hook_status::attempt;
use crate::failure::Failure;
use crate::read_counter;
use crate::run_context::GateResult;
use crate::update::{GradientChange, Gradients, GradientsMut, Update};

impl HookRunner {
    /// Notes what update hooks do to which gradient from now on, or no longer does.
    pub fn trace_gradient_changes(&mut self, on: bool) {
        self.traced = on.then(Vec::new);
    }

    /// What update hooks did since the last call, while it is noted.
    pub fn take_gradient_changes(&mut self) -> Vec<GradientChange> {
        self.traced.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Lets every update hook change the gradients, in registration order. One that fails leaves
    /// them as they were before it; then its policy decides.
    pub fn update(&mut self, engine: &mut dyn GradientsMut, cx: &Update<'_>) -> Result<(), Failure> {
        self.publish_changes(cx.run_cx.shared);
        self.measured(&cx.run_cx, |runner| runner.update_all(engine, cx))
    }

    fn update_all(&mut self, engine: &mut dyn GradientsMut, cx: &Update<'_>) -> Result<(), Failure> {
        let shared = cx.run_cx.shared;
        let on = self.accounting.on;
        let mut watch = Watch::begin(self.accounting.weight(UPDATE), shared);
        for next in 0..self.planned.updates.len() {
            let id = self.planned.updates[next];
            let slot = &mut self.slots[id];
            shared.current.hook.set(id);
            let mut gradients = Gradients::new(engine);
            watch.read = read_counter::value();
            if on {
                shared.current.gate.set(GateResult::NoGate);
            }
            let changed = attempt(|| slot.change(&mut gradients, cx));
            if on {
                slot.status.account.had_its_turn(UPDATE, &mut watch, shared);
            }
            if let Err(error) = changed {
                gradients.undo();
                self.planned.outdated |= self.judge(id, error, "update", (cx.epoch, cx.step))?;
            } else if let Some(traced) = &mut self.traced {
                traced.extend(gradients.touched(&slot.status.name, cx));
            }
        }
        self.apply_roster_changes(&cx.run_cx);
        Ok(())
    }
}
