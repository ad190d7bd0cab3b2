//! The options of the activation store.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook_core::OptionError;

use crate::support::activation_stage::{self, ActivationStage};
use crate::support::byte_size::ByteSize;
use crate::support::checks;
use crate::support::options;
use crate::support::output_path;
use crate::support::point_filter::PointFilter;

/// Where activations are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ActivationTarget {
    /// In memory, for the training program.
    Memory,
    /// In files, one per batch.
    #[default]
    Safetensors,
}

options! {
    /// The options of [`ActivationStore`](super::ActivationStore).
    pub struct ActivationStoreOptions {
        /// Patterns of the hook points to store: `*` matches within a part of a dotted name, `**` across parts.
        #[schemars(length(min = 1))]
        pub points: Vec<String>,
        /// Store every n-th batch: in training counted over all epochs, in an evaluation per loader.
        #[schemars(range(min = 1))]
        pub every_n_batches: u64 = 1,
        /// Maximum number of batches to store, over all stages. Unset: limited by `max_bytes` only.
        #[schemars(range(min = 1), example = 10)]
        pub max_batches: Option<u64> = None,
        /// The stages to store batches of.
        #[schemars(length(min = 1))]
        pub stages: Vec<ActivationStage> = vec![ActivationStage::Train],
        /// Where to store activations: in `memory`, for the training program, or as `safetensors` files.
        pub to: ActivationTarget = ActivationTarget::Safetensors,
        /// The directory of the files. A relative path is inside the run directory; without a run directory, it is beside
        /// the checkpoints. Inside an absolute path, each run has a directory named by its id.
        #[schemars(extend("minLength" = 1))]
        pub dir: PathBuf = "activations".into(),
        /// Maximum size of all stored activations: a number of bytes, or a text such as `"64 MB"` or `"1 GiB"`. A batch that
        /// would exceed it is not stored, and the hook fails.
        pub max_bytes: ByteSize = ByteSize(256 << 20),
    }
}

impl ActivationStoreOptions {
    /// Default options for these points.
    pub fn new<P: Into<String>>(points: impl IntoIterator<Item = P>) -> ActivationStoreOptions {
        ActivationStoreOptions::with_defaults(points.into_iter().map(Into::into).collect())
    }

    /// Checks the options and returns the filter of hook points.
    pub(super) fn check(&self) -> Result<PointFilter, OptionError> {
        let fix = "name the points to store, such as [\"blocks.*.mlp\"], or [\"**\"] for all";
        checks::filled("points", self.points.is_empty(), fix)?;
        checks::one_or_more("every_n_batches", self.every_n_batches)?;
        let none = |error: OptionError| error.fix("to store nothing, write `enabled = false`");
        checks::one_or_more("max_batches", self.max_batches.unwrap_or(1)).map_err(none)?;
        checks::one_or_more("max_bytes", self.max_bytes.0).map_err(none)?;
        if self.dir.file_name().is_none() {
            return Err(OptionError::new("dir", "`dir` must name a directory, such as \"activations\""));
        }
        output_path::check("dir", &self.dir, "activations")?;
        activation_stage::check(&self.stages)?;
        PointFilter::new(&self.points, true)
    }
}
