//! Many times in little memory: their number, sum and quantiles.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// So many buckets stand for a doubling.
const PER_DOUBLING: f64 = 32.0;

/// Up to 2⁴⁴ ns, almost five hours; what is longer counts as that.
const BUCKETS: usize = 44 * 32;

/// How far a quantile can be from the true one: half a bucket.
pub(super) const BOUND: f64 = 0.011;

/// Times counted in buckets that grow by 2.2 % each, so that a quantile is within 1.1 % of the true one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Saved", into = "Saved")]
pub(super) struct Times {
    pub(super) count: u64,
    pub(super) total: Duration,
    shortest: Duration,
    longest: Duration,
    /// Those of less than a nanosecond.
    none: u64,
    buckets: Vec<u64>,
}

impl Default for Times {
    fn default() -> Times {
        Saved::default().into()
    }
}

/// As a checkpoint holds them: only the buckets that are in use.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Saved {
    count: u64,
    total: Duration,
    shortest: Duration,
    longest: Duration,
    none: u64,
    buckets: Vec<(usize, u64)>,
}

impl From<Saved> for Times {
    fn from(saved: Saved) -> Times {
        let Saved { count, total, shortest, longest, none, buckets: used } = saved;
        let mut buckets = vec![0; BUCKETS];
        for (at, number) in used {
            if let Some(bucket) = buckets.get_mut(at) {
                *bucket = number;
            }
        }
        Times { count, total, shortest, longest, none, buckets }
    }
}

impl From<Times> for Saved {
    fn from(times: Times) -> Saved {
        let Times { count, total, shortest, longest, none, buckets } = times;
        let used = buckets.into_iter().enumerate().filter(|(_, number)| *number > 0).collect();
        Saved { count, total, shortest, longest, none, buckets: used }
    }
}

impl Times {
    pub(super) fn add(&mut self, time: Duration) {
        self.shortest = if self.count == 0 { time } else { self.shortest.min(time) };
        self.longest = self.longest.max(time);
        self.count = self.count.saturating_add(1);
        self.total = self.total.saturating_add(time);
        match bucket_of(time) {
            Some(at) => self.buckets[at] = self.buckets[at].saturating_add(1),
            None => self.none = self.none.saturating_add(1),
        }
    }

    pub(super) fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.total.as_secs_f64() / self.count as f64 }
    }

    /// In seconds, the least time that this share of all is not above, within [`BOUND`].
    pub(super) fn quantile(&self, share: f64) -> f64 {
        let needed = share * self.count as f64;
        let mut reached = self.none as f64;
        if self.count == 0 || reached >= needed {
            return 0.0;
        }
        for (at, number) in self.buckets.iter().enumerate() {
            reached += *number as f64;
            if reached >= needed {
                let middle = ((at as f64 + 0.5) / PER_DOUBLING).exp2() * 1e-9;
                return middle.clamp(self.shortest.as_secs_f64(), self.longest.as_secs_f64());
            }
        }
        self.longest.as_secs_f64()
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // from 0 on, and then bounded
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
            // Out of order, on purpose.
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
    fn they_come_back_from_a_checkpoint_which_holds_only_what_is_in_use() {
        let all = times([0, 1, 1000, 1000]);
        let text = serde_json::to_string(&all).expect("it writes");
        assert!(text.len() < 200, "{text}");
        assert_eq!(serde_json::from_str::<Times>(&text).expect("it reads"), all);
    }
}
