//! The end of a call: hooks wait for their worker threads and report delivery statistics.

use super::HookRunner;
use super::hook_status::{HookError, attempt};
use super::slot::{Presence, Teardown};
use crate::delivery_stats::DeliveryStats;
use crate::event::Event;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::run_context::RunState;

/// Time in nanoseconds up to which finishing counts as nothing to do, and is not charged.
const NOTHING: u64 = 1_000;

impl HookRunner {
    /// Finishes all hooks, also disabled and removed ones, even if some fail. Removed hooks are dropped.
    /// Returns the failures that would have ended the run; the others are contained.
    pub fn finish(&mut self, progress: &Progress, shared: &RunState) -> Vec<Failure> {
        let mut failures = Vec::new();
        self.delivery_stats.clear();
        for id in 0..self.slots.len() {
            for error in self.finish_one(id, shared).into_iter().flatten() {
                failures.extend(self.judge(id, error, "finish", (progress.epoch, progress.step)).err());
            }
        }
        self.in_call = false;
        self.replan();
        failures
    }

    /// Finishes one hook. Returns the errors of finishing, of reporting statistics, and of being dropped.
    fn finish_one(&mut self, id: usize, shared: &RunState) -> [Option<HookError>; 3] {
        let (on, world, slot) = (self.accounting.on, self.world, &mut self.slots[id]);
        if slot.presence == Presence::Removed || !slot.spec.ranks.include(world) {
            return Default::default();
        }
        let began = on.then(|| shared.clock.nanos());
        let finished = attempt(|| slot.hook.finish());
        let waited = began.map_or(0, |began| shared.clock.nanos().saturating_sub(began));
        if waited > NOTHING {
            slot.status.account.add_time(Event::Teardown as usize, waited);
        }
        let stats = attempt(|| Ok(slot.hook.delivery_stats()));
        let mut dropped = None;
        if slot.presence == Presence::Leaving {
            slot.presence = Presence::Removed;
            let hook = slot.take_hook();
            dropped = attempt(|| {
                drop(hook);
                Ok(())
            })
            .err();
        }
        if slot.teardown == Teardown::Due {
            slot.teardown = Teardown::Open;
        }
        let (stats, failed_stats) = stats.map_or_else(|error| (None, Some(error)), |stats| (stats, None));
        self.delivery_stats.extend(stats.map(|stats| (slot.spec.name.clone(), stats)));
        [finished.err(), failed_stats, dropped]
    }

    /// Delivery statistics of the last call by hook name, in registration order.
    #[must_use]
    pub fn delivery_stats(&self) -> &[(String, DeliveryStats)] {
        &self.delivery_stats
    }
}
