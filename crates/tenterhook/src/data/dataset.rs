//! Datasets, and the errors of loading.

use std::ops::Range;
use std::sync::Arc;

use tenterhook_core::backtraces::{self, PanicError};
use tenterhook_core::{BoxError, epoch_label};
use tenterhook_files::Fingerprint;

/// A request for a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The index in the dataset.
    pub index: usize,
    /// The seed of this sample in this epoch, for augmentation. It does not depend on the worker thread.
    /// Without shuffling it is the same in every epoch.
    pub seed: u64,
}

/// A dataset with random access, usable from any thread.
pub trait Dataset: Send + Sync + 'static {
    /// One sample.
    type Item: Send;

    /// The number of samples.
    fn len(&self) -> usize;

    /// Whether the dataset has no samples.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Loads a sample.
    fn load(&self, sample: Sample) -> Result<Self::Item, BoxError>;

    /// A fingerprint of the contents, for example [`Fingerprint::of_file`], so that a run is not resumed with
    /// other data. Computed once when a run starts. The default is `None`: unknown.
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
    /// The positions of its samples in the order of the epoch.
    pub samples: Range<u64>,
    /// The error; a [`PanicError`] after a panic.
    #[source]
    pub error: BoxError,
}

/// Adds the loader's name to an error that does not contain it.
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

/// The panic that caused an error of a loader or a worker thread.
pub(crate) fn panic_in(error: &mut BoxError) -> Option<&mut PanicError> {
    if error.is::<LoadError>() {
        return error.downcast_mut::<LoadError>()?.error.downcast_mut();
    }
    if error.is::<NamedError>() {
        return error.downcast_mut::<NamedError>()?.error.downcast_mut();
    }
    error.downcast_mut()
}

/// Runs user code, and converts its panic to an error.
pub(crate) fn contained<T>(work: impl FnOnce() -> Result<T, BoxError>) -> Result<T, BoxError> {
    backtraces::catch_panic("panicked: ", work)
}
