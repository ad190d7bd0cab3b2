//! What a checkpoint says of itself, without reading its tensors.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use super::list::About;
use super::open::{Unreadable, Verified, steady};
use super::{STATE, STATE_LIMIT};
use tenterhook_files::read_bounded;

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
    let read = |bytes: &[u8]| {
        let state = serde_json::from_slice::<State>(bytes);
        state.map(About::from).map_err(|error| Unreadable::damaged(&file, error.to_string()))
    };
    match steady(path, || read(&Verified::at(path)?.bytes(STATE)?)) {
        Ok(about) => Glance { about: Some(about), problem: None },
        Err(problem) => {
            let bytes = read_bounded(&file, STATE_LIMIT);
            let about = bytes.ok().and_then(|bytes| read(&bytes).ok());
            Glance { about, problem: Some(problem) }
        }
    }
}

/// Whether a checkpoint cannot be read, as far as a glance tells. One that is gone or damaged can.
pub(crate) fn is_unreadable(path: &Path) -> bool {
    matches!(glance(path).problem, Some(Unreadable::Io { .. }))
}

impl From<State> for About {
    fn from(state: State) -> About {
        About {
            number: state.number,
            step: state.progress.step,
            epoch: state.progress.epoch,
            weights_only: state.weights_only,
            metrics: state.metrics.latest,
        }
    }
}
