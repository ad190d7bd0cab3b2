//! The loader over a dataset: shuffles, batches, and optionally loads ahead.

use std::cell::Cell;
use std::fmt::Display;
use std::marker::PhantomData;
use std::sync::Arc;

use tenterhook_core::random::seed_at;
use tenterhook_core::{BoxError, backtraces};

use super::workers::{Job, Workers};
use super::{Dataset, Fetch, Fingerprint, LoadError, Loader, Order, Sample};
use crate::data::dataset::contained;

/// Domain separator of the samples' seeds.
const PURPOSE: u64 = 0x5b;

/// A loader over a [`Dataset`]. The order is a function of seed and epoch; threads and prefetching do not
/// change it.
///
/// ```
/// use tenterhook::Loader;
/// use tenterhook::data::Batches;
///
/// let numbers: Vec<u32> = (0..10).collect();
/// let mut loader = Batches::new("train", numbers, |samples| Ok(samples)).size(4).shuffled(7).threads(2);
/// assert_eq!(loader.batches(), Some(3));
/// loader.seek(0, 0, true)?;
/// let mut seen = Vec::new();
/// while let Some(batch) = loader.next()? {
///     seen.extend(batch);
/// }
/// seen.sort_unstable();
/// assert_eq!(seen, (0..10).collect::<Vec<_>>());
/// # Ok::<(), tenterhook::BoxError>(())
/// ```
///
/// An error or a panic while loading is returned by `next`, with the loader and the samples. The next call
/// returns the next batch. Seeking and dropping do not wait for samples that worker threads are loading.
///
/// A clone shares the dataset and starts at the beginning.
pub struct Batches<B> {
    name: String,
    source: Arc<dyn Source<B>>,
    size: usize,
    seed: Option<u64>,
    drop_last: bool,
    threads: usize,
    prefetch: Option<usize>,
    at: Position,
    /// Loads the batches of the current epoch.
    job: Option<Arc<Job<B>>>,
    workers: Option<Workers<B>>,
}

#[derive(Clone, Copy)]
struct Position {
    epoch: u64,
    batch: u64,
    shuffled: bool,
}

impl Position {
    const START: Position = Position { epoch: 0, batch: 0, shuffled: true };
}

impl<B: Send + 'static> Batches<B> {
    /// A loader of this name. `collate` makes a batch of samples.
    ///
    /// Defaults: a batch size of 32, no shuffling, a shorter last batch, no prefetching.
    #[must_use]
    pub fn new<D: Dataset>(
        name: impl Into<String>,
        dataset: D,
        collate: impl Fn(Vec<D::Item>) -> Result<B, BoxError> + Send + Sync + 'static,
    ) -> Batches<B> {
        Batches {
            name: name.into(),
            source: Arc::new(Collated { dataset, collate, batch: PhantomData }),
            size: 32,
            seed: None,
            drop_last: false,
            threads: 0,
            prefetch: None,
            at: Position::START,
            job: None,
            workers: None,
        }
    }

    /// Sets the batch size.
    #[must_use]
    pub fn size(mut self, samples: usize) -> Self {
        self.size = samples;
        self
    }

    /// Shuffles the samples in every epoch. Order and seeds of the samples derive from this seed.
    #[must_use]
    pub fn shuffled(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Drops the last batch of an epoch if it is incomplete.
    #[must_use]
    pub fn drop_last(mut self) -> Self {
        self.drop_last = true;
        self
    }

    /// Sets the number of worker threads that load ahead. With 0 the calling thread loads.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Sets the number of batches to load ahead, at least 1. The default is twice the number of threads.
    #[must_use]
    pub fn prefetch(mut self, batches: usize) -> Self {
        self.prefetch = Some(batches);
        self
    }

    fn count(&self) -> u64 {
        let samples = self.source.samples() as u64;
        let size = self.size.max(1) as u64;
        if self.drop_last { samples / size } else { samples.div_ceil(size) }
    }

    /// The function that loads a batch of the current epoch.
    fn job_of_epoch(&self) -> Arc<Job<B>> {
        let Position { epoch, shuffled, .. } = self.at;
        let source = self.source.clone();
        let (name, size, samples) = (self.name.clone(), self.size as u64, source.samples() as u64);
        let seed = self.seed.unwrap_or(0);
        let order = match self.seed {
            Some(seed) if shuffled => Order::shuffled(samples, seed, epoch),
            _ => Order::natural(samples),
        };
        // Without shuffling all epochs have the same augmentation.
        let of_epoch = seed_at(seed, PURPOSE, if shuffled { epoch } else { 0 });
        Arc::new(move |batch, stopped| {
            let places = batch * size..(batch * size).saturating_add(size).min(samples);
            let mut wanted = places.clone().filter_map(|place| order.at(place)).map(|index| {
                #[allow(clippy::cast_possible_truncation)] // below the dataset's length, which is a usize
                Sample { index: index as usize, seed: seed_at(of_epoch, PURPOSE, index) }
            });
            contained(|| source.load(&mut wanted, stopped)).map_err(|error| {
                LoadError { loader: name.clone(), epoch, batch, samples: places, error }.into()
            })
        })
    }
}

