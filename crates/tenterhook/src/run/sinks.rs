//! What became of what hooks handed to worker threads, as `run.json` holds it.

use serde::{Deserialize, Serialize};
use tenterhook_core::DeliveryStats;

/// What one hook sent, and what became of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct SentByHook {
    /// The hook's name.
    pub hook: String,
    /// How much it handed over.
    pub sent: u64,
    /// How much arrived.
    pub delivered: u64,
    /// How much was tried in vain.
    pub failed: u64,
    /// How much made way for newer things, because the queue was full.
    pub dropped: u64,
    /// How much was still waiting when the time to finish was over.
    pub lost: u64,
    /// How long training waited for room in the queue, in seconds.
    pub waited_s: f64,
    /// How long the end of the run waited for the rest, in seconds.
    pub flushed_s: f64,
}

impl SentByHook {
    pub(crate) fn new(hook: String, of: DeliveryStats) -> SentByHook {
        let DeliveryStats { sent, delivered, failed, dropped, lost, waited, flushed } = of;
        let (waited_s, flushed_s) = (waited.as_secs_f64(), flushed.as_secs_f64());
        SentByHook { hook, sent, delivered, failed, dropped, lost, waited_s, flushed_s }
    }

    /// Adds what hooks sent in a later call.
    pub fn add_all(all: &mut Vec<SentByHook>, later: &[SentByHook]) {
        for of in later {
            match all.iter_mut().find(|known| known.hook == of.hook) {
                Some(known) => known.add(of),
                None => all.push(of.clone()),
            }
        }
    }

    fn add(&mut self, of: &SentByHook) {
        self.sent += of.sent;
        self.delivered += of.delivered;
        self.failed += of.failed;
        self.dropped += of.dropped;
        self.lost += of.lost;
        self.waited_s += of.waited_s;
        self.flushed_s += of.flushed_s;
    }
}
