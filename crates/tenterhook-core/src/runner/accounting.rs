//! Keeping account of what hooks cost.
//!
//! Every call is counted, and a sample of the calls is timed. The clock is read once before the first hook of an event and once
//! after each, so the time between hooks is charged to none of them. A call behind a gate is timed by itself, and the time of a
//! closed gate counts for its hook.
//!
//! Reads from the engine are counted per thread where they happen (`read_counter.rs`), and the runner files the difference after each
//! hook. A rehearsal keeps no account: its clock counts batches.

use super::{HookRunner, Walk};
use crate::account::{ALL_TIMED, ReadCounts, Tally};
use crate::context::Context;
use crate::event::Event;
use crate::hook::EventResult;
use crate::read_counter;
use crate::run_context::{GateResult, RunState};

/// Every event, and after them what update hooks do.
const PLACES: usize = Event::COUNT + 1;
pub(super) const UPDATE: usize = Event::COUNT;

/// After the deliveries that are all timed one is chosen whenever up to this many less one have passed, so that it is one in sixteen.
const LONGEST_GAP: u64 = 31;

/// Whether account is kept, and when the next delivery is timed.
pub(super) struct Accounting {
    pub(super) on: bool,
    /// Training steps are under way; of a loop that never says so, everything is a step.
    pub(super) in_steps: bool,
    rhythms: [Rhythm; PLACES],
    random: u64,
}

#[derive(Clone, Copy, Default)]
struct Rhythm {
    /// So many deliveries are not timed.
    until: u32,
    /// As it was set the last time.
    gap: u32,
    timed: u32,
}

impl Default for Accounting {
    fn default() -> Accounting {
        Accounting {
            on: true,
            in_steps: true,
            rhythms: [Rhythm::default(); PLACES],
            random: 0x9E37_79B9_7F4A_7C15,
        }
    }
}

impl Accounting {
    /// How many deliveries the timing of this one stands for; 0 when it is not timed.
    #[inline]
    pub(super) fn weight(&mut self, place: usize) -> u32 {
        if !self.on {
            return 0;
        }
        let rhythm = &mut self.rhythms[place];
        if rhythm.until > 0 {
            rhythm.until -= 1;
            return 0;
        }
        self.chosen(place)
    }

    #[cold]
    fn chosen(&mut self, place: usize) -> u32 {
        let rhythm = &mut self.rhythms[place];
        let weight = rhythm.gap + 1;
        rhythm.timed = rhythm.timed.saturating_add(1);
        if rhythm.timed >= ALL_TIMED && is_frequent(place) {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            rhythm.gap = u32::try_from((self.random >> 32) % LONGEST_GAP).unwrap_or_default();
        }
        rhythm.until = rhythm.gap;
        weight
    }
}

/// What happens once per batch or more often.
fn is_frequent(place: usize) -> bool {
    let in_batches = |event: &&Event| {
        let recurs = [Event::Activation, Event::Log].contains(event);
        recurs || event.is_within_train_batch() || event.is_within_evaluation_batch()
    };
    place == UPDATE || Event::ALL.get(place).is_some_and(|event| in_batches(&event))
}

/// What a hook cost so far.
pub(super) struct Account {
    calls: [u64; PLACES],
    tallies: [Option<Box<Tally>>; PLACES],
    pub(super) read: ReadCounts,
    /// It has been told that the hook is over its budget.
    pub(super) told: bool,
}

impl Default for Account {
    fn default() -> Account {
        Account {
            calls: [0; PLACES],
            tallies: [const { None }; PLACES],
            read: ReadCounts::default(),
            told: false,
        }
    }
}

impl Account {
    fn tally(&mut self, place: usize) -> &mut Tally {
        self.tallies[place].get_or_insert_default()
    }

    /// The call that was counted last took so long, and stands for this many.
    fn note(&mut self, place: usize, nanos: u64, weight: u32) {
        let call = self.calls[place];
        self.tally(place).note(call, nanos, u64::from(weight));
    }

    /// A hook has had its turn, and gates may have stood before it. Whether it was called.
    pub(super) fn had_its_turn(&mut self, place: usize, watch: &mut Watch, shared: &RunState) -> bool {
        let read = watch.read;
        match shared.current.gate.get() {
            GateResult::Closed => {
                watch.held_back(self, place, shared);
                if read != read_counter::value() {
                    self.materialised(place, read);
                }
                return false;
            }
            GateResult::Opened => {
                self.called(place, read);
                watch.came_through(self, place, shared);
            }
            GateResult::NoGate | GateResult::NotTracked => {
                self.called(place, read);
                watch.lap(self, place, shared);
            }
        }
        true
    }

    /// What it took.
    pub(super) fn total(&self) -> u64 {
        self.tallies.iter().flatten().map(|tally| tally.total()).sum()
    }

    /// What it took of training steps, and how far that may be from the truth where it is an estimate.
    pub(super) fn in_steps(&self, under_way: bool) -> (u64, f64) {
        let tallies = || self.tallies.iter().flatten();
        let variance: f64 = tallies().map(|tally| tally.variance()).sum();
        (tallies().map(|tally| tally.in_steps(under_way)).sum(), 2.0 * variance.sqrt())
    }

