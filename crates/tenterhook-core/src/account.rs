//! The costs of hooks: number and time of their calls, and values read from the engine.
//!
//! Every call is counted. For events that occur once per batch or more often, the first thousand deliveries
//! are timed, then a random sample of one in sixteen, weighted accordingly. All other events are always
//! timed. The first thousand calls behind a gate such as `every` are also timed: they are rare, and a sample
//! of deliveries would miss most of them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::roster::HookKind;

/// All deliveries of an event, and all calls behind a gate, are timed up to this number.
pub(crate) const ALL_TIMED: u32 = 1000;

/// The cost of a hook, in total or at one event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cost {
    /// The number of calls. An event that a gate withheld does not count as a call.
    pub calls: u64,
    /// The total time; an estimate if not every call was timed.
    #[serde(rename = "total_s", with = "crate::seconds")]
    pub total: Duration,
    /// The median time of a call, within an eighth.
    #[serde(rename = "p50_s", with = "crate::seconds")]
    pub p50: Duration,
    /// The 99th percentile of the time of a call, within an eighth.
    #[serde(rename = "p99_s", with = "crate::seconds")]
    pub p99: Duration,
    /// The longest timed call.
    #[serde(rename = "longest_s", with = "crate::seconds")]
    pub longest: Duration,
    /// The part of the total within training steps.
    #[serde(rename = "in_steps_s", with = "crate::seconds")]
    pub in_steps: Duration,
    /// Not every call was timed, so the times are estimates.
    pub estimated: bool,
}

/// The cost of a hook so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookCost {
    /// The name under which the hook is registered.
    pub hook: String,
    /// The hook's kind.
    pub kind: HookKind,
    /// Whether the hook still receives events.
    pub enabled: bool,
    /// How often the hook failed.
    pub failures: u32,
    /// The cost of all calls.
    pub cost: Cost,
    /// The values that the hook read from the engine.
    pub read: ReadCounts,
    /// The cost by event, named by its handler, in the order of the table of events; `update` comes last.
    pub by_event: Vec<(&'static str, Cost)>,
}

/// The number of values that were read from the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReadCounts {
    /// Losses, norms and other single numbers.
    pub scalars: u64,
    /// Tensors, or statistics of them.
    pub tensors: u64,
}

/// The share of the time of training steps that a hook may take.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Budget {
    /// From 0 to 1.
    pub share: f64,
    /// The action if the hook exceeds it.
    pub over: OverBudget,
}

/// The action for a hook that exceeds its budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum OverBudget {
    /// Warn once.
    #[default]
    Warn,
    /// Warn, and disable the hook if it is an observer that no controller or update hook reads from.
    Disable,
}

/// A hook has exceeded its budget.
#[derive(Clone, Debug, PartialEq)]
pub struct BudgetOverrun {
    /// The hook's name.
    pub hook: String,
    /// The share that it took, from 0 to 1.
    pub share: f64,
    /// The share that it may take, from 0 to 1.
    pub budget: f64,
    /// Whether the hook was disabled.
    pub disabled: bool,
}

/// Buckets per power of two; they determine a duration within an eighth.
const FINE: u32 = 4;
/// Up to 2^40 nanoseconds, about 18 minutes. Longer durations are counted in the last bucket.
const BUCKETS: usize = 40 * FINE as usize;

/// Times of calls, in nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    total: u64,
    longest: u64,
    estimated: bool,
    /// The number of the call that was timed last, and its time.
    last: (u64, u64),
    /// The part of the total within finished training steps, and the total when the current steps began.
    in_steps: u64,
    total_at_begin: u64,
    /// Variance of the estimated part of the total.
    variance: f64,
    histogram: [u64; BUCKETS],
}

impl Default for Tally {
    fn default() -> Tally {
        Tally {
            total: 0,
            longest: 0,
            estimated: false,
            last: (0, 0),
            in_steps: 0,
            total_at_begin: 0,
            variance: 0.0,
            histogram: [0; BUCKETS],
        }
    }
}

impl Tally {
    /// Adds the time of the call with this number, which stands for `weight` calls.
    pub(crate) fn time_call(&mut self, call: u64, nanos: u64, weight: u64) {
        self.add(nanos, weight);
        self.longest = self.longest.max(nanos);
        self.last = (call, nanos);
        self.histogram[bucket(nanos)] += weight;
    }

    /// Adds time, multiplied by `weight`, without counting a call.
    pub(crate) fn add(&mut self, nanos: u64, weight: u64) {
        if weight > 1 && nanos > 0 {
            self.estimated = true;
            // The call was chosen with probability 1 / weight.
            self.variance += (weight * (weight - 1)) as f64 * (nanos as f64).powi(2);
        }
        self.total = self.total.saturating_add(nanos.saturating_mul(weight));
    }

