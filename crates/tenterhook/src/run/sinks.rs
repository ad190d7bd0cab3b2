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
    /// The deliveries.
    #[serde(flatten)]
    pub stats: DeliveryStats,
}

impl SinkDeliveries {
    /// The deliveries of all hooks with worker threads.
    pub(crate) fn all(hooks: &HookRunner) -> Vec<SinkDeliveries> {
        let all = hooks.delivery_stats().iter().cloned();
        all.map(|(hook, stats)| SinkDeliveries { hook, stats }).collect()
    }

    /// Adds the deliveries of a later call.
    pub fn add_all(all: &mut Vec<SinkDeliveries>, later: &[SinkDeliveries]) {
        for sink in later {
            match all.iter_mut().find(|known| known.hook == sink.hook) {
                Some(known) => known.stats += sink.stats,
                None => all.push(sink.clone()),
            }
        }
    }
}
