//! Announcements of checkpoints: they are recorded and announced to hooks once they are durable.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tenterhook_core::Progress;

use super::contents::CheckpointContents;
use super::roots::CheckpointPath;

/// The announcement of a checkpoint to hooks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Announcement {
    /// The completed steps at the save.
    pub step: u64,
    /// The epoch of the save, from 0.
    pub epoch: u64,
    /// The latest value of every metric at the save.
    #[serde(with = "tenterhook_core::number::map")]
    pub metrics: BTreeMap<String, f64>,
    /// The step of each value.
    #[serde(default)]
    pub metric_steps: BTreeMap<String, u64>,
    /// The path of the checkpoint.
    pub path: CheckpointPath,
    /// Its score if it was the best checkpoint at the save.
    #[serde(default, with = "tenterhook_core::number::option")]
    pub best_score: Option<f64>,
    /// It was read from a checkpoint, so a killed process may have announced it already.
    #[serde(skip)]
    pub redelivered: bool,
}

impl Announcement {
    pub(crate) fn of(
        contents: &CheckpointContents,
        path: CheckpointPath,
        best_score: Option<f64>,
    ) -> Announcement {
        let (metrics, metric_steps) = contents.latest_metrics();
        let Progress { step, epoch, .. } = contents.progress;
        Announcement { step, epoch, metrics, metric_steps, path, best_score, redelivered: false }
    }
}

/// The checkpoints that are not announced yet.
#[derive(Default)]
pub(crate) struct Announcements {
    /// Handed to the writer and not yet known to be durable.
    pub(crate) in_flight: Vec<Announcement>,
    /// Durable and not yet announced.
    pub(crate) durable: Vec<Announcement>,
}

impl Announcements {
    /// All of them, followed by `last`, as that checkpoint stores them.
    pub(crate) fn with(&self, last: &Announcement) -> Vec<Announcement> {
        self.durable.iter().chain(&self.in_flight).chain([last]).cloned().collect()
    }
}
