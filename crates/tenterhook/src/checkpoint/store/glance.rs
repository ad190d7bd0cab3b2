//! What a checkpoint says of itself, without reading its tensors.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;

use super::STATE;
use super::list::About;
use super::open::{Unreadable, Verified};

/// What can be seen at a glance.
pub(super) struct Glance {
    /// What it says of itself, be it right or not.
    pub(super) about: Option<About>,
    /// Why that cannot be trusted.
    pub(super) problem: Option<Unreadable>,
}

/// The few fields of `state.json` that tell one checkpoint from another.
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

/// Looks at a checkpoint.
pub(super) fn glance(path: &Path) -> Glance {
    let file = path.join(STATE);
    let checked = Verified::at(path).and_then(|found| found.check_file(STATE));
    let read =
        fs::read(&file).map_err(|source| Unreadable::Io { file: file.clone(), source }).and_then(|bytes| {
            serde_json::from_slice::<State>(&bytes)
                .map_err(|error| Unreadable::damaged(&file, error.to_string()))
        });
    match read {
        Ok(state) => {
            let about = About {
                number: state.number,
                step: state.progress.step,
                epoch: state.progress.epoch,
                weights_only: state.weights_only,
                metrics: state.metrics.latest,
            };
            Glance { about: Some(about), problem: checked.err() }
        }
        Err(error) => Glance { about: None, problem: checked.err().or(Some(error)) },
    }
}
