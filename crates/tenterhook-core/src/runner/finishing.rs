//! The end of a call: hooks wait for what they handed to worker threads, and say what became of it.

use super::HookRunner;
use super::slot::{Presence, Teardown};
use super::standing::{Mishap, attempt};
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
        let mut failures = Vec::new();
        self.sent.clear();
        for id in 0..self.slots.len() {
            for mishap in self.finish_one(id, shared).into_iter().flatten() {
                failures.extend(self.judge(id, mishap, "finish", (progress.epoch, progress.step)).err());
            }
        }
        self.in_call = false;
        self.replan();
        failures
    }

    /// Lets one hook finish. What went wrong when it finished, said what it had sent, or left.
    fn finish_one(&mut self, id: usize, shared: &Shared) -> [Option<Mishap>; 3] {
        let (on, world, slot) = (self.accounting.on, self.world, &mut self.slots[id]);
        if slot.presence == Presence::Removed || !slot.spec.ranks.include(world) {
            return Default::default();
        }
        let began = on.then(|| shared.clock.nanos());
        let finished = attempt(|| slot.hook.finish());
        let waited = began.map_or(0, |began| shared.clock.nanos().saturating_sub(began));
        if waited > NOTHING {
            slot.standing.account.worked(Event::Teardown as usize, waited);
        }
        let sent = attempt(|| Ok(slot.hook.sent()));
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
        let (sent, unsaid) = sent.map_or_else(|mishap| (None, Some(mishap)), |sent| (sent, None));
        self.sent.extend(sent.map(|sent| (slot.standing.name.clone(), sent)));
        [finished.err(), unsaid, left]
    }

    /// What became of what hooks handed to worker threads in the call that is over, by the hook's name, in registration order.
    #[must_use]
    pub fn sent(&self) -> &[(String, Sent)] {
        &self.sent
    }
}
