//! What hooks cost: how often each was called, how long that took, and what it made materialise.
//!
//! Every call is counted. Of what happens once per batch or more often, the first thousand deliveries of an event are
//! timed, and then one in sixteen at random, which stands for those that it was chosen from; everything else is always
//! timed. So are the first thousand calls that came through a gate, such as `every`: they are rare, and a choice among
//! deliveries would miss most of them. A clock is read once before the first hook and once after each.

use std::time::Duration;

use crate::roster::HookKind;

/// So many deliveries of an event are all timed, and so many openings of a gate.
pub(crate) const ALL_TIMED: u32 = 1000;

/// What a hook cost, in all or at one event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// How often it was called. What a gate held back is not among it.
    pub calls: u64,
    /// How long that took together; an estimate where not every call was timed.
    pub total: Duration,
    /// Half of the calls took less, within an eighth.
    pub p50: Duration,
    /// All but one in a hundred took less, within an eighth.
    pub p99: Duration,
    /// The longest of those that were timed.
    pub longest: Duration,
    /// The part of the total that was spent in training steps.
    pub in_steps: Duration,
    /// Not every call was timed, so the others are taken for like those that were.
    pub estimated: bool,
}

/// What a hook has cost so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookCost {
    /// The name that it is registered under.
    pub hook: String,
    /// Its kind.
    pub kind: HookKind,
    /// Whether it still receives events.
    pub enabled: bool,
    /// How often it failed.
    pub failures: u32,
    /// All of its calls.
    pub cost: Cost,
    /// What it made materialise.
    pub read: ReadCounts,
    /// The same by event, named by its handler, in the order of the table of events; `update` comes last.
    pub by_event: Vec<(&'static str, Cost)>,
}

/// How many values were brought over from the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadCounts {
    /// Losses, norms and other single numbers.
    pub scalars: u64,
    /// Whole tensors, or statistics of them.
    pub tensors: u64,
}

/// What share of the time of training steps a hook may take.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Budget {
    /// Of 1.
    pub share: f64,
    /// What happens when it takes more.
    pub over: OverBudget,
}

/// What happens to a hook that takes more than its budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum OverBudget {
    /// It is told of, once.
    #[default]
    Warn,
    /// It is told of, and disabled if it is an observer that nobody who steers training reads from.
    Disable,
}

/// A hook took more than its budget.
#[derive(Clone, Debug, PartialEq)]
pub struct BudgetOverrun {
    /// The hook's name.
    pub hook: String,
    /// What share it took, of 1.
    pub share: f64,
    /// What share it may take, of 1.
    pub budget: f64,
    /// Whether it was disabled.
    pub disabled: bool,
}

/// Buckets for every power of two, so that a duration is known within an eighth.
const FINE: u32 = 4;
/// Up to 2^40 nanoseconds, a quarter of an hour; what takes longer is counted there.
const BUCKETS: usize = 40 * FINE as usize;

/// How long the calls took that were timed, in nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    total: u64,
    longest: u64,
    estimated: bool,
    /// The call that was timed last, by its number, and how long it took.
    last: (u64, u64),
    /// What of the total belongs to training steps that are over, and what it was when the steps began that are not.
    in_steps: u64,
    since: u64,
    /// Of the total, as far as it is an estimate from some of the calls.
    variance: f64,
    spread: [u64; BUCKETS],
}

impl Default for Tally {
    fn default() -> Tally {
        Tally {
            total: 0,
            longest: 0,
            estimated: false,
            last: (0, 0),
            in_steps: 0,
            since: 0,
            variance: 0.0,
            spread: [0; BUCKETS],
        }
    }
}

impl Tally {
    /// The call of this number took so long, and stands for this many.
    pub(crate) fn note(&mut self, call: u64, nanos: u64, weight: u64) {
        self.add(nanos, weight);
        self.longest = self.longest.max(nanos);
        self.last = (call, nanos);
        self.spread[bucket(nanos)] += weight;
    }

    /// So long was worked for calls that are noted by themselves, or for none; this stands for so many times.
    pub(crate) fn add(&mut self, nanos: u64, weight: u64) {
        if weight > 1 && nanos > 0 {
            self.estimated = true;
            // Each was chosen with a chance of one in so many.
            self.variance += (weight * (weight - 1)) as f64 * (nanos as f64).powi(2);
        }
        self.total = self.total.saturating_add(nanos.saturating_mul(weight));
    }

    /// The call of this number took so much longer. Calls are numbered from 1: a loop may charge a hook that it never called.
    pub(crate) fn lengthen(&mut self, call: u64, nanos: u64) {
        let before = match self.last {
            (timed, before) if timed == call && call > 0 => {
                self.spread[bucket(before)] -= 1;
                before
            }
            _ => 0,
        };
        self.add(nanos, 1);
        self.last = (call, before + nanos);
        self.longest = self.longest.max(before + nanos);
        self.spread[bucket(before + nanos)] += 1;
    }

    /// Training steps begin.
    pub(crate) fn begin_steps(&mut self) {
        self.since = self.total;
    }

    /// Training steps pause.
    pub(crate) fn end_steps(&mut self) {
        self.in_steps = self.in_steps(true);
        self.since = self.total;
    }

