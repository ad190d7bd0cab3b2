//! The deliveries of the hooks' worker threads, as `run.json` stores them.

use serde::{Deserialize, Serialize};
use tenterhook_core::{DeliveryStats, HookRunner};

/// What a sink, a hook with a worker thread, has delivered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct SinkDeliveries {
    /// The hook's name.
    pub hook: String,
    /// The number of items that the hook sent.
    pub sent: u64,
    /// The number that arrived.
    pub delivered: u64,
    /// The number that failed.
    pub failed: u64,
    /// The number dropped for newer items because the queue was full.
    pub dropped: u64,
    /// The number still queued when the time limit at the end of the run was over.
    pub lost: u64,
    /// The time that training waited for room in the queue, in seconds.
    pub waited_s: f64,
    /// The time that the end of the run waited for the queue, in seconds.
    pub flushed_s: f64,
}

impl SinkDeliveries {
    /// The deliveries of all hooks with worker threads.
    pub(crate) fn all(hooks: &HookRunner) -> Vec<SinkDeliveries> {
        hooks.delivery_stats().iter().map(|(hook, sent)| SinkDeliveries::new(hook.clone(), *sent)).collect()
    }

    fn new(hook: String, stats: DeliveryStats) -> SinkDeliveries {
        let DeliveryStats { sent, delivered, failed, dropped, lost, waited, flushed } = stats;
        let (waited_s, flushed_s) = (waited.as_secs_f64(), flushed.as_secs_f64());
        SinkDeliveries { hook, sent, delivered, failed, dropped, lost, waited_s, flushed_s }
    }

    /// Adds the deliveries of a later call.
    pub fn add_all(all: &mut Vec<SinkDeliveries>, later: &[SinkDeliveries]) {
        for sink in later {
            match all.iter_mut().find(|known| known.hook == sink.hook) {
                Some(known) => known.add(sink),
                None => all.push(sink.clone()),
            }
        }
    }

    fn add(&mut self, other: &SinkDeliveries) {
        self.sent += other.sent;
        self.delivered += other.delivered;
        self.failed += other.failed;
        self.dropped += other.dropped;
        self.lost += other.lost;
        self.waited_s += other.waited_s;
        self.flushed_s += other.flushed_s;
    }
}
