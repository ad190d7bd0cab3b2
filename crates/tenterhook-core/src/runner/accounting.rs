//! Measures the costs of hooks.
//!
//! Every call is counted, and a sample of the calls is timed. The clock is read once before the first hook of
//! an event and once after each hook, so the time between hooks is charged to none. A call behind a gate is
//! timed individually, and the time of a closed gate is charged to its hook.
//!
//! Reads from the engine are counted per thread (`read_counter.rs`); the runner charges the difference to
//! each hook. A rehearsal measures nothing: its clock counts batches.

use super::{HookRunner, Walk};
use crate::account::{ALL_TIMED, ReadCounts, Tally};
use crate::context::Context;
use crate::event::Event;
use crate::hook::EventResult;
use crate::read_counter;
use crate::run_context::{GateResult, RunState};

/// A row for every event, and one for update hooks.
const ROWS: usize = Event::COUNT + 1;
pub(super) const UPDATE: usize = Event::COUNT;

/// Once sampling has begun, a random number of deliveries below this is skipped after each timed one. The mean
/// is 15, so one in 16 is timed.
const GAP_LIMIT: u64 = 31;

/// Whether costs are measured, and when the next delivery is timed.
pub(super) struct Accounting {
    pub(super) on: bool,
    /// A training step is in progress. Always true for a loop that does not report its steps.
    pub(super) in_steps: bool,
    samplers: [Sampler; ROWS],
    random: u64,
}

/// Chooses the deliveries of an event that are timed.
#[derive(Clone, Copy, Default)]
struct Sampler {
    /// The number of deliveries still to skip.
    skip: u32,
    /// The number of deliveries to skip between the last timed one and the next.
    gap: u32,
    timed: u32,
}

impl Default for Accounting {
    fn default() -> Accounting {
        let samplers = [Sampler::default(); ROWS];
        Accounting { on: true, in_steps: true, samplers, random: 0x9E37_79B9_7F4A_7C15 }
    }
}

impl Accounting {
    /// The number of deliveries that this one represents if it is timed; 0 if it is not timed.
    #[inline]
    pub(super) fn weight(&mut self, row: usize) -> u32 {
        if !self.on {
            return 0;
        }
        let sampler = &mut self.samplers[row];
        if sampler.skip > 0 {
            sampler.skip -= 1;
            return 0;
        }
        self.time_this_one(row)
    }

    #[cold]
    fn time_this_one(&mut self, row: usize) -> u32 {
        let sampler = &mut self.samplers[row];
        let weight = sampler.gap + 1;
        sampler.timed = sampler.timed.saturating_add(1);
        if sampler.timed >= ALL_TIMED && is_frequent(row) {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            sampler.gap = u32::try_from((self.random >> 32) % GAP_LIMIT).unwrap_or_default();
        }
        sampler.skip = sampler.gap;
        weight
    }
}

/// Whether the row's event occurs once per batch or more often.
fn is_frequent(row: usize) -> bool {
    Event::ALL.get(row).is_none_or(|event| {
        matches!(event, Event::Activation | Event::Log)
            || event.is_within_train_batch()
            || event.is_within_evaluation_batch()
    })
}

/// The cost of a hook so far.
pub(super) struct Account {
    calls: [u64; ROWS],
    tallies: [Option<Box<Tally>>; ROWS],
    pub(super) read: ReadCounts,
    /// Whether a budget overrun of the hook was reported.
    pub(super) reported: bool,
}

impl Default for Account {
    fn default() -> Account {
        let (calls, tallies) = ([0; ROWS], [const { None }; ROWS]);
        Account { calls, tallies, read: ReadCounts::default(), reported: false }
    }
}

impl Account {
    fn tally(&mut self, row: usize) -> &mut Tally {
        self.tallies[row].get_or_insert_default()
    }

    /// Adds the time of the last counted call, which represents `weight` calls.
    fn time_call(&mut self, row: usize, nanos: u64, weight: u32) {
        let call = self.calls[row];
        self.tally(row).time_call(call, nanos, u64::from(weight));
    }

    /// Charges a hook for an event, which gates may have withheld. Returns whether the hook was called.
    pub(super) fn end_turn(&mut self, row: usize, watch: &mut Watch, shared: &RunState) -> bool {
        let read = watch.read;
        match shared.current.gate.get() {
            GateResult::Closed => {
                watch.closed(self, row, shared);
                if read != read_counter::value() {
                    self.count_reads(row, read);
                }
                return false;
            }
            GateResult::Opened => {
                self.count_call(row, read);
                watch.opened(self, row, shared);
            }
            GateResult::NoGate | GateResult::NotTracked => {
                self.count_call(row, read);
                watch.lap(self, row, shared);
            }
        }
        true
    }

    /// The total time, in nanoseconds.
    pub(super) fn total(&self) -> u64 {
        self.tallies.iter().flatten().map(|tally| tally.total()).sum()
    }

    /// The time within training steps in nanoseconds, and twice its standard error if it is an estimate.
    pub(super) fn in_steps(&self, in_progress: bool) -> (u64, f64) {
        let tallies = || self.tallies.iter().flatten();
        let variance: f64 = tallies().map(|tally| tally.variance()).sum();
        (tallies().map(|tally| tally.in_steps(in_progress)).sum(), 2.0 * variance.sqrt())
    }

