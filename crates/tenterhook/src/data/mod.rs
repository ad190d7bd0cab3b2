//! Where batches come from: loaders, what they load, and how several take turns.
//!
//! Most data needs nothing but a [`Dataset`] (a `Vec` is one) under [`Batches`], put together by
//! [`Loading`]. Whatever a loader yields is a function of its seed, the epoch and the position, so that a
//! resumed run sees the same batches.
//!
//! A [`Loader`] can seek to any batch of any epoch. [`Batches`] shuffles with a keyed bijection of 0..n (a Feistel network with
//! cycle walking), so no list of samples exists. Workers load ahead and deliver in order. With several loaders the feed computes how
//! many batches each has given and seeks each directly. A data module's state is a [`DataState`], a cell that it shares with the
//! trainer, so that a checkpoint holds its value of that moment.

mod batches;
mod dataset;
mod loading;
mod order;
pub(crate) mod rota;
mod state;
mod stream;
#[cfg(test)]
mod tests;
mod turns;
mod waited;
#[cfg(test)]
mod waiting_tests;
mod workers;

use tenterhook_core::tensor::NoTensors;
use tenterhook_core::{BoxError, Failure, Stage, State, TensorSource, World};

pub use self::batches::Batches;
pub use self::dataset::{Dataset, LoadError, Sample};
pub(crate) use self::dataset::{of_loader, panic_in};
pub use self::loading::Loading;
pub use self::order::Order;
pub use self::state::DataState;
pub use self::stream::StreamOf;
pub use self::turns::{Turns, TurnsError, TurnsName, TurnsOptions};
pub use self::waited::Waited;
pub use tenterhook_files::Fingerprint;

/// What the loop and the hooks must know of a batch.
pub trait BatchData {
    /// How many samples it holds.
    fn size(&self) -> usize;
    /// How many tokens it holds, where that means something.
    fn tokens(&self) -> u64 {
        0
    }
    /// Its tensors, by name, for hooks to look at.
    fn tensors(&self) -> &dyn TensorSource {
        &NoTensors
    }
}

/// A part of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// To train on.
    Train,
    /// To choose by.
    Validate,
    /// To report on.
    Test,
    /// To predict.
    Predict,
}

impl Split {
    /// As it stands in the names of settings: `limit_val_batches`.
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

/// Yields the batches of one source, epoch after epoch. Its order is a function of the epoch (and of
/// the seed it was made with), and its position is a number. Dropping it must not wait for a batch: it may be dropped because
/// none comes.
pub trait Loader<B> {
    /// Its name, which stands in the events.
    fn name(&self) -> &str;
    /// How many batches an epoch has, where that is known.
    fn batches(&self) -> Option<u64>;
    /// Identifies the contents of its data, where that is known: a run resumes only with the same data. It is asked
    /// once when a run starts.
    fn fingerprint(&self) -> Result<Option<Fingerprint>, BoxError> {
        Ok(None)
    }
    /// Goes to a batch of an epoch; `shuffled` is false when every epoch must see the same batches.
    fn seek(&mut self, epoch: u64, batch: u64, shuffled: bool) -> Result<(), BoxError>;
    /// The next batch, `None` after the last.
    fn next(&mut self) -> Result<Option<B>, BoxError>;

    /// The next batch, unless it takes so long that the waiting is given up. Nothing is lost by giving up: asked
    /// again, it goes on waiting for the same batch.
    ///
    /// A loader that waits for others (threads, a service) asks `given_up` every now and then while no batch is
    /// there, so that a run can be ended meanwhile; one that does all the work itself needs nothing but `next`.
    fn next_unless(&mut self, _given_up: &dyn Fn() -> bool) -> Result<Waited<B>, BoxError> {
        self.next().map(Waited::from)
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
    fn next_unless(&mut self, given_up: &dyn Fn() -> bool) -> Result<Waited<B>, BoxError> {
        L::next_unless(self, given_up)
    }
}

/// Loaders of one split, in order.
pub type Loaders<B> = Vec<Box<dyn Loader<B>>>;

/// The data module: makes loaders, and takes part in set-up and teardown.
pub trait DataModule<B> {
    /// The loaders of a split; none when there is no such data.
    fn loaders(&mut self, split: Split) -> Result<Loaders<B>, BoxError>;

    /// How several training loaders take turns.
    fn turns(&self) -> Turns {
        Turns::RoundRobin
    }

    /// Says which rank of a distributed run this is, so that loaders give its part of each batch. Comes before `setup`. All ranks
    /// must yield the same number of batches.
    fn join(&mut self, _world: World) {}

    /// Before anything else.
    fn setup(&mut self, _stage: Stage) -> Result<(), BoxError> {
        Ok(())
    }

    /// The state that checkpoints keep, such as a split that was drawn or the level of a curriculum. It is asked for
    /// after `setup`. The position in the data needs none: loaders are told where to begin.
    fn state(&self) -> Option<DataState> {
        None
    }

    /// Takes the state of a checkpoint, after the module's and before the hooks', and before loaders are made. Unless it
    /// is overridden, the value of [`state`](DataModule::state) is replaced.
    fn load_state(&mut self, saved: &State) -> Result<(), BoxError> {
        Ok(self.state().map_or(Ok(()), |state| state.restore(saved))?)
    }

    /// After everything else, exactly once.
    fn teardown(&mut self, _stage: Stage) -> Result<(), BoxError> {
        Ok(())
    }

    /// The run has failed.
    fn on_exception(&mut self, _failure: &Failure) -> Result<(), BoxError> {
        Ok(())
    }
}
