//! The deliveries of the hooks' worker threads, as `run.json` stores them.

use serde::{Deserialize, Serialize};
use tenterhook_core::DeliveryStats;

/// The deliveries of a hook's worker thread.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct SentByHook {
    /// The hook's name.
    pub hook: String,
    /// The deliveries.
    #[serde(flatten)]
    pub stats: DeliveryStats,
}

impl SentByHook {
    /// Adds the deliveries of a later call.
    pub fn add_all(all: &mut Vec<SentByHook>, later: &[SentByHook]) {
        for of in later {
            match all.iter_mut().find(|known| known.hook == of.hook) {
                Some(known) => known.stats += of.stats,
                None => all.push(of.clone()),
            }
        }
    }
}
