//! Clocks: the wall clock, and the batch clock of rehearsals.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tenterhook_core::Clock;

/// The time since a trainer or a loop was made.
pub(crate) struct WallClock(Instant);

impl WallClock {
    pub(crate) fn start() -> WallClock {
        WallClock(Instant::now())
    }
}

impl Clock for WallClock {
    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    // Called around every timed hook, so it avoids 128-bit arithmetic.
    #[inline]
    fn nanos(&self) -> u64 {
        let since = self.0.elapsed();
        since.as_secs() * 1_000_000_000 + u64::from(since.subsec_nanos())
    }
}

/// A clock that advances one second per training batch. Time-based cadences fire at the same batch in every
/// rehearsal.
#[derive(Clone, Default)]
pub(crate) struct BatchClock(Arc<AtomicU64>);

impl BatchClock {
    /// Advances the clock by one batch.
    pub(crate) fn tick(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Clock for BatchClock {
    fn elapsed(&self) -> Duration {
        Duration::from_secs(self.0.load(Ordering::Relaxed))
    }
}
