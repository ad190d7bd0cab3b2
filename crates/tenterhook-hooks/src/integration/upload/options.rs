//! The options of [`Upload`](super::Upload).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook_core::{OptionError, TimeSpan};

use super::destination::{Destination, RequestLimits};
use crate::support::checks;
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

/// The options of [`Upload`](super::Upload).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UploadOptions {
    /// Destination: `s3://bucket/prefix`, or a directory as a path or `file:///path`. A relative path is below the working
    /// directory. Each run has a directory there, named by its id.
    #[schemars(extend("minLength" = 1))]
    pub to: String,
    /// Which checkpoints to upload: `all`, or only those that are the `best` so far.
    #[serde(default)]
    pub only: UploadOnly,
    /// Maximum number of retries of a failed request, with exponential backoff.
    #[serde(default = "five")]
    pub retries: u32,
    /// Timeout of one request.
    #[serde(default = "a_minute")]
    #[schemars(extend("pattern" = TimeSpan::ABOVE_ZERO))]
    pub timeout: TimeSpan,
    /// Maximum number of checkpoints that wait for their upload.
    #[serde(default = "thousand")]
    #[schemars(range(min = 1))]
    pub queue_size: usize,
    /// What happens when the queue is full: `drop_oldest` drops the oldest checkpoint, `block` makes training wait.
    #[serde(default)]
    pub when_full: WhenFull,
    /// How long the end of the run waits for uploads.
    #[serde(default = "ten_minutes")]
    #[schemars(extend("pattern" = TimeSpan::ABOVE_ZERO))]
    pub flush_timeout: TimeSpan,
}

fn five() -> u32 {
    5
}

fn a_minute() -> TimeSpan {
    TimeSpan::from_secs(60)
}

fn thousand() -> usize {
    1000
}

fn ten_minutes() -> TimeSpan {
    TimeSpan::from_secs(600)
}

impl UploadOptions {
    /// The defaults, with this destination.
    #[must_use]
    pub fn new(to: impl Into<String>) -> UploadOptions {
        UploadOptions {
            to: to.into(),
            only: UploadOnly::All,
            retries: five(),
            timeout: a_minute(),
            queue_size: thousand(),
            when_full: WhenFull::default(),
            flush_timeout: ten_minutes(),
        }
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