    /// Counts a call. `read` is the read counter before the call.
    #[inline]
    pub(super) fn count_call(&mut self, row: usize, read: u64) {
        self.calls[row] += 1;
        if read != read_counter::value() {
            self.count_reads(row, read);
        }
    }

    #[cold]
    fn count_reads(&mut self, row: usize, before: u64) {
        let ReadCounts { scalars, tensors } = read_counter::difference(before, read_counter::value());
        self.read.scalars += scalars;
        self.read.tensors += tensors;
        let engine = read_counter::take_engine_nanos();
        if engine > 0 {
            self.add_time(row, engine);
        }
    }

    /// Adds time to the last call.
    pub(super) fn extend_last_call(&mut self, row: usize, nanos: u64) {
        let call = self.calls[row];
        self.tally(row).extend_call(call, nanos);
    }

    /// The number of calls per row, and their times if any call was timed.
    pub(super) fn rows(&self) -> impl Iterator<Item = (u64, Option<&Tally>)> {
        self.calls.into_iter().zip(self.tallies.iter().map(Option::as_deref))
    }

    pub(super) fn tallies(&mut self) -> impl Iterator<Item = &mut Tally> {
        self.tallies.iter_mut().filter_map(Option::as_deref_mut)
    }

    /// Adds time that was spent for the hook outside of its calls.
    pub(super) fn add_time(&mut self, row: usize, nanos: u64) {
        self.tally(row).add(nanos, 1);
    }
}

/// Reads the clock between hooks, if a delivery is timed.
pub(super) struct Watch {
    weight: u32,
    last: u64,
    /// The read counter before the current hook.
    pub(super) read: u64,
}

impl Watch {
    #[inline]
    pub(super) fn begin(weight: u32, shared: &RunState) -> Watch {
        Watch { weight, last: if weight > 0 { shared.clock.nanos() } else { 0 }, read: 0 }
    }

    #[inline]
    pub(super) fn runs(&self) -> bool {
        self.weight > 0
    }

    /// Charges the time since the last reading to the hook.
    pub(super) fn lap(&mut self, account: &mut Account, row: usize, shared: &RunState) {
        if self.runs() {
            let now = shared.clock.nanos();
            account.time_call(row, now.saturating_sub(self.last), self.weight);
            self.last = now;
        }
    }

    /// Charges the hook for a closed gate, which does not count as a call.
    fn closed(&mut self, account: &mut Account, row: usize, shared: &RunState) {
        if self.runs() {
            self.charge_gate(account, row, shared.clock.nanos());
        }
    }

    /// Charges the hook for a call behind a gate. The call is timed individually, with weight 1.
    fn opened(&mut self, account: &mut Account, row: usize, shared: &RunState) {
        let (opened, now) = (shared.current.opened_at.get(), shared.clock.nanos());
        if self.runs() {
            self.charge_gate(account, row, opened);
        }
        account.time_call(row, now.saturating_sub(opened), 1);
        self.last = now;
    }

    fn charge_gate(&mut self, account: &mut Account, row: usize, until: u64) {
        account.tally(row).add(until.saturating_sub(self.last), u64::from(self.weight));
        self.last = until;
    }
}

impl HookRunner {
    /// Does what [`HookRunner::walk`] does, and counts calls and reads. With `CLOSELY` it also times the
    /// calls, records the receivers, and skips hooks that were disabled since the plan was made.
    #[inline]
    pub(super) fn walk_counting<C: Context, const CLOSELY: bool>(
        &mut self,
        cx: &C,
        walk: &mut Walk,
        watch: &mut Watch,
    ) -> EventResult {
        let (row, shared) = (C::EVENT as usize, cx.run_cx().shared);
        watch.read = read_counter::value();
        let on = !CLOSELY || self.accounting.on;
        let no_gate = if on { GateResult::NoGate } else { GateResult::NotTracked };
        shared.current.gate.set(no_gate);
        let outdated = self.active.outdated;
        for &id in &self.active.plan.receivers(C::EVENT)[walk.clone()] {
            walk.start += 1;
            let slot = &mut self.slots[id];
            if (outdated && slot.is_out(C::EVENT)) || slot.had_its_teardown(C::EVENT) {
                continue;
            }
            shared.current.hook.set(id);
            let result = slot.offer(cx);
            let account = &mut slot.status.account;
            let mut called = true;
            if shared.current.gate.get() == no_gate {
                if on {
                    account.count_call(row, watch.read);
                }
                watch.read = read_counter::value();
                if CLOSELY {
                    watch.lap(account, row, shared);
                }
            } else {
                called = account.end_turn(row, watch, shared);
                watch.read = read_counter::value();
                shared.current.gate.set(no_gate);
            }
            if CLOSELY
                && called
                && let Some(recorded) = &mut self.received
            {
                recorded.resize(recorded.len().max(id + 1), super::ReceivedEvents::default());
                recorded[id].record(C::EVENT, cx.run_cx().phase);
            }
            result?;
        }
        Ok(())
    }

    /// Counts a call that ended in a panic.
    pub(super) fn count_panic(
        &mut self,
        event: Event,
        receiver: usize,
        watch: &mut Watch,
        shared: &RunState,
    ) {
        if self.accounting.on {
            let id = self.plan().receivers(event)[receiver];
            self.slots[id].status.account.end_turn(event as usize, watch, shared);
        }
    }
}
