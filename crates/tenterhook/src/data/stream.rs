//! The loader over a stream: data of unknown length that is read sequentially.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, sync_channel};
use std::thread::Builder;

use tenterhook_core::BoxError;
use tenterhook_core::backtraces;

use super::fetch::POLL;
use super::{Fetch, LoadError, Loader};
use crate::data::dataset::contained;

type Items<I> = Box<dyn Iterator<Item = Result<I, BoxError>> + Send>;
type Read<B> = Box<dyn FnMut() -> Result<Option<B>, BoxError> + Send>;
type Open<B> = dyn Fn(&StreamLoader<B>) -> Read<B> + Send + Sync;

/// A loader over a stream of items of unknown length: lines of a log, responses of a service, generated
/// numbers.
///
/// A function opens the stream of an epoch. Seeking reads and drops the items before the position, so a
/// resumed run gets the same batches if the stream of an epoch is always the same.
///
/// ```
/// use tenterhook::Loader;
/// use tenterhook::data::StreamLoader;
///
/// let stream = |epoch| (epoch..epoch + 5).map(Ok);
/// let mut loader = StreamLoader::new("numbers", stream, |items| Ok(items)).size(2).prefetch(4);
/// loader.seek(10, 1, true)?;
/// assert_eq!(loader.next()?, Some(vec![12, 13]));
/// assert_eq!(loader.next()?, Some(vec![14]));
/// assert_eq!(loader.next()?, None);
/// # Ok::<(), tenterhook::BoxError>(())
/// ```
pub struct StreamLoader<B> {
    name: String,
    open: Arc<Open<B>>,
    size: usize,
    drop_last: bool,
    prefetch: usize,
    epoch: u64,
    skip: u64,
    reading: Option<Reading<B>>,
}

enum Reading<B> {
    Here(Read<B>),
    /// On a thread that ends when the receiver is dropped.
    Ahead(Receiver<Result<B, BoxError>>),
}

impl<B: Send + 'static> StreamLoader<B> {
    /// A loader of this name. `open` opens the stream of an epoch, `collate` makes a batch of its items.
    ///
    /// Defaults: a batch size of 32, a shorter last batch, no prefetching.
    #[must_use]
    pub fn new<I, S>(
        name: impl Into<String>,
        open: impl Fn(u64) -> S + Send + Sync + 'static,
        collate: impl Fn(Vec<I>) -> Result<B, BoxError> + Send + Sync + 'static,
    ) -> StreamLoader<B>
    where
        I: Send + 'static,
        S: Iterator<Item = Result<I, BoxError>> + Send + 'static,
    {
        let open: Arc<dyn Fn(u64) -> Items<I> + Send + Sync> = Arc::new(move |epoch| Box::new(open(epoch)));
        let collate = Arc::new(collate);
        StreamLoader {
            name: name.into(),
            open: Arc::new(move |loader| loader.reader(open.clone(), collate.clone())),
            size: 32,
            drop_last: false,
            prefetch: 0,
            epoch: 0,
            skip: 0,
            reading: None,
        }
    }

    /// Drops the last batch of an epoch if it is incomplete.
    #[must_use]
    pub fn drop_last(mut self) -> Self {
        self.drop_last = true;
        self
    }

    /// Sets the batch size.
    #[must_use]
    pub fn size(mut self, items: usize) -> Self {
        self.size = items;
        self
    }

    /// Sets the number of batches that a thread reads ahead. With 0 the calling thread reads.
    #[must_use]
    pub fn prefetch(mut self, batches: usize) -> Self {
        self.prefetch = batches;
        self
    }

    /// Reads one batch per call, from the current position. After a failure the epoch ends.
    fn reader<I: Send + 'static>(
        &self,
        open: Arc<dyn Fn(u64) -> Items<I> + Send + Sync>,
        collate: Arc<impl Fn(Vec<I>) -> Result<B, BoxError> + Send + Sync + 'static>,
    ) -> Read<B> {
        let (name, epoch, skip) = (self.name.clone(), self.epoch, self.skip);
        let (size, drop_last) = (self.size as u64, self.drop_last);
        let mut batch = skip;
        let mut items: Option<Items<I>> = None;
        let mut over = false;
        Box::new(move || {
            if over {
                return Ok(None);
            }
            let read = contained(|| {
                let items = match &mut items {
                    Some(items) => items,
                    closed => closed.insert(skipped(open(epoch), skip.saturating_mul(size))?),
                };
                let some = (0..size).map_while(|_| items.next()).collect::<Result<Vec<I>, _>>()?;
                let short = (some.len() as u64) < size;
                let none = some.is_empty() || (short && drop_last);
                if none { Ok(None) } else { collate(some).map(Some) }
            });
            let samples = batch * size..(batch + 1) * size;
            over = !matches!(read, Ok(Some(_)));
            batch += 1;
            read.map_err(|error| {
                LoadError { loader: name.clone(), epoch, batch: batch - 1, samples, error }.into()
            })
        })
    }

    fn begin(&self) -> Result<Reading<B>, BoxError> {
        let mut read = (self.open)(self);
        if self.prefetch == 0 {
            return Ok(Reading::Here(read));
        }
        // The thread itself holds one more batch.
        let (to, from) = sync_channel(self.prefetch - 1);
        let keep = backtraces::inherit();
        let work = move || {
            let _keeping = keep();
            while let Some(batch) = read().transpose() {
                if to.send(batch).is_err() {
                    break;
                }
            }
        };
        let thread = Builder::new().name(self.name.clone()).spawn(work);
        thread.map_err(|error| format!("cannot start a reading thread: {error}"))?;
        Ok(Reading::Ahead(from))
    }
}

