//! The end of a call: hooks wait for what they handed to worker threads, and say what became of it.

use super::HookRunner;
use super::slots::{Slot, UpdateSlot};
use super::standing::{Mishap, Standing, attempt};
use crate::event::Event;
use crate::failure::Failure;
use crate::moment::Shared;
use crate::progress::Progress;
use crate::sent::Sent;

/// Most hooks have nothing to finish, and took so many nanoseconds at the most to say so.
const NOTHING: u64 = 1_000;

impl HookRunner {
    /// Lets every hook finish, disabled and removed ones too, whatever fails on the way; those that were removed leave then.
    /// The failures that would have aborted are returned; the others are contained.
    pub fn finish(&mut self, progress: &Progress, shared: &Shared) -> Vec<Failure> {
        let (mut failures, mut given_up) = (Vec::new(), Vec::new());
        let mut judge = |standing: &mut Standing, mishap: Mishap| {
            let at = (progress.epoch, progress.step);
            match standing.judge(mishap, "finish", at, &mut self.contained) {
                Ok(false) => {}
                Ok(true) => given_up.push(standing.give_up()),
                Err(failure) => failures.push(failure),
            }
        };
        self.sent.clear();
        let world = self.world;
        let is_here = |slot: &&mut Slot| slot.spec.ranks.include(world) && (!slot.removed || slot.leaving);
        for slot in self.slots.iter_mut().filter(is_here) {
            let began = self.accounting.on.then(|| shared.clock.nanos());
            let finished = attempt(|| slot.hook.finish());
            let waited = began.map_or(0, |began| shared.clock.nanos().saturating_sub(began));
            if waited > NOTHING {
                slot.standing.account.worked(Event::Teardown as usize, waited);
            }
            let sent = attempt(|| Ok(slot.hook.sent()));
            let left = if std::mem::take(&mut slot.leaving) { dropped(slot.take_hook()) } else { Ok(()) };
            slot.set_up = false;
            let (sent, unsaid) = sent.map_or_else(|mishap| (None, Some(mishap)), |sent| (sent, None));
            self.sent.extend(sent.map(|sent| (slot.standing.name.clone(), sent)));
            for mishap in [finished.err(), unsaid, left.err()].into_iter().flatten() {
                judge(&mut slot.standing, mishap);
            }
        }
        for UpdateSlot { mut standing, hook, .. } in self.leaving.drain(..) {
            if let Err(mishap) = dropped(hook) {
                judge(&mut standing, mishap);
            }
        }
        self.changed.append(&mut given_up);
        self.in_call = false;
        self.replan();
        failures
    }

    /// What became of what hooks handed to worker threads in the call that is over, by the hook's name, in registration order.
    #[must_use]
    pub fn sent(&self) -> &[(String, Sent)] {
        &self.sent
    }
}

fn dropped<T>(hook: T) -> Result<(), Mishap> {
    attempt(|| {
        drop(hook);
        Ok(())
    })
}
