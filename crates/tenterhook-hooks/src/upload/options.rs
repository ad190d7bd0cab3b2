//! The options of uploads, and what is wrong with them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook_core::{OptionError, TimeSpan};

use super::destination::{Destination, Patience};
use crate::support::checks;
use crate::worker::{Queue, WhenFull, outbox};

/// Which checkpoints are uploaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UploadOnly {
    /// Every one.
    #[default]
    All,
    /// Those that were the best so far when they were saved, by the metric that the checkpoint hook monitors.
    Best,
}

/// The options of [`Upload`](super::Upload).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UploadOptions {
    /// Where to: `s3://bucket/prefix`, or a directory as a path or `file:///path`. A relative path is below the
    /// directory in which the program runs. A directory of the run's id is made there.
    #[schemars(extend("minLength" = 1))]
    pub to: String,
    /// Which checkpoints: `all`, or only those that are the `best` so far.
    #[serde(default)]
    pub only: UploadOnly,
    /// How often a request that failed is repeated, after pauses that grow.
    #[serde(default = "five")]
    pub retries: u32,
    /// How long one request may take.
    #[serde(default = "a_minute")]
    #[schemars(extend("pattern" = TimeSpan::ABOVE_ZERO))]
    pub timeout: TimeSpan,
    /// How many checkpoints may wait.
    #[serde(default = "many")]
    #[schemars(range(min = 1))]
    pub queue_size: usize,
    /// What happens when more would have to: `drop_oldest` forgets the one that has waited longest, `block` lets
    /// training wait.
    #[serde(default)]
    pub when_full: WhenFull,
    /// How long the end of the run may wait for what is still to be uploaded.
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

fn many() -> usize {
    1000
}

fn ten_minutes() -> TimeSpan {
    TimeSpan::from_secs(600)
}

impl UploadOptions {
    /// To this place, and otherwise as it comes.
    #[must_use]
    pub fn to(to: impl Into<String>) -> UploadOptions {
        UploadOptions {
            to: to.into(),
            only: UploadOnly::All,
            retries: five(),
            timeout: a_minute(),
            queue_size: many(),
            when_full: WhenFull::default(),
            flush_timeout: ten_minutes(),
        }
    }
}

/// The options as they are used.
#[derive(Clone, Debug)]
pub(super) struct Checked {
    pub(super) destination: Destination,
    pub(super) patience: Patience,
    pub(super) queue: Queue,
}

impl UploadOptions {
    pub(super) fn checked(&self) -> Result<Checked, OptionError> {
        checks::above_zero("timeout", self.timeout)?;
        let patience = Patience { timeout: self.timeout.0, retries: self.retries as usize };
        Ok(Checked {
            destination: Destination::parse(&self.to)?,
            patience,
            queue: outbox::queue(self.queue_size, self.when_full, self.flush_timeout)?,
        })
    }
}
