//! The summary of a checkpoint, read without its tensors.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use super::list::CheckpointSummary;
use super::open::{CheckpointError, VerifiedCheckpoint, retry_if_replaced};
use super::{STATE, STATE_LIMIT};
use tenterhook_files::read_bounded;

/// The result of an inspection that reads no tensors.
pub(super) struct Inspection {
    /// The summary, also of a damaged checkpoint where it can be parsed.
    pub(super) summary: Option<CheckpointSummary>,
    /// Why the checkpoint cannot be used.
    pub(super) problem: Option<CheckpointError>,
}

/// The fields of `state.json` that make the summary.
#[derive(Deserialize)]
struct State {
    #[serde(default)]
    number: u64,
    #[serde(default)]
    weights_only: bool,
    progress: Progress,
    #[serde(default)]
    metrics: Metrics,
}

#[derive(Deserialize)]
struct Progress {
    epoch: u64,
    step: u64,
}

#[derive(Default, Deserialize)]
struct Metrics {
    #[serde(default, with = "tenterhook_core::number::map")]
    latest: BTreeMap<String, f64>,
}

/// Reads the manifest and `state.json` of a checkpoint.
pub(super) fn inspect(path: &Path) -> Inspection {
    let file = path.join(STATE);
    let parse = |bytes: &[u8]| match serde_json::from_slice(bytes) {
        Ok(State { number, weights_only, progress: Progress { epoch, step }, metrics }) => {
            Ok(CheckpointSummary { number, step, epoch, weights_only, metrics: metrics.latest })
        }
        Err(error) => Err(CheckpointError::damaged(&file, error.to_string())),
    };
    match retry_if_replaced(path, || parse(&VerifiedCheckpoint::at(path)?.bytes(STATE)?)) {
        Ok(summary) => Inspection { summary: Some(summary), problem: None },
        Err(problem) => {
            let bytes = read_bounded(&file, STATE_LIMIT);
            let summary = bytes.ok().and_then(|bytes| parse(&bytes).ok());
            Inspection { summary, problem: Some(problem) }
        }
    }
}

/// Whether the manifest or `state.json` of a checkpoint cannot be read. Absent and damaged files do not
/// count.
pub(crate) fn is_unreadable(path: &Path) -> bool {
    matches!(inspect(path).problem, Some(CheckpointError::Io { .. }))
}
