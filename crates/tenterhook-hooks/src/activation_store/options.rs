//! The options of the store of activations, and what is wrong with them.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook_core::OptionError;

use crate::checks;
use crate::points::Points;
use crate::stages::{self, ActivationStage};
use crate::support::byte_size::ByteSize;
use crate::support::output_path;

/// Where activations are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ActivationTarget {
    /// In memory, for the program that trains.
    Memory,
    /// In files, one per batch.
    #[default]
    Safetensors,
}

/// The options of [`ActivationStore`](super::ActivationStore).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ActivationStoreOptions {
    /// Which hook points to keep: dotted names, `*` within a part of a name, `**` across parts.
    #[schemars(length(min = 1))]
    pub points: Vec<String>,
    /// Keep every so many batches; in training counted over all epochs, in an evaluation for each loader.
    #[serde(default = "one")]
    #[schemars(range(min = 1))]
    pub every_n_batches: u64,
    /// Keep so many batches and no more, over all stages. Unset: all, as long as `max_bytes` lasts.
    #[schemars(range(min = 1), example = 10)]
    pub max_batches: Option<u64>,
    /// Of which stages to keep batches.
    #[serde(default = "train")]
    #[schemars(length(min = 1))]
    pub stages: Vec<ActivationStage>,
    /// Where to keep them: in `memory`, for the program that trains, or as `safetensors` files.
    #[serde(default)]
    pub to: ActivationTarget,
    /// The directory of the files. A relative one is below the run directory; where there is none, beside the
    /// checkpoints. Below an absolute one each run has a directory of its id.
    #[serde(default = "activations")]
    #[schemars(extend("minLength" = 1))]
    pub dir: PathBuf,
    /// How much to keep at most: a number of bytes, or a text such as `"64 MB"` or `"1 GiB"`. A batch that would
    /// not fit whole is not kept, and the hook fails.
    #[serde(default = "quarter_of_a_gib")]
    pub max_bytes: ByteSize,
}

fn one() -> u64 {
    1
}

fn train() -> Vec<ActivationStage> {
    vec![ActivationStage::Train]
}

fn activations() -> PathBuf {
    "activations".into()
}

fn quarter_of_a_gib() -> ByteSize {
    ByteSize(256 << 20)
}

impl ActivationStoreOptions {
    /// The defaults for these points.
    pub fn of<P: Into<String>>(points: impl IntoIterator<Item = P>) -> ActivationStoreOptions {
        ActivationStoreOptions {
            points: points.into_iter().map(Into::into).collect(),
            every_n_batches: one(),
            max_batches: None,
            stages: train(),
            to: ActivationTarget::default(),
            dir: activations(),
            max_bytes: quarter_of_a_gib(),
        }
    }

    /// The points, or what is wrong with the options.
    pub(super) fn check(&self) -> Result<Points, OptionError> {
        let fix = "write those to keep, such as [\"blocks.*.mlp\"], or [\"**\"] for all";
        checks::filled("points", self.points.is_empty(), fix)?;
        checks::one_or_more("every_n_batches", self.every_n_batches)?;
        let none = |error: OptionError| error.fix("to keep nothing, write `enabled = false`");
        checks::one_or_more("max_batches", self.max_batches.unwrap_or(1)).map_err(none)?;
        checks::one_or_more("max_bytes", self.max_bytes.0).map_err(none)?;
        if self.dir.file_name().is_none() {
            return Err(OptionError::new("dir", "`dir` must name a directory, such as \"activations\""));
        }
        output_path::check("dir", &self.dir, "activations")?;
        stages::check(&self.stages)?;
        Points::new(&self.points, true)
    }
}