    /// What belongs to training steps, also to those that are under way.
    pub(crate) fn in_steps(&self, under_way: bool) -> u64 {
        self.in_steps + if under_way { self.total - self.since } else { 0 }
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    pub(crate) fn variance(&self) -> f64 {
        self.variance
    }

    pub(crate) fn take_in(&mut self, other: &Tally) {
        self.total += other.total;
        self.variance += other.variance;
        self.in_steps += other.in_steps;
        self.since += other.since;
        self.longest = self.longest.max(other.longest);
        self.estimated |= other.estimated;
        self.spread.iter_mut().zip(&other.spread).for_each(|(mine, others)| *mine += others);
    }

    pub(crate) fn cost(&self, calls: u64, in_steps: bool) -> Cost {
        let [total, longest, in_steps] =
            [self.total, self.longest, self.in_steps(in_steps)].map(Duration::from_nanos);
        let [p50, p99] = [50, 99].map(|percent| Duration::from_nanos(self.percentile(percent)));
        Cost { calls, total, p50, p99, longest, in_steps, estimated: self.estimated }
    }

    fn percentile(&self, percent: u64) -> u64 {
        let all: u64 = self.spread.iter().sum();
        let wanted = (all * percent).div_ceil(100);
        let mut seen = 0;
        let at = self.spread.iter().position(|count| {
            seen += count;
            seen >= wanted && seen > 0
        });
        at.map_or(0, |at| middle(at).min(self.longest))
    }
}

fn bucket(nanos: u64) -> usize {
    let fine = u64::from(FINE);
    let at = match nanos.checked_ilog2() {
        None | Some(0 | 1) => nanos,
        Some(power) => u64::from(power - 1) * fine + (nanos >> (power - 2)) % fine,
    };
    usize::try_from(at).unwrap_or(BUCKETS).min(BUCKETS - 1)
}

/// The middle of what falls into a bucket.
fn middle(bucket: usize) -> u64 {
    let (bucket, fine) = (bucket as u64, u64::from(FINE));
    if bucket < fine {
        return bucket;
    }
    let width = 1_u64 << (bucket / fine - 1);
    (fine + bucket % fine) * width + width / 2
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn percentiles_are_those_of_the_calls() {
        let mut tally = Tally::default();
        (1..=1000).for_each(|micros| tally.note(micros, micros * 1000, 1));
        let cost = tally.cost(1000, false);
        let near =
            |duration: Duration, micros: f64| (duration.as_secs_f64() * 1e6 / micros - 1.0).abs() < 0.13;
        assert!(near(cost.p50, 500.0) && near(cost.p99, 990.0), "{cost:?}");
        assert_eq!((cost.total, cost.longest), (Duration::from_micros(500_500), Duration::from_millis(1)));
    }

    #[test]
    fn a_call_stands_for_as_many_as_it_was_chosen_from() {
        let mut tally = Tally::default();
        tally.note(1, 100, 1);
        assert!(!tally.cost(1, false).estimated, "each stands for itself");
        tally.note(2, 1000, 99);
        let cost = tally.cost(100, false);
        assert!(cost.estimated);
        assert_eq!(cost.total, Duration::from_nanos(99_100));
        assert!(cost.p50 > Duration::from_nanos(800), "{cost:?}");
    }

    #[test]
    fn what_lengthens_a_call_is_no_other_call() {
        let mut tally = Tally::default();
        (1..=3).for_each(|call| {
            tally.note(call, 100, 1);
            tally.lengthen(call, 900);
            tally.lengthen(call, 1000);
        });
        let cost = tally.cost(3, false);
        assert_eq!((cost.total, cost.longest), (Duration::from_micros(6), Duration::from_micros(2)));
        assert!(cost.p50 > Duration::from_nanos(1700), "{cost:?}");
        tally.lengthen(4, 10);
        assert_eq!(tally.spread.iter().sum::<u64>(), 4, "a call that was not timed itself");
        let mut elsewhere = Tally::default();
        elsewhere.lengthen(0, 10);
        assert_eq!(elsewhere.cost(0, false).total, Duration::from_nanos(10), "there was no call here");
    }

    #[test]
    fn without_calls_everything_is_zero() {
        assert_eq!(Tally::default().cost(0, true), Cost::default());
    }

    #[test]
    fn what_is_spent_between_steps_is_told_apart() {
        let mut tally = Tally::default();
        tally.note(1, 1000, 1);
        tally.begin_steps();
        tally.note(2, 10, 1);
        assert_eq!((tally.in_steps(true), tally.in_steps(false)), (10, 0));
        tally.end_steps();
        tally.note(3, 1000, 1);
        tally.begin_steps();
        tally.note(4, 5, 1);
        let mut all = Tally::default();
        all.take_in(&tally);
        assert_eq!([&tally, &all].map(|tally| tally.in_steps(true)), [15, 15]);
    }

    proptest! {
        #[test]
        fn a_duration_is_known_within_an_eighth(nanos in 0_u64..1 << 40) {
            let known = middle(bucket(nanos));
            prop_assert!(known.abs_diff(nanos) * 8 <= nanos, "{nanos} became {known}");
        }
    }
}
