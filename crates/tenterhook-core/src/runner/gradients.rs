//! Running the update hooks over the gradients of one optimizer.

use super::HookRunner;
use super::accounting::{UPDATE, Watch};
use super::slots::UpdateSlot;
use super::standing::attempt;
use crate::failure::Failure;
use crate::hook::HookResult;
use crate::ledger;
use crate::moment::Passage;
use crate::update::{Gradients, GradientsMut, Touched, Update};

impl HookRunner {
    /// Whether any update hook would run. Without one the gradients are not touched at all.
    #[inline]
    #[must_use]
    pub fn updates_gradients(&self) -> bool {
        self.updates.iter().any(UpdateSlot::is_live)
    }

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
        let first = self.slots.len();
        let on = self.accounting.on;
        let mut watch = Watch::begin(self.accounting.weight(UPDATE), shared);
        for (at, slot) in self.updates.iter_mut().enumerate().filter(|(_, slot)| slot.is_live()) {
            shared.current.set(first + at);
            let mut gradients = Gradients::new(engine);
            watch.read = ledger::so_far();
            if on {
                shared.passage.set(Passage::Straight);
            }
            let changed = attempt(|| slot.change(&mut gradients, cx));
            if on {
                slot.standing.account.had_its_turn(UPDATE, &mut watch, shared);
            }
            match changed {
                Ok(()) => {
                    if let Some(traced) = &mut self.traced {
                        traced.extend(gradients.touched(&slot.standing.name, cx));
                    }
                }
                Err(mishap) => {
                    gradients.undo();
                    self.unpublished.set(true);
                    let at = (cx.epoch, cx.step);
                    let disabled = slot.standing.judge(mishap, "update", at, &mut self.contained)?;
                    if disabled {
                        self.changed.push(slot.standing.give_up());
                        self.stale = true;
                    }
                }
            }
        }
        self.settle(&cx.moment);
        Ok(())
    }
}

impl UpdateSlot {
    /// Lets the hook change the gradients, and looks at what it left.
    fn change(&mut self, gradients: &mut Gradients<'_>, cx: &Update<'_>) -> HookResult {
        self.hook.update(gradients, cx)?;
        if let Some(refused) = gradients.refused() {
            return Err(refused.into());
        }
        match self.spec.check_finite.then(|| gradients.not_finite()).flatten() {
            Some(wrong) => Err(wrong.into()),
            None => Ok(()),
        }
    }
}
