//! The end of a call: hooks wait for what they handed to worker threads, and say what became of it.

use super::HookRunner;
use super::hook_status::{HookError, attempt};
use super::slot::{Presence, Teardown};
use crate::delivery_stats::DeliveryStats;
use crate::event::Event;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::run_context::Shared;

/// Most hooks have nothing to finish, and took so many nanoseconds at the most to say so.
const NOTHING: u64 = 1_000;

impl HookRunner {
    /// Lets every hook finish, disabled and removed ones too, whatever fails on the way; those that were removed leave then.
    /// The failures that would have aborted are returned; the others are contained.
    pub fn finish(&mut self, progress: &Progress, shared: &RunState) -> Vec<Failure> {
        let mut failures = Vec::new();
        self.sent.clear();
        for id in 0..self.slots.len() {
            for error in self.finish_one(id, shared).into_iter().flatten() {
                failures.extend(self.judge(id, error, "finish", (progress.epoch, progress.step)).err());
            }
        }
        self.in_call = false;
        self.replan();
        failures
    }

    /// Lets one hook finish. What went wrong when it finished, said what it had sent, or left.
    fn finish_one(&mut self, id: usize, shared: &RunState) -> [Option<HookError>; 3] {
        let (on, world, slot) = (self.accounting.on, self.world, &mut self.slots[id]);
        if slot.presence == Presence::Removed || !slot.spec.ranks.include(world) {
            return Default::default();
        }
        let began = on.then(|| shared.clock.nanos());
        let finished = attempt(|| slot.hook.finish());
        let waited = began.map_or(0, |began| shared.clock.nanos().saturating_sub(began));
        if waited > NOTHING {
            slot.status.account.worked(Event::Teardown as usize, waited);
        }
        let sent = attempt(|| Ok(slot.hook.delivery_stats()));
        let mut left = None;
        if slot.presence == Presence::Leaving {
            slot.presence = Presence::Removed;
            let hook = slot.take_hook();
            let dropped = || {
                drop(hook);
                Ok(())
            };
            left = attempt(dropped).err();
        }
        if slot.teardown == Teardown::Due {
            slot.teardown = Teardown::Open;
        }
        let (sent, unsaid) = sent.map_or_else(|error| (None, Some(error)), |sent| (sent, None));
        self.sent.extend(sent.map(|sent| (slot.status.name.clone(), sent)));
        [finished.err(), unsaid, left]
    }

    /// What became of what hooks handed to worker threads in the call that is over, by the hook's name, in registration order.
    #[must_use]
    pub fn delivery_stats(&self) -> &[(String, DeliveryStats)] {
        &self.sent
    }
}
