//! What a loader loads its samples from, and what it says when that fails.

use std::ops::Range;
use std::sync::Arc;

use tenterhook_core::backtraces::{self, PanicError};
use tenterhook_core::{BoxError, epoch_label};
use tenterhook_files::Fingerprint;

/// Which sample is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Its place in the dataset.
    pub index: usize,
    /// A number for this sample in this epoch, for augmentation. It does not depend on the thread that
    /// loads the sample, and stays the same in every epoch where every epoch must see the same batches.
    pub seed: u64,
}

/// Samples that can be loaded in any order, from any thread.
pub trait Dataset: Send + Sync + 'static {
    /// One sample.
    type Item: Send;

    /// How many there are.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Loads one.
    fn load(&self, sample: Sample) -> Result<Self::Item, BoxError>;

    /// Identifies the contents, so that a run is not resumed with other data unnoticed. Unknown unless a data set
    /// says otherwise, by [`Fingerprint::of_file`] for example. It is asked once when a run starts.
    fn fingerprint(&self) -> Result<Option<Fingerprint>, BoxError> {
        Ok(None)
    }
}

impl<T: Clone + Send + Sync + 'static> Dataset for Vec<T> {
    type Item = T;

    fn len(&self) -> usize {
        Vec::len(self)
    }

    fn load(&self, sample: Sample) -> Result<T, BoxError> {
        let missing = || format!("there is no sample {} among {}", sample.index, self.len()).into();
        self.get(sample.index).cloned().ok_or_else(missing)
    }
}

impl<D: Dataset + ?Sized> Dataset for Arc<D> {
    type Item = D::Item;

    fn len(&self) -> usize {
        D::len(self)
    }

    fn load(&self, sample: Sample) -> Result<D::Item, BoxError> {
        D::load(self, sample)
    }

    fn fingerprint(&self) -> Result<Option<Fingerprint>, BoxError> {
        D::fingerprint(self)
    }
}

/// A batch could not be loaded.
#[derive(Debug, thiserror::Error)]
#[error(
    "loader `{loader}`, {}, batch {batch} (samples {} to {}): {error}",
    epoch_label(*.epoch, None), .samples.start, .samples.end.saturating_sub(1)
)]
pub struct LoadError {
    /// The loader's name.
    pub loader: String,
    /// The epoch, from 0.
    pub epoch: u64,
    /// The batch within it.
    pub batch: u64,
    /// Which samples of the epoch, in its order, make up the batch.
    pub samples: Range<u64>,
    /// What went wrong; a [`PanicError`] where it was a panic.
    #[source]
    pub error: BoxError,
}

/// An error of a loader, with its name where it does not say it itself.
pub(crate) fn of_loader(name: &str, error: BoxError) -> BoxError {
    if error.is::<LoadError>() { error } else { NamedError { loader: name.to_owned(), error }.into() }
}

#[derive(Debug, thiserror::Error)]
#[error("loader `{loader}`: {error}")]
struct NamedError {
    loader: String,
    #[source]
    error: BoxError,
}

/// The panic that an error of a loader, or of a thread that works for us, tells of.
pub(crate) fn panic_in(error: &mut BoxError) -> Option<&mut PanicError> {
    if error.is::<LoadError>() {
        return error.downcast_mut::<LoadError>()?.error.downcast_mut();
    }
    if error.is::<NamedError>() {
        return error.downcast_mut::<NamedError>()?.error.downcast_mut();
    }
    error.downcast_mut()
}

/// What the user's code yields; its panic is an error too, so that one on a worker thread is not lost.
pub(crate) fn contained<T>(work: impl FnOnce() -> Result<T, BoxError>) -> Result<T, BoxError> {
    backtraces::catch_panic("panicked: ", work)
}
