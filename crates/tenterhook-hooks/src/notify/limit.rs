//! How many messages are let through, so that nobody's chat is flooded.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

const HOUR: Duration = Duration::from_hours(1);

/// Lets messages through, not too many. It is told the time.
#[derive(Clone, Debug)]
pub(super) struct Limit {
    min_interval: Duration,
    max_per_hour: usize,
    /// What a checkpoint keeps.
    pub(super) memory: Memory,
}

/// What became of messages so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Memory {
    /// The run's time when messages were let through, within the last hour.
    passed: VecDeque<Duration>,
    held_back: u64,
}

impl Limit {
    pub(super) fn new(min_interval: Duration, max_per_hour: usize) -> Limit {
        Limit { min_interval, max_per_hour, memory: Memory::default() }
    }

    /// Whether a message may go out now. One that `must` go out always may, and counts.
    pub(super) fn lets_through(&mut self, now: Duration, must: bool) -> bool {
        let Memory { passed, held_back } = &mut self.memory;
        passed.retain(|at| now.saturating_sub(*at) < HOUR);
        let too_soon = passed.back().is_some_and(|last| now.saturating_sub(*last) < self.min_interval);
        if !must && (too_soon || passed.len() >= self.max_per_hour) {
            *held_back += 1;
            return false;
        }
        passed.push_back(now);
        true
    }

    /// How many were held back since this was last asked.
    pub(super) fn take_held_back(&mut self) -> u64 {
        std::mem::take(&mut self.memory.held_back)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_too_soon_or_too_often_is_held_back_and_counted() {
        let mut limit = Limit::new(Duration::from_secs(10), 3);
        let mut at = |seconds, must| limit.lets_through(Duration::from_secs(seconds), must);
        assert!(at(0, false));
        assert!(!at(9, false), "too soon");
        assert!(at(10, false));
        assert!(at(11, true), "it must go out, and counts");
        assert!(!at(100, false), "three within the hour");
        assert!(!at(3599, false));
        assert!(at(3600, false), "the first is an hour ago");
        assert!(at(3601, true));
        assert_eq!([limit.take_held_back(), limit.take_held_back()], [3, 0]);
    }
}
