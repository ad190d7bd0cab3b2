//! The data module made of loaders.

use tenterhook_core::BoxError;

use super::{DataModule, DataState, Interleave, Loader, Loaders, Split};

type Make<B> = Box<dyn FnMut() -> Result<Box<dyn Loader<B>>, BoxError>>;

/// A data module made of loaders, for data that needs no set-up.
///
/// ```
/// use tenterhook::data::{Batches, DataModule, DataLoaders, Split};
///
/// let samples = |from: u32, to: u32| (from..to).collect::<Vec<_>>();
/// let mut data = DataLoaders::new()
///     .train(Batches::new("train", samples(0, 80), |batch| Ok(batch)).size(16).shuffled(1))
///     .validate(Batches::new("val", samples(80, 100), |batch| Ok(batch)).size(20));
/// assert_eq!(data.loaders(Split::Train)?[0].batches(), Some(5));
/// # Ok::<(), tenterhook::BoxError>(())
/// ```
///
/// A split may have several loaders, with different names.
pub struct DataLoaders<B> {
    makes: Vec<(Split, Make<B>)>,
    interleave: Interleave,
    state: Option<DataState>,
}

impl<B> DataLoaders<B> {
    /// No data yet.
    #[must_use]
    pub fn new() -> DataLoaders<B> {
        DataLoaders { makes: Vec::new(), interleave: Interleave::default(), state: None }
    }

    /// Adds a training loader.
    #[must_use]
    pub fn train(self, loader: impl Loader<B> + Clone + 'static) -> Self {
        self.split(Split::Train, loader)
    }

    /// Adds a validation loader.
    #[must_use]
    pub fn validate(self, loader: impl Loader<B> + Clone + 'static) -> Self {
        self.split(Split::Validate, loader)
    }

    /// Adds a test loader.
    #[must_use]
    pub fn test(self, loader: impl Loader<B> + Clone + 'static) -> Self {
        self.split(Split::Test, loader)
    }

    /// Adds a prediction loader.
    #[must_use]
    pub fn predict(self, loader: impl Loader<B> + Clone + 'static) -> Self {
        self.split(Split::Predict, loader)
    }

    /// Adds a loader that is made by a function, once per call.
    #[must_use]
    pub fn make<L: Loader<B> + 'static>(
        mut self,
        split: Split,
        mut make: impl FnMut() -> Result<L, BoxError> + 'static,
    ) -> Self {
        self.makes.push((split, Box::new(move || Ok(Box::new(make()?)))));
        self
    }

    /// Sets how several training loaders are interleaved.
    #[must_use]
    pub fn interleave(mut self, interleave: Interleave) -> Self {
        self.interleave = interleave;
        self
    }

    /// Sets the state that is saved in checkpoints. Loaders and hooks may share it.
    #[must_use]
    pub fn state(mut self, state: DataState) -> Self {
        self.state = Some(state);
        self
    }

    fn split(self, split: Split, loader: impl Loader<B> + Clone + 'static) -> Self {
        self.make(split, move || Ok(loader.clone()))
    }
}

impl<B> Default for DataLoaders<B> {
    fn default() -> DataLoaders<B> {
        DataLoaders::new()
    }
}

impl<B> DataModule<B> for DataLoaders<B> {
    fn loaders(&mut self, split: Split) -> Result<Loaders<B>, BoxError> {
        self.makes.iter_mut().filter(|(of, _)| *of == split).map(|(_, make)| make()).collect()
    }

    fn interleave(&self) -> Interleave {
        self.interleave.clone()
    }

    fn state(&self) -> Option<DataState> {
        self.state.clone()
    }
}
