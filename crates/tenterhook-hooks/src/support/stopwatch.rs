//! A stopwatch of the run's time, which continues after a resume.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Adds up intervals of time. It has no clock: callers pass the current time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Stopwatch {
    spent: Duration,
    running_since: Option<Duration>,
}

impl Stopwatch {
    /// Starts it, unless it is running.
    pub(crate) fn start(&mut self, now: Duration) {
        self.running_since.get_or_insert(now);
    }

    /// Stops it, unless it is stopped.
    pub(crate) fn stop(&mut self, now: Duration) {
        self.spent = self.read(now);
        self.running_since = None;
    }

    /// Returns the time and resets it. It continues if it is running.
    pub(crate) fn take(&mut self, now: Duration) -> Duration {
        let taken = self.read(now);
        *self = Stopwatch { spent: Duration::ZERO, running_since: self.running_since.map(|_| now) };
        taken
    }

    pub(crate) fn read(&self, now: Duration) -> Duration {
        self.spent + self.running_since.map_or(Duration::ZERO, |since| now.saturating_sub(since))
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running_since.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_add_up_without_the_time_between() {
        let at = Duration::from_secs;
        let mut watch = Stopwatch::default();
        watch.start(at(10));
        watch.start(at(11));
        assert_eq!(watch.read(at(12)), at(2), "a second start changes nothing");
        watch.stop(at(13));
        watch.stop(at(14));
        assert_eq!(watch.read(at(20)), at(3));
        watch.start(at(20));
        assert_eq!(watch.take(at(21)), at(4));
        assert!(watch.is_running());
        assert_eq!(watch.read(at(23)), at(2), "it went on");
    }
}
