//! Limits the rate of messages.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

const HOUR: Duration = Duration::from_hours(1);

/// The maximum rate of messages.
#[derive(Clone, Debug)]
pub(super) struct RateLimit {
    pub(super) min_interval: Duration,
    pub(super) max_per_hour: usize,
}

/// The messages of the last hour.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RecentMessages {
    /// The elapsed times of the run at which messages were sent.
    sent: VecDeque<Duration>,
    suppressed: u64,
}

impl RecentMessages {
    /// Whether a message may be sent now. If it `must` be sent, it is always allowed, and counts towards the limit.
    pub(super) fn allow(&mut self, limit: &RateLimit, now: Duration, must: bool) -> bool {
        self.sent.retain(|at| now.saturating_sub(*at) < HOUR);
        let too_soon = self.sent.back().is_some_and(|last| now.saturating_sub(*last) < limit.min_interval);
        if !must && (too_soon || self.sent.len() >= limit.max_per_hour) {
            self.suppressed += 1;
            return false;
        }
        self.sent.push_back(now);
        true
    }

    /// The number of messages suppressed since the last call.
    pub(super) fn take_suppressed(&mut self) -> u64 {
        std::mem::take(&mut self.suppressed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_that_come_too_soon_or_too_often_are_suppressed_and_counted() {
        let limit = RateLimit { min_interval: Duration::from_secs(10), max_per_hour: 3 };
        let mut recent = RecentMessages::default();
        let mut at = |seconds, must| recent.allow(&limit, Duration::from_secs(seconds), must);
        assert!(at(0, false));
        assert!(!at(9, false), "too soon");
        assert!(at(10, false));
        assert!(at(11, true), "it must be sent, and counts");
        assert!(!at(100, false), "three within the hour");
        assert!(!at(3599, false));
        assert!(at(3600, false), "the first is an hour ago");
        assert!(at(3601, true));
        assert_eq!([recent.take_suppressed(), recent.take_suppressed()], [3, 0]);
    }
}
