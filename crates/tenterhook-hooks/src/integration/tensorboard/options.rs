//! The options of [`TensorBoard`](super::TensorBoard).

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook_core::{OptionError, Pattern, TimeSpan};

use crate::support::checks;
use crate::support::options;
use crate::support::output_path;
use crate::support::param_filter::{ParamFilter, all_params};
use crate::worker::{QueueOptions, WhenFull};

/// The tensors to write histograms of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum HistogramOf {
    /// The gradients, before update hooks and clipping.
    Gradients,
    /// The parameters, after the update.
    Weights,
}

options! {
    /// The options of [`TensorBoard`](super::TensorBoard).
    pub struct TensorBoardOptions {
        /// Directory of the event file. A relative path is inside the run directory; without a run directory, it
        /// is beside the checkpoints. Inside an absolute path, each run has a directory named by its id.
        #[schemars(extend("minLength" = 1))]
        pub dir: PathBuf = DEFAULT_DIR.into(),
        /// Tensors to write histograms of: any of "gradients" and "weights". Histograms that other hooks log are always written.
        pub histograms: Vec<HistogramOf> = Vec::new(),
        /// Number of optimizer steps between two histograms.
        #[schemars(range(min = 1))]
        pub histogram_every_n_steps: u64 = 100,
        /// Number of bins of a histogram.
        #[schemars(range(min = 1, max = 10_000))]
        pub histogram_bins: usize = 64,
        /// Parameters with histograms, as patterns over their names such as "blocks.*.mlp.**".
        #[schemars(extend("minItems" = 1))]
        pub params: Vec<String> = all_params(),
        /// Tensors of the batch to write as images, by name or pattern. Their shape is [N, H, W], [N, C, H, W] with 1 or 3
        /// channels, or [H, W]. Unset: none.
        #[schemars(extend("minLength" = 1))]
        pub images: Option<String> = None,
        /// Number of epochs between two writes of images. They are taken from the first batch of the epoch, starting with the
        /// first epoch.
        #[schemars(range(min = 1))]
        pub images_every_n_epochs: u64 = 1,
        /// Maximum number of images per batch.
        #[schemars(range(min = 1))]
        pub max_images: usize = 8,
        /// Maximum number of entries that wait to be written.
        #[schemars(range(min = 1))]
        pub queue_size: usize = 1000,
        /// What happens when the queue is full: `drop_oldest` drops the oldest entry, `block` makes training wait.
        pub when_full: WhenFull = WhenFull::default(),
        /// How long the end of the run waits for unwritten entries.
        #[schemars(extend("pattern" = TimeSpan::ABOVE_ZERO))]
        pub flush_timeout: TimeSpan = TimeSpan::from_secs(10),
    }
}

/// The directory that is reserved for this hook.
const DEFAULT_DIR: &str = "tensorboard";

/// The checked options.
#[derive(Clone, Debug)]
pub(super) struct Checked {
    pub(super) params: ParamFilter,
    pub(super) images: Option<Pattern>,
    pub(super) queue: QueueOptions,
}

impl TensorBoardOptions {
    /// Checks the options.
    pub(super) fn check(&self) -> Result<Checked, OptionError> {
        if !output_path::normalized(&self.dir).starts_with(DEFAULT_DIR) {
            output_path::check("dir", &self.dir, DEFAULT_DIR)?;
        } else if output_path::has_parent_dir(&self.dir) {
            return Err(OptionError::new(
                "dir",
                format!("`dir` is \"{}\", which leads out of its directory", self.dir.display()),
            )
            .fix(format!("write it without \"..\", such as \"{DEFAULT_DIR}\"")));
        }
        checks::one_or_more("histogram_every_n_steps", self.histogram_every_n_steps)?;
        checks::one_or_more("histogram_bins", self.histogram_bins as u64)?;
        checks::one_or_more("images_every_n_epochs", self.images_every_n_epochs)?;
        let none = |error: OptionError| error.fix("to write none, leave out `images`");
        checks::one_or_more("max_images", self.max_images as u64).map_err(none)?;
        checks::bins(self.histogram_bins)?;
        let images = self.images.as_deref().map(str::parse).transpose();
        Ok(Checked {
            params: ParamFilter::new(&self.params)?,
            images: images.map_err(|error| OptionError::new("images", format!("`images`: {error}")))?,
            queue: QueueOptions::checked(self.queue_size, self.when_full, self.flush_timeout)?,
        })
    }

    pub(super) fn wants(&self, what: HistogramOf) -> bool {
        self.histograms.contains(&what)
    }
}
