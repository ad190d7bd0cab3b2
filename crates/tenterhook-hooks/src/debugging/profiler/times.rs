//! Durations in constant memory: count, sum and quantiles.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The number of buckets per doubling.
const PER_DOUBLING: f64 = 32.0;

/// Covers times up to 2⁴⁴ ns, almost five hours; longer times count as this maximum.
const BUCKETS: usize = 44 * 32;

/// The relative error of a quantile: half a bucket.
pub(super) const BOUND: f64 = 0.011;

/// A histogram of times in buckets that grow by 2.2 % each, so that a quantile is within 1.1 % of the exact one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Times {
    pub(super) count: u64,
    pub(super) total: Duration,
    shortest: Duration,
    longest: Duration,
    /// The number of times below a nanosecond.
    none: u64,
    buckets: Buckets,
}

/// The count of each bucket. A checkpoint holds only the buckets in use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Vec<(usize, u64)>", into = "Vec<(usize, u64)>")]
struct Buckets(Vec<u64>);

impl Default for Buckets {
    fn default() -> Buckets {
        Buckets(vec![0; BUCKETS])
    }
}

impl From<Vec<(usize, u64)>> for Buckets {
    fn from(used: Vec<(usize, u64)>) -> Buckets {
        let mut buckets = Buckets::default();
        for (at, count) in used {
            if let Some(bucket) = buckets.0.get_mut(at) {
                *bucket = count;
            }
        }
        buckets
    }
}

impl From<Buckets> for Vec<(usize, u64)> {
    fn from(buckets: Buckets) -> Vec<(usize, u64)> {
        buckets.0.into_iter().enumerate().filter(|(_, count)| *count > 0).collect()
    }
}

impl Times {
    pub(super) fn add(&mut self, time: Duration) {
        self.shortest = if self.count == 0 { time } else { self.shortest.min(time) };
        self.longest = self.longest.max(time);
        self.count = self.count.saturating_add(1);
        self.total = self.total.saturating_add(time);
        match bucket_of(time) {
            Some(at) => self.buckets.0[at] = self.buckets.0[at].saturating_add(1),
            None => self.none = self.none.saturating_add(1),
        }
    }

    pub(super) fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.total.as_secs_f64() / self.count as f64 }
    }

    /// The quantile in seconds, with a relative error of at most [`BOUND`]. `fraction` is between 0 and 1.
    pub(super) fn quantile(&self, fraction: f64) -> f64 {
        let needed = fraction * self.count as f64;
        let mut reached = self.none as f64;
        if self.count == 0 || reached >= needed {
            return 0.0;
        }
        for (at, number) in self.buckets.0.iter().enumerate() {
            reached += *number as f64;
            if reached >= needed {
                let middle = ((at as f64 + 0.5) / PER_DOUBLING).exp2() * 1e-9;
                return middle.clamp(self.shortest.as_secs_f64(), self.longest.as_secs_f64());
            }
        }
        self.longest.as_secs_f64()
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // not negative, and bounded
fn bucket_of(time: Duration) -> Option<usize> {
    let nanoseconds = time.as_nanos() as f64;
    (nanoseconds >= 1.0).then(|| ((nanoseconds.log2() * PER_DOUBLING) as usize).min(BUCKETS - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(nanoseconds: impl IntoIterator<Item = u64>) -> Times {
        let mut times = Times::default();
        nanoseconds.into_iter().for_each(|time| times.add(Duration::from_nanos(time)));
        times
    }

    #[test]
    fn quantiles_are_within_the_bound_whatever_the_size() {
        for unit in [1, 1000, 1_000_000, 1_000_000_000] {
            // Out of order.
            let all = times((1..=1000).map(|time| (time * 3 % 1001) * unit));
            for (share, exact) in [(0.5, 500), (0.99, 990), (1.0, 1000), (0.001, 1)] {
                let exact = (exact * unit) as f64 * 1e-9;
                let found = all.quantile(share);
                assert!((found / exact - 1.0).abs() <= BOUND, "{share} of {unit} ns: {found} for {exact}");
            }
            assert!((all.mean() / (500.5e-9 * unit as f64) - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn a_single_time_and_none_at_all_are_exact() {
        let close = |a: f64, b: f64| (a - b).abs() < 1e-15;
        assert!(close(times([12_345]).quantile(0.5), 12.345e-6));
        assert!(close(times([]).quantile(0.5), 0.0) && close(times([]).mean(), 0.0));
        assert!(close(times([0, 0, 5]).quantile(0.5), 0.0));
        let long = times([u64::MAX / 2, u64::MAX / 2]);
        assert!(close(long.quantile(0.5), Duration::from_nanos(u64::MAX / 2).as_secs_f64()));
    }

    #[test]
    fn a_checkpoint_holds_only_the_buckets_in_use() {
        let all = times([0, 1, 1000, 1000]);
        let text = serde_json::to_string(&all).expect("it writes");
        assert!(text.len() < 200, "{text}");
        assert_eq!(serde_json::from_str::<Times>(&text).expect("it reads"), all);
    }
}