    /// The hook was called; the read_counter stood there before.
    #[inline]
    pub(super) fn called(&mut self, place: usize, read: u64) {
        self.calls[place] += 1;
        if read != read_counter::value() {
            self.materialised(place, read);
        }
    }

    #[cold]
    fn materialised(&mut self, place: usize, before: u64) {
        let ReadCounts { scalars, tensors } = read_counter::difference(before, read_counter::value());
        self.read.scalars += scalars;
        self.read.tensors += tensors;
        let worked = read_counter::take_engine_nanos();
        if worked > 0 {
            self.worked(place, worked);
        }
    }

    /// The last call took so much longer.
    pub(super) fn lengthen(&mut self, place: usize, nanos: u64) {
        let call = self.calls[place];
        self.tally(place).lengthen(call, nanos);
    }

    /// How often the hook was called at each place, and how long that took where any call was timed.
    pub(super) fn places(&self) -> impl Iterator<Item = (u64, Option<&Tally>)> {
        self.calls.into_iter().zip(self.tallies.iter().map(Option::as_deref))
    }

    pub(super) fn tallies(&mut self) -> impl Iterator<Item = &mut Tally> {
        self.tallies.iter_mut().filter_map(Option::as_deref_mut)
    }

    /// So long was worked for the hook besides its calls.
    pub(super) fn worked(&mut self, place: usize, nanos: u64) {
        self.tally(place).add(nanos, 1);
    }
}

/// Reads the clock from hook to hook, where a delivery is timed.
pub(super) struct Watch {
    weight: u32,
    last: u64,
    /// Where the read_counter stood before the hook whose turn it is.
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

    /// A hook's turn is over.
    pub(super) fn lap(&mut self, account: &mut Account, place: usize, shared: &RunState) {
        if self.runs() {
            let now = shared.clock.nanos();
            account.note(place, now.saturating_sub(self.last), self.weight);
            self.last = now;
        }
    }

    /// A gate has held an event back: what it took to say so is its hook's, and no call.
    fn held_back(&mut self, account: &mut Account, place: usize, shared: &RunState) {
        if self.runs() {
            self.gate(account, place, shared.clock.nanos());
        }
    }

    /// A call that came through a gate, and is timed because of that, is over: it stands for itself.
    fn came_through(&mut self, account: &mut Account, place: usize, shared: &RunState) {
        let (opened, now) = (shared.current.opened_at.get(), shared.clock.nanos());
        if self.runs() {
            self.gate(account, place, opened);
        }
        account.note(place, now.saturating_sub(opened), 1);
        self.last = now;
    }

    /// So long it took to ask a gate.
    fn gate(&mut self, account: &mut Account, place: usize, until: u64) {
        account.tally(place).add(until.saturating_sub(self.last), u64::from(self.weight));
        self.last = until;
    }
}

impl HookRunner {
    /// As [`HookRunner::walk`] does it, and counts who has received the event and what that made materialise. Looks
    /// closely where the clock is read, where it is to be known afterwards who has received what, and where the plan still
    /// lists a disabled hook.
    #[inline]
    pub(super) fn walk_counting<C: Context, const CLOSELY: bool>(
        &mut self,
        cx: &C,
        walk: &mut Walk,
        watch: &mut Watch,
    ) -> EventResult {
        let (place, shared) = (C::EVENT as usize, cx.run_cx().shared);
        watch.read = read_counter::value();
        let on = !CLOSELY || self.accounting.on;
        let untouched = if on { GateResult::NoGate } else { GateResult::NotTracked };
        shared.current.gate.set(untouched);
        let stale = self.planned.outdated;
        for &id in walk.rest(self.planned.plan.receivers(C::EVENT)) {
            walk.next += 1;
            let slot = &mut self.slots[id];
            if (stale && slot.is_out(C::EVENT)) || slot.had_its_teardown(C::EVENT) {
                continue;
            }
            shared.current.hook.set(id);
            let reply = slot.offer(cx);
            let account = &mut slot.status.account;
            let mut called = true;
            if shared.current.gate.get() == untouched {
                if on {
                    account.called(place, watch.read);
                }
                watch.read = read_counter::value();
                if CLOSELY {
                    watch.lap(account, place, shared);
                }
            } else {
                called = account.had_its_turn(place, watch, shared);
                watch.read = read_counter::value();
                shared.current.gate.set(untouched);
            }
            if CLOSELY
                && called
                && let Some(noted) = &mut self.received
            {
                noted.resize(noted.len().max(id + 1), super::Received::default());
                noted[id].note(C::EVENT, cx.run_cx().phase);
            }
            reply?;
        }
        Ok(())
    }

    /// A call that ended in a panic is a call like the others.
    pub(super) fn count_panic(&mut self, event: Event, at: usize, watch: &mut Watch, shared: &RunState) {
        if !self.accounting.on {
            return;
        }
        let id = self.plan().receivers(event)[at];
        let account = &mut self.slots[id].status.account;
        account.had_its_turn(event as usize, watch, shared);
    }
}
