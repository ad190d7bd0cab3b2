//! The result of fetching a batch.

use std::time::Duration;

/// The time between two checks whether the fetch is cancelled.
pub(super) const POLL: Duration = Duration::from_millis(25);

/// The result of [fetching a batch](super::Loader::next_unless).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetch<B> {
    /// The next batch.
    Batch(B),
    /// The epoch has no further batch.
    End,
    /// The fetch was cancelled. The next fetch returns the same batch.
    Cancelled,
}

impl<B> Fetch<B> {
    /// Converts the batch.
    pub fn map<C>(self, into: impl FnOnce(B) -> C) -> Fetch<C> {
        match self {
            Fetch::Batch(batch) => Fetch::Batch(into(batch)),
            Fetch::End => Fetch::End,
            Fetch::Cancelled => Fetch::Cancelled,
        }
    }

    /// The batch, if there is one.
    pub fn batch(self) -> Option<B> {
        match self {
            Fetch::Batch(batch) => Some(batch),
            Fetch::End | Fetch::Cancelled => None,
        }
    }
}

impl<B> From<Option<B>> for Fetch<B> {
    fn from(batch: Option<B>) -> Fetch<B> {
        batch.map_or(Fetch::End, Fetch::Batch)
    }
}