fn skipped<I>(mut items: Items<I>, count: u64) -> Result<Items<I>, BoxError> {
    for _ in 0..count {
        match items.next() {
            Some(item) => drop(item?),
            None => break,
        }
    }
    Ok(items)
}

impl<B: Send + 'static> Loader<B> for StreamLoader<B> {
    fn name(&self) -> &str {
        &self.name
    }

    fn batches(&self) -> Option<u64> {
        None
    }

    fn seek(&mut self, epoch: u64, batch: u64, shuffled: bool) -> Result<(), BoxError> {
        if self.size == 0 {
            return Err(format!("loader `{}` has a batch size of 0; give at least 1", self.name).into());
        }
        // Without shuffling every epoch has the stream of the first.
        self.epoch = if shuffled { epoch } else { 0 };
        self.skip = batch;
        self.reading = None;
        Ok(())
    }

    fn next(&mut self) -> Result<Option<B>, BoxError> {
        self.next_unless(&|| false).map(Fetch::batch)
    }

    fn next_unless(&mut self, cancelled: &dyn Fn() -> bool) -> Result<Fetch<B>, BoxError> {
        let reading = match self.reading.take() {
            Some(reading) => reading,
            None => self.begin()?,
        };
        match self.reading.insert(reading) {
            Reading::Here(read) => read().map(Fetch::from),
            Reading::Ahead(batches) => received(batches, cancelled),
        }
    }
}

/// Receives the next batch of the reading thread. A batch that is ready is returned even if the fetch is
/// cancelled.
fn received<B>(
    batches: &Receiver<Result<B, BoxError>>,
    cancelled: &dyn Fn() -> bool,
) -> Result<Fetch<B>, BoxError> {
    match batches.try_recv() {
        Ok(batch) => return batch.map(Fetch::Batch),
        Err(TryRecvError::Disconnected) => return Ok(Fetch::End),
        Err(TryRecvError::Empty) => {}
    }
    while !cancelled() {
        match batches.recv_timeout(POLL) {
            Ok(batch) => return batch.map(Fetch::Batch),
            Err(RecvTimeoutError::Disconnected) => return Ok(Fetch::End),
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
    Ok(Fetch::Cancelled)
}

impl<B> Clone for StreamLoader<B> {
    fn clone(&self) -> StreamLoader<B> {
        StreamLoader {
            name: self.name.clone(),
            open: self.open.clone(),
            epoch: 0,
            skip: 0,
            reading: None,
            ..*self
        }
    }
}
