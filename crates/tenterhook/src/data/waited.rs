//! What came of waiting for a batch.

use std::time::Duration;

/// How long to wait before asking again whether to go on. People hardly notice it, and nobody is kept busy by it.
pub(super) const SLICE: Duration = Duration::from_millis(25);

/// What came of [waiting for a batch](super::Loader::next_unless).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited<B> {
    /// The batch has come.
    Batch(B),
    /// There is none any more.
    Ended,
    /// It has not come, and nobody waits for it now. It comes when it is asked for again.
    GaveUp,
}

impl<B> Waited<B> {
    /// The same, of what the batch is made into.
    pub fn map<C>(self, into: impl FnOnce(B) -> C) -> Waited<C> {
        match self {
            Waited::Batch(batch) => Waited::Batch(into(batch)),
            Waited::Ended => Waited::Ended,
            Waited::GaveUp => Waited::GaveUp,
        }
    }
}

impl<B> From<Option<B>> for Waited<B> {
    fn from(batch: Option<B>) -> Waited<B> {
        batch.map_or(Waited::Ended, Waited::Batch)
    }
}

/// What was waited for by one who never gives up.
pub(super) fn patiently<B>(waited: Waited<B>) -> Option<B> {
    match waited {
        Waited::Batch(batch) => Some(batch),
        Waited::Ended | Waited::GaveUp => None,
    }
}
