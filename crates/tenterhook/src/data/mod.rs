//! Data: datasets, loaders, data modules, and the interleaving of several loaders.
//!
//! Most programs need a [`Dataset`] (a `Vec` is one) in a [`Batches`] loader, and [`DataLoaders`] as the data
//! module. The batches of a loader are a function of its seed, the epoch and the position, so a resumed run
//! gets the same batches.
//!
//! A [`Loader`] can seek to any batch of any epoch. [`Batches`] shuffles by computing a permutation
//! ([`Order`]) instead of storing one. Worker threads load ahead and deliver in order. With several loaders,
//! the number of earlier batches of each is computed, and each seeks directly. The state of a data module is
//! a [`DataState`], which it shares with the trainer.

mod batches;
#[cfg(test)]
mod cancelling_tests;
mod data_loaders;
mod dataset;
mod fetch;
mod interleave;
pub(crate) mod interleaver;
mod order;
mod state;
mod stream;
#[cfg(test)]
mod tests;
mod workers;

use tenterhook_core::tensor::NoTensors;
use tenterhook_core::{BoxError, Failure, Stage, State, TensorSource, World};

pub use self::batches::Batches;
pub use self::data_loaders::DataLoaders;
pub use self::dataset::{Dataset, LoadError, Sample};
pub(crate) use self::dataset::{of_loader, panic_in};
pub use self::fetch::Fetch;
pub use self::interleave::{Interleave, InterleaveError, InterleaveMode, InterleaveOptions};
pub use self::order::Order;
pub use self::state::DataState;
pub use self::stream::StreamLoader;
pub use tenterhook_files::Fingerprint;

/// A batch, as the loop and the hooks see it.
pub trait BatchData {
    /// The number of samples.
    fn size(&self) -> usize;
    /// The number of tokens, for text.
    fn tokens(&self) -> u64 {
        0
    }
    /// The tensors, by name, for hooks.
    fn tensors(&self) -> &dyn TensorSource {
        &NoTensors
    }
}

/// A split of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// Training data.
    Train,
    /// Validation data.
    Validate,
    /// Test data.
    Test,
    /// Data to predict.
    Predict,
}

impl Split {
    /// The split that a call evaluates on.
    pub(crate) fn evaluated_in(stage: Stage) -> Split {
        match stage {
            Stage::Fit | Stage::Validate => Split::Validate,
            Stage::Test => Split::Test,
            Stage::Predict => Split::Predict,
        }
    }

    /// The name in settings, as in `limit_val_batches`.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Split::Train => "train",
            Split::Validate => "val",
            Split::Test => "test",
            Split::Predict => "predict",
        }
    }
}

/// A source of batches, epoch after epoch. The order is a function of the epoch and a fixed seed, and the
/// position is a number. Dropping a loader must not wait for a batch, because it may be dropped while no
/// batch arrives.
pub trait Loader<B> {
    /// The name, which events contain.
    fn name(&self) -> &str;
    /// The number of batches of an epoch, if known.
    fn batches(&self) -> Option<u64>;
    /// A fingerprint of the data, if known. A run resumes only with the same data. Computed once when a run
    /// starts.
    fn fingerprint(&self) -> Result<Option<Fingerprint>, BoxError> {
        Ok(None)
    }
    /// Goes to a batch of an epoch. Without `shuffled`, every epoch has the same batches.
    fn seek(&mut self, epoch: u64, batch: u64, shuffled: bool) -> Result<(), BoxError>;
    /// The next batch; `None` after the last.
    fn next(&mut self) -> Result<Option<B>, BoxError>;

    /// The next batch, unless the fetch is cancelled. Nothing is lost by cancelling: the next fetch returns
    /// the same batch.
    ///
    /// A loader that waits for threads or a service calls `cancelled` regularly while it waits, so that a run
    /// can be interrupted. A loader that does all the work itself implements only `next`.
    fn next_unless(&mut self, _cancelled: &dyn Fn() -> bool) -> Result<Fetch<B>, BoxError> {
        self.next().map(Fetch::from)
    }
}

impl<B, L: Loader<B> + ?Sized> Loader<B> for Box<L> {
    fn name(&self) -> &str {
        L::name(self)
    }
    fn batches(&self) -> Option<u64> {
        L::batches(self)
    }
    fn fingerprint(&self) -> Result<Option<Fingerprint>, BoxError> {
        L::fingerprint(self)
    }
    fn seek(&mut self, epoch: u64, batch: u64, shuffled: bool) -> Result<(), BoxError> {
        L::seek(self, epoch, batch, shuffled)
    }
    fn next(&mut self) -> Result<Option<B>, BoxError> {
        L::next(self)
    }
    fn next_unless(&mut self, cancelled: &dyn Fn() -> bool) -> Result<Fetch<B>, BoxError> {
        L::next_unless(self, cancelled)
    }
}

/// Loaders of one split, in order.
pub type Loaders<B> = Vec<Box<dyn Loader<B>>>;

/// The data module: makes the loaders, and takes part in set-up and teardown.
pub trait DataModule<B> {
    /// The loaders of a split; empty if there is no such data.
    fn loaders(&mut self, split: Split) -> Result<Loaders<B>, BoxError>;

    /// How several training loaders are interleaved.
    fn interleave(&self) -> Interleave {
        Interleave::RoundRobin
    }

    /// Receives the rank of this process in a distributed run, whose part of each batch the loaders must
    /// yield. Called before `setup`. All ranks must yield the same number of batches.
    fn join(&mut self, _world: World) {}

    /// Called before anything else.
    fn setup(&mut self, _stage: Stage) -> Result<(), BoxError> {
        Ok(())
    }

    /// The state that checkpoints save, such as a random split or the level of a curriculum. Called after
    /// `setup`. The position in the data is saved by the trainer.
    fn state(&self) -> Option<DataState> {
        None
    }

    /// Restores the state of a checkpoint, after the module's and before that of hooks, and before loaders
    /// are made. By default it replaces the value of [`state`](DataModule::state).
    fn load_state(&mut self, saved: &State) -> Result<(), BoxError> {
        Ok(self.state().map_or(Ok(()), |state| state.restore(saved))?)
    }

    /// Called after everything else, exactly once.
    fn teardown(&mut self, _stage: Stage) -> Result<(), BoxError> {
        Ok(())
    }

    /// The run has failed.
    fn on_exception(&mut self, _failure: &Failure) -> Result<(), BoxError> {
        Ok(())
    }
}
