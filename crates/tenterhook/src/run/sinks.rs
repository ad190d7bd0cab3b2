//! The deliveries of the hooks' worker threads, as `run.json` stores them.

use serde::{Deserialize, Serialize};
use tenterhook_core::{DeliveryStats, HookRunner};

/// The deliveries of a hook's worker thread.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct SentByHook {
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

impl SentByHook {
    /// The deliveries of all hooks with worker threads.
    pub(crate) fn all(hooks: &HookRunner) -> Vec<SentByHook> {
        hooks.delivery_stats().iter().map(|(hook, sent)| SentByHook::new(hook.clone(), *sent)).collect()
    }

    fn new(hook: String, of: DeliveryStats) -> SentByHook {
        let DeliveryStats { sent, delivered, failed, dropped, lost, waited, flushed } = of;
        let (waited_s, flushed_s) = (waited.as_secs_f64(), flushed.as_secs_f64());
        SentByHook { hook, sent, delivered, failed, dropped, lost, waited_s, flushed_s }
    }

    /// Adds the deliveries of a later call.
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
