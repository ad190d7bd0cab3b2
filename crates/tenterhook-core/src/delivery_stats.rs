//! What became of what a hook handed to a worker thread of its own.

use std::time::Duration;

/// How much a hook handed over, what became of it, and what that cost the training thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeliveryStats {
    /// How much was handed over.
    pub sent: u64,
    /// How much arrived.
    pub delivered: u64,
    /// How much was tried in vain.
    pub failed: u64,
    /// How much made way for newer things, because the queue was full.
    pub dropped: u64,
    /// How much was still waiting when the time to finish was over.
    pub lost: u64,
    /// How long training waited for room in the queue.
    pub waited: Duration,
    /// How long the end of the run waited for the rest.
    pub flushed: Duration,
}