    /// Adds time to the call with this number. Calls are numbered from 1; 0 means that the hook was never
    /// called.
    pub(crate) fn extend_call(&mut self, call: u64, nanos: u64) {
        let before = match self.last {
            (timed, before) if timed == call && call > 0 => {
                self.histogram[bucket(before)] -= 1;
                before
            }
            _ => 0,
        };
        self.add(nanos, 1);
        self.last = (call, before + nanos);
        self.longest = self.longest.max(before + nanos);
        self.histogram[bucket(before + nanos)] += 1;
    }

    /// Training steps begin.
    pub(crate) fn begin_steps(&mut self) {
        self.total_at_begin = self.total;
    }

    /// Training steps pause.
    pub(crate) fn end_steps(&mut self) {
        self.in_steps = self.in_steps(true);
        self.total_at_begin = self.total;
    }

    /// The time within training steps, including the current ones.
    pub(crate) fn in_steps(&self, in_progress: bool) -> u64 {
        self.in_steps + if in_progress { self.total - self.total_at_begin } else { 0 }
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    pub(crate) fn variance(&self) -> f64 {
        self.variance
    }

    pub(crate) fn merge(&mut self, other: &Tally) {
        self.total += other.total;
        self.variance += other.variance;
        self.in_steps += other.in_steps;
        self.total_at_begin += other.total_at_begin;
        self.longest = self.longest.max(other.longest);
        self.estimated |= other.estimated;
        self.histogram.iter_mut().zip(&other.histogram).for_each(|(mine, others)| *mine += others);
    }

    pub(crate) fn cost(&self, calls: u64, in_steps: bool) -> Cost {
        let [total, longest, in_steps] =
            [self.total, self.longest, self.in_steps(in_steps)].map(Duration::from_nanos);
        let [p50, p99] = [50, 99].map(|percent| Duration::from_nanos(self.percentile(percent)));
        Cost { calls, total, p50, p99, longest, in_steps, estimated: self.estimated }
    }

    fn percentile(&self, percent: u64) -> u64 {
        let all: u64 = self.histogram.iter().sum();
        let wanted = (all * percent).div_ceil(100);
        let mut seen = 0;
        let at = self.histogram.iter().position(|count| {
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

/// The middle of a bucket.
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
        (1..=1000).for_each(|micros| tally.time_call(micros, micros * 1000, 1));
        let cost = tally.cost(1000, false);
        let near =
            |duration: Duration, micros: f64| (duration.as_secs_f64() * 1e6 / micros - 1.0).abs() < 0.13;
        assert!(near(cost.p50, 500.0) && near(cost.p99, 990.0), "{cost:?}");
        assert_eq!((cost.total, cost.longest), (Duration::from_micros(500_500), Duration::from_millis(1)));
    }

    #[test]
    fn a_sampled_call_counts_with_its_weight() {
        let mut tally = Tally::default();
        tally.time_call(1, 100, 1);
        assert!(!tally.cost(1, false).estimated, "each has weight 1");
        tally.time_call(2, 1000, 99);
        let cost = tally.cost(100, false);
        assert!(cost.estimated);
        assert_eq!(cost.total, Duration::from_nanos(99_100));
        assert!(cost.p50 > Duration::from_nanos(800), "{cost:?}");
    }

    #[test]
    fn extending_a_call_adds_no_call() {
        let mut tally = Tally::default();
        (1..=3).for_each(|call| {
            tally.time_call(call, 100, 1);
            tally.extend_call(call, 900);
            tally.extend_call(call, 1000);
        });
        let cost = tally.cost(3, false);
        assert_eq!((cost.total, cost.longest), (Duration::from_micros(6), Duration::from_micros(2)));
        assert!(cost.p50 > Duration::from_nanos(1700), "{cost:?}");
        tally.extend_call(4, 10);
        assert_eq!(tally.histogram.iter().sum::<u64>(), 4, "a call that was not timed itself");
        let mut elsewhere = Tally::default();
        elsewhere.extend_call(0, 10);
        assert_eq!(elsewhere.cost(0, false).total, Duration::from_nanos(10), "time without a call");
    }

    #[test]
    fn without_calls_everything_is_zero() {
        assert_eq!(Tally::default().cost(0, true), Cost::default());
    }

    #[test]
    fn time_outside_of_steps_is_counted_separately() {
        let mut tally = Tally::default();
        tally.time_call(1, 1000, 1);
        tally.begin_steps();
        tally.time_call(2, 10, 1);
        assert_eq!((tally.in_steps(true), tally.in_steps(false)), (10, 0));
        tally.end_steps();
        tally.time_call(3, 1000, 1);
        tally.begin_steps();
        tally.time_call(4, 5, 1);
        let mut all = Tally::default();
        all.merge(&tally);
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