impl<B: Send + 'static> Loader<B> for Batches<B> {
    fn name(&self) -> &str {
        &self.name
    }

    fn batches(&self) -> Option<u64> {
        Some(self.count())
    }

    fn fingerprint(&self) -> Result<Option<Fingerprint>, BoxError> {
        self.source.fingerprint()
    }

    fn seek(&mut self, epoch: u64, batch: u64, shuffled: bool) -> Result<(), BoxError> {
        if self.size == 0 {
            return Err(format!("loader `{}` has a batch size of 0; give at least 1", self.name).into());
        }
        (self.job, self.workers) = (None, None);
        self.at = Position { epoch, batch, shuffled };
        Ok(())
    }

    fn next(&mut self) -> Result<Option<B>, BoxError> {
        self.next_unless(&|| false).map(Fetch::batch)
    }

    fn next_unless(&mut self, cancelled: &dyn Fn() -> bool) -> Result<Fetch<B>, BoxError> {
        let (batch, end) = (self.at.batch, self.count());
        if batch >= end {
            self.workers = None;
            return Ok(Fetch::End);
        }
        let job = self.job.take().unwrap_or_else(|| self.job_of_epoch());
        let job = self.job.insert(job);
        let fetched = if self.threads == 0 {
            load_here(job, batch, cancelled)
        } else {
            let workers = match &mut self.workers {
                Some(workers) => workers,
                idle => {
                    let ahead = self.prefetch.unwrap_or(2 * self.threads) as u64;
                    idle.insert(Workers::start(&self.name, self.threads, ahead, (batch, end), job)?)
                }
            };
            workers.next(cancelled)
        };
        // A batch that failed is not loaded again.
        if !matches!(fetched, Ok(Fetch::Cancelled)) {
            self.at.batch += 1;
        }
        fetched
    }
}

impl<B> Clone for Batches<B> {
    fn clone(&self) -> Batches<B> {
        Batches {
            name: self.name.clone(),
            source: self.source.clone(),
            at: Position::START,
            job: None,
            workers: None,
            ..*self
        }
    }
}

/// Loads a batch on the calling thread. It can be cancelled between two samples.
fn load_here<B>(job: &Arc<Job<B>>, batch: u64, cancelled: &dyn Fn() -> bool) -> Result<Fetch<B>, BoxError> {
    let left = Cell::new(false);
    let loaded = job(batch, &|| {
        left.set(left.get() || cancelled());
        left.get()
    });
    if left.get() { Ok(Fetch::Cancelled) } else { loaded.map(Fetch::Batch) }
}

/// A dataset with its collate function, without their types.
trait Source<B>: Send + Sync {
    fn samples(&self) -> usize;
    fn fingerprint(&self) -> Result<Option<Fingerprint>, BoxError>;
    fn load(
        &self,
        wanted: &mut dyn Iterator<Item = Sample>,
        stopped: &dyn Fn() -> bool,
    ) -> Result<B, BoxError>;
}

struct Collated<D, C, B> {
    dataset: D,
    collate: C,
    batch: PhantomData<fn() -> B>,
}

impl<D, C, B> Source<B> for Collated<D, C, B>
where
    D: Dataset,
    C: Fn(Vec<D::Item>) -> Result<B, BoxError> + Send + Sync,
{
    fn samples(&self) -> usize {
        self.dataset.len()
    }

    fn fingerprint(&self) -> Result<Option<Fingerprint>, BoxError> {
        self.dataset.fingerprint()
    }

    fn load(
        &self,
        wanted: &mut dyn Iterator<Item = Sample>,
        stopped: &dyn Fn() -> bool,
    ) -> Result<B, BoxError> {
        let mut items = Vec::new();
        for sample in wanted {
            if stopped() {
                return Err("cancelled".into());
            }
            let item = contained(|| self.dataset.load(sample));
            let of_sample = |error: &dyn Display| format!("sample {} of the dataset: {error}", sample.index);
            items.push(item.map_err(|error| backtraces::map_message(error, of_sample))?);
        }
        (self.collate)(items)
    }
}
