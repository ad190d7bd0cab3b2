//! The loader over a dataset: shuffled by seed and epoch, batched, and loaded ahead if wanted.

use std::cell::Cell;
use std::fmt::Display;
use std::marker::PhantomData;
use std::sync::Arc;

use tenterhook_core::random::seed_at;
use tenterhook_core::{BoxError, backtraces};

use super::waited::patiently;
use super::workers::{Job, Workers};
use super::{Dataset, Fingerprint, LoadError, Loader, Order, Sample, Waited};
use crate::data::dataset::contained;

/// What separates the samples' seeds from others made of the same seed.
const PURPOSE: u64 = 0x5b;

/// The loader over a [`Dataset`]. Its order is a function of seed and epoch, its position is a number, and
/// neither threads nor prefetching change what it yields.
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
/// An error or a panic while loading comes out of `next`, with the loader and the samples; the call after it
/// yields the next batch. Seeking and dropping wait for the samples that are being loaded, and no longer; where
/// the waiting was given up, not even for those.
///
/// A clone shares the dataset and begins anew.
pub struct Batches<B> {
    name: String,
    source: Arc<dyn Source<B>>,
    size: usize,
    seed: Option<u64>,
    drop_last: bool,
    threads: usize,
    prefetch: Option<usize>,
    at: Place,
    /// How the epoch's batches are loaded, once one was asked for.
    job: Option<Arc<Job<B>>>,
    workers: Option<Workers<B>>,
}

#[derive(Clone, Copy)]
struct Place {
    epoch: u64,
    batch: u64,
    shuffled: bool,
}

impl Place {
    const BEGINNING: Place = Place { epoch: 0, batch: 0, shuffled: true };
}

impl<B: Send + 'static> Batches<B> {
    /// A loader of this name. `collate` makes a batch of samples.
    ///
    /// Until told otherwise: batches of 32, in natural order, the last one as short as it is, loaded when
    /// they are asked for.
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
            at: Place::BEGINNING,
            job: None,
            workers: None,
        }
    }

    /// How many samples a batch has.
    #[must_use]
    pub fn size(mut self, samples: usize) -> Self {
        self.size = samples;
        self
    }

    /// Every epoch has an order of its own, made from this seed. So have the samples' seeds.
    #[must_use]
    pub fn shuffled(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Leaves out the last batch of an epoch when it is short.
    #[must_use]
    pub fn drop_last(mut self) -> Self {
        self.drop_last = true;
        self
    }

    /// How many threads load ahead; with 0, the calling thread loads when asked.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// How many batches may be loading or waiting, at least 1. Twice the threads, until told otherwise.
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

    /// How a batch of the epoch is loaded, whoever does it.
    fn job_of_epoch(&self) -> Arc<Job<B>> {
        let Place { epoch, shuffled, .. } = self.at;
        let source = self.source.clone();
        let (name, size, samples) = (self.name.clone(), self.size as u64, source.samples() as u64);
        let seed = self.seed.unwrap_or(0);
        let order = match self.seed {
            Some(seed) if shuffled => Order::shuffled(samples, seed, epoch),
            _ => Order::natural(samples),
        };
        // Where every epoch must see the same batches, it sees the same augmentation.
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
        self.at = Place { epoch, batch, shuffled };
        Ok(())
    }

    fn next(&mut self) -> Result<Option<B>, BoxError> {
        self.next_unless(&|| false).map(patiently)
    }

    fn next_unless(&mut self, given_up: &dyn Fn() -> bool) -> Result<Waited<B>, BoxError> {
        let (batch, end) = (self.at.batch, self.count());
        if batch >= end {
            self.workers = None;
            return Ok(Waited::Ended);
        }
        let job = self.job.take().unwrap_or_else(|| self.job_of_epoch());
        let job = self.job.insert(job);
        let waited = if self.threads == 0 {
            load_here(job, batch, given_up)
        } else {
            let workers = match &mut self.workers {
                Some(workers) => workers,
                idle => {
                    let ahead = self.prefetch.unwrap_or(2 * self.threads) as u64;
                    idle.insert(Workers::start(&self.name, self.threads, ahead, (batch, end), job)?)
                }
            };
            workers.next(given_up)
        };
        // A batch that failed is over, too.
        if !matches!(waited, Ok(Waited::GaveUp)) {
            self.at.batch += 1;
        }
        waited
    }
}

impl<B> Clone for Batches<B> {
    fn clone(&self) -> Batches<B> {
        Batches {
            name: self.name.clone(),
            source: self.source.clone(),
            at: Place::BEGINNING,
            job: None,
            workers: None,
            ..*self
        }
    }
}

/// Loads a batch on the calling thread, which can leave it between two samples.
fn load_here<B>(job: &Arc<Job<B>>, batch: u64, given_up: &dyn Fn() -> bool) -> Result<Waited<B>, BoxError> {
    let left = Cell::new(false);
    let loaded = job(batch, &|| {
        left.set(left.get() || given_up());
        left.get()
    });
    if left.get() { Ok(Waited::GaveUp) } else { loaded.map(Waited::Batch) }
}

/// A dataset and its collate function, so that a loader's type names neither.
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
                return Err("no longer wanted".into());
            }
            let item = contained(|| self.dataset.load(sample));
            let of_sample = |error: &dyn Display| format!("sample {} of the dataset: {error}", sample.index);
            items.push(item.map_err(|error| backtraces::map_message(error, of_sample))?);
        }
        (self.collate)(items)
    }
}
