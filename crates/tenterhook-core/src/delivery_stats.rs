//! Statistics of the items that a hook handed to a worker thread.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The items that a hook handed to a worker thread, their outcomes, and the time that the training thread
/// waited for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeliveryStats {
    /// Items that were handed over.
    pub sent: u64,
    /// Items that arrived.
    pub delivered: u64,
    /// Items whose delivery failed.
    pub failed: u64,
    /// Items that were dropped for newer ones because the queue was full.
    pub dropped: u64,
    /// Items that were still queued when the time to finish was over.
    pub lost: u64,
    /// How long training waited for room in the queue.
    #[serde(rename = "waited_s", with = "crate::seconds")]
    pub waited: Duration,
    /// How long the end of the run waited for the remaining items.
    #[serde(rename = "flushed_s", with = "crate::seconds")]
    pub flushed: Duration,
}

impl std::ops::AddAssign for DeliveryStats {
    fn add_assign(&mut self, other: DeliveryStats) {
        self.sent += other.sent;
        self.delivered += other.delivered;
        self.failed += other.failed;
        self.dropped += other.dropped;
        self.lost += other.lost;
        self.waited += other.waited;
        self.flushed += other.flushed;
    }
}
