//! The options of [`Upload`](super::Upload).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook_core::{OptionError, TimeSpan};

use super::destination::{Destination, RequestLimits};
use crate::support::checks;
use crate::support::options;
use crate::worker::{QueueOptions, WhenFull};

/// Which checkpoints are uploaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum UploadOnly {
    /// All checkpoints.
    #[default]
    All,
    /// Checkpoints that were the best so far when they were saved, by the metric that the checkpoint hook monitors.
    Best,
}

options! {
    /// The options of [`Upload`](super::Upload).
    pub struct UploadOptions {
        /// Destination: `s3://bucket/prefix`, or a directory as a path or `file:///path`. A relative path is below the working
        /// directory. Each run has a directory there, named by its id.
        #[schemars(extend("minLength" = 1))]
        pub to: String,
        /// Which checkpoints to upload: `all`, or only those that are the `best` so far.
        pub only: UploadOnly = UploadOnly::All,
        /// Maximum number of retries of a failed request, with exponential backoff.
        pub retries: u32 = 5,
        /// Timeout of one request.
        #[schemars(extend("pattern" = TimeSpan::ABOVE_ZERO))]
        pub timeout: TimeSpan = TimeSpan::from_secs(60),
        /// Maximum number of checkpoints that wait for their upload.
        #[schemars(range(min = 1))]
        pub queue_size: usize = 1000,
        /// What happens when the queue is full: `drop_oldest` drops the oldest checkpoint, `block` makes training wait.
        pub when_full: WhenFull = WhenFull::default(),
        /// How long the end of the run waits for uploads.
        #[schemars(extend("pattern" = TimeSpan::ABOVE_ZERO))]
        pub flush_timeout: TimeSpan = TimeSpan::from_secs(600),
    }
}

impl UploadOptions {
    /// The defaults, with this destination.
    #[must_use]
    pub fn new(to: impl Into<String>) -> UploadOptions {
        UploadOptions::with_defaults(to.into())
    }
}

/// The checked options.
#[derive(Clone, Debug)]
pub(super) struct Checked {
    pub(super) destination: Destination,
    pub(super) limits: RequestLimits,
    pub(super) queue: QueueOptions,
}

impl UploadOptions {
    pub(super) fn checked(&self) -> Result<Checked, OptionError> {
        checks::above_zero("timeout", self.timeout)?;
        let limits = RequestLimits { timeout: self.timeout.0, retries: self.retries as usize };
        Ok(Checked {
            destination: Destination::parse(&self.to)?,
            limits,
            queue: QueueOptions::checked(self.queue_size, self.when_full, self.flush_timeout)?,
        })
    }
}
