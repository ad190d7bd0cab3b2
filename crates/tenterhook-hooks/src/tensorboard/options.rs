//! The options of the hook for TensorBoard.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook_core::{OptionError, Pattern, TimeSpan};

use crate::own_file;
use crate::support::checks;
use crate::support::param_filter::{ParamFilter, all_params};
use crate::worker::{Queue, WhenFull, outbox};

/// What histograms are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HistogramOf {
    /// The gradients, before update hooks and clipping.
    Gradients,
    /// The parameters, after the update.
    Weights,
}

/// The options of [`TensorBoard`](super::TensorBoard).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TensorBoardOptions {
    /// The directory of the event file. A relative one is below the run directory; where there is none, beside the
    /// checkpoints. In one that begins with "/" each run has a directory of its id.
    #[schemars(extend("minLength" = 1))]
    pub dir: PathBuf,
    /// Histograms of its own: any of "gradients" and "weights". Those that other hooks log are there in any case.
    pub histograms: Vec<HistogramOf>,
    /// Look at them every so many optimizer steps.
    #[schemars(range(min = 1))]
    pub histogram_every_n_steps: u64,
    /// How many bins each has.
    #[schemars(range(min = 1, max = 10_000))]
    pub histogram_bins: usize,
    /// Of which parameters, by patterns over their names such as "blocks.*.mlp.**".
    #[schemars(extend("minItems" = 1))]
    pub params: Vec<String>,
    /// The tensors of a batch that are pictures, by name or pattern: of the shape [N, H, W], [N, C, H, W] with 1 or 3
    /// channels, or [H, W]. Not set: none.
    #[schemars(extend("minLength" = 1))]
    pub images: Option<String>,
    /// Show those of the first batch of every so many epochs, beginning with the first.
    #[schemars(range(min = 1))]
    pub images_every_n_epochs: u64,
    /// So many of a batch at most.
    #[schemars(range(min = 1))]
    pub max_images: usize,
    /// How many entries may wait to be written.
    #[schemars(range(min = 1))]
    pub queue_size: usize,
    /// What happens when more do.
    pub when_full: WhenFull,
    /// How long the end of a run waits for what is not written yet, as a time such as "10 s".
    #[schemars(extend("pattern" = TimeSpan::ABOVE_ZERO))]
    pub flush_timeout: TimeSpan,
}

impl Default for TensorBoardOptions {
    fn default() -> TensorBoardOptions {
        TensorBoardOptions {
            dir: OWN.into(),
            histograms: Vec::new(),
            histogram_every_n_steps: 100,
            histogram_bins: 64,
            params: all_params(),
            images: None,
            images_every_n_epochs: 1,
            max_images: 8,
            queue_size: 1000,
            when_full: WhenFull::default(),
            flush_timeout: TimeSpan::from_secs(10),
        }
    }
}

/// The directory that is kept for this hook.
const OWN: &str = "tensorboard";

/// What follows from the options.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    pub(super) params: ParamFilter,
    pub(super) images: Option<Pattern>,
    pub(super) queue: Queue,
}

impl TensorBoardOptions {
    /// What follows from them, or what is wrong with them.
    pub(super) fn check(&self) -> Result<Choice, OptionError> {
        if !own_file::plain(&self.dir).starts_with(OWN) {
            own_file::check("dir", &self.dir, OWN)?;
        } else if own_file::leads_out(&self.dir) {
            return Err(OptionError::new(
                "dir",
                format!("`dir` is \"{}\", which leads out of its directory", self.dir.display()),
            )
            .fix(format!("write it without \"..\", such as \"{OWN}\"")));
        }
        checks::one_or_more("histogram_every_n_steps", self.histogram_every_n_steps)?;
        checks::one_or_more("histogram_bins", self.histogram_bins as u64)?;
        checks::one_or_more("images_every_n_epochs", self.images_every_n_epochs)?;
        let none = |error: OptionError| error.fix("to show none, leave out `images`");
        checks::one_or_more("max_images", self.max_images as u64).map_err(none)?;
        checks::bins(self.histogram_bins)?;
        let images = self.images.as_deref().map(str::parse).transpose();
        Ok(Choice {
            params: ParamFilter::new(&self.params)?,
            images: images.map_err(|error| OptionError::new("images", format!("`images`: {error}")))?,
            queue: outbox::queue(self.queue_size, self.when_full, self.flush_timeout)?,
        })
    }

    pub(super) fn wants(&self, what: HistogramOf) -> bool {
        self.histograms.contains(&what)
    }
}
