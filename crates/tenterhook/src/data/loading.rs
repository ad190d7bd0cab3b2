//! A data module put together from loaders.

use tenterhook_core::BoxError;

use super::{DataModule, DataState, Loader, Loaders, Split, Turns};

type Make<B> = Box<dyn FnMut() -> Result<Box<dyn Loader<B>>, BoxError>>;

/// A data module put together from loaders, for those who need no set-up of their own.
///
/// ```
/// use tenterhook::data::{Batches, DataModule, Loading, Split};
///
/// let samples = |from: u32, to: u32| (from..to).collect::<Vec<_>>();
/// let mut data = Loading::new()
///     .train(Batches::new("train", samples(0, 80), |batch| Ok(batch)).size(16).shuffled(1))
///     .validate(Batches::new("val", samples(80, 100), |batch| Ok(batch)).size(20));
/// assert_eq!(data.loaders(Split::Train)?[0].batches(), Some(5));
/// # Ok::<(), tenterhook::BoxError>(())
/// ```
///
/// Several loaders of a split are added one by one, and need different names.
pub struct Loading<B> {
    makes: Vec<(Split, Make<B>)>,
    turns: Turns,
    state: Option<DataState>,
}

impl<B> Loading<B> {
    /// No data yet.
    #[must_use]
    pub fn new() -> Loading<B> {
        Loading { makes: Vec::new(), turns: Turns::default(), state: None }
    }

    /// Adds a loader to train on.
    #[must_use]
    pub fn train(self, loader: impl Loader<B> + Clone + 'static) -> Self {
        self.split(Split::Train, loader)
    }

    /// Adds a loader to choose by.
    #[must_use]
    pub fn validate(self, loader: impl Loader<B> + Clone + 'static) -> Self {
        self.split(Split::Validate, loader)
    }

    /// Adds a loader to report on.
    #[must_use]
    pub fn test(self, loader: impl Loader<B> + Clone + 'static) -> Self {
        self.split(Split::Test, loader)
    }

    /// Adds a loader to predict.
    #[must_use]
    pub fn predict(self, loader: impl Loader<B> + Clone + 'static) -> Self {
        self.split(Split::Predict, loader)
    }

    /// Adds a loader that is made when it is needed, as often as it is needed.
    #[must_use]
    pub fn make<L: Loader<B> + 'static>(
        mut self,
        split: Split,
        mut make: impl FnMut() -> Result<L, BoxError> + 'static,
    ) -> Self {
        self.makes.push((split, Box::new(move || Ok(Box::new(make()?)))));
        self
    }

    /// How several training loaders take turns.
    #[must_use]
    pub fn turns(mut self, turns: Turns) -> Self {
        self.turns = turns;
        self
    }

    /// A state that checkpoints keep, which loaders and hooks may share.
    #[must_use]
    pub fn state(mut self, state: DataState) -> Self {
        self.state = Some(state);
        self
    }

    fn split(self, split: Split, loader: impl Loader<B> + Clone + 'static) -> Self {
        self.make(split, move || Ok(loader.clone()))
    }
}

impl<B> Default for Loading<B> {
    fn default() -> Loading<B> {
        Loading::new()
    }
}

impl<B> DataModule<B> for Loading<B> {
    fn loaders(&mut self, split: Split) -> Result<Loaders<B>, BoxError> {
        self.makes.iter_mut().filter(|(of, _)| *of == split).map(|(_, make)| make()).collect()
    }

    fn turns(&self) -> Turns {
        self.turns.clone()
    }

    fn state(&self) -> Option<DataState> {
        self.state.clone()
    }
}
