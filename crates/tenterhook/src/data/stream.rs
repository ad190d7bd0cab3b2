//! The loader over a stream: data that can only be read from its beginning, and ends when it ends.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, sync_channel};
use std::thread::Builder;

use tenterhook_core::BoxError;
use tenterhook_core::backtraces;

use super::waited::{SLICE, patiently};
use super::{LoadError, Loader, Waited};
use crate::data::dataset::contained;

type Items<I> = Box<dyn Iterator<Item = Result<I, BoxError>> + Send>;
type Read<B> = Box<dyn FnMut() -> Result<Option<B>, BoxError> + Send>;
type Open<B> = dyn Fn(&StreamOf<B>) -> Read<B> + Send + Sync;

/// The loader over a stream of items whose length is unknown: lines of a log, answers of a service, numbers
/// that are made up as they are needed.
///
/// A function opens the stream of an epoch. To reach a position, the items before it are read and dropped,
/// so a resumed run sees what it would have seen if the stream of an epoch is always the same.
///
/// ```
/// use tenterhook::Loader;
/// use tenterhook::data::StreamOf;
///
/// let stream = |epoch| (epoch..epoch + 5).map(Ok);
/// let mut loader = StreamOf::new("numbers", stream, |items| Ok(items)).size(2).prefetch(4);
/// loader.seek(10, 1, true)?;
/// assert_eq!(loader.next()?, Some(vec![12, 13]));
/// assert_eq!(loader.next()?, Some(vec![14]));
/// assert_eq!(loader.next()?, None);
/// # Ok::<(), tenterhook::BoxError>(())
/// ```
pub struct StreamOf<B> {
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
    /// On a thread that ends by itself when nobody listens any more.
    Ahead(Receiver<Result<B, BoxError>>),
}

impl<B: Send + 'static> StreamOf<B> {
    /// A loader of this name. `open` begins an epoch's stream, `collate` makes a batch of its items.
    ///
    /// Until told otherwise: batches of 32, the last one as short as it is, read when they are asked for.
    #[must_use]
    pub fn new<I, S>(
        name: impl Into<String>,
        open: impl Fn(u64) -> S + Send + Sync + 'static,
        collate: impl Fn(Vec<I>) -> Result<B, BoxError> + Send + Sync + 'static,
    ) -> StreamOf<B>
    where
        I: Send + 'static,
        S: Iterator<Item = Result<I, BoxError>> + Send + 'static,
    {
        let open: Arc<dyn Fn(u64) -> Items<I> + Send + Sync> = Arc::new(move |epoch| Box::new(open(epoch)));
        let collate = Arc::new(collate);
        StreamOf {
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

    /// Leaves out the last batch of an epoch when it is short.
    #[must_use]
    pub fn drop_last(mut self) -> Self {
        self.drop_last = true;
        self
    }

    /// How many items a batch has.
    #[must_use]
    pub fn size(mut self, items: usize) -> Self {
        self.size = items;
        self
    }

    /// How many batches a thread reads ahead; with 0, the calling thread reads when asked.
    #[must_use]
    pub fn prefetch(mut self, batches: usize) -> Self {
        self.prefetch = batches;
        self
    }

    /// Reads one batch per call, from where the loader stands. After a failure it yields nothing more.
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
        // The thread holds one batch more, which it has read and not yet handed over.
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

impl<B: Send + 'static> Loader<B> for StreamOf<B> {
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
        // Where every epoch must see the same batches, every epoch has the first one's stream.
        self.epoch = if shuffled { epoch } else { 0 };
        self.skip = batch;
        self.reading = None;
        Ok(())
    }

    fn next(&mut self) -> Result<Option<B>, BoxError> {
        self.next_unless(&|| false).map(patiently)
    }

    fn next_unless(&mut self, given_up: &dyn Fn() -> bool) -> Result<Waited<B>, BoxError> {
        let reading = match self.reading.take() {
            Some(reading) => reading,
            None => self.begin()?,
        };
        match self.reading.insert(reading) {
            Reading::Here(read) => read().map(Waited::from),
            Reading::Ahead(batches) => received(batches, given_up),
        }
    }
}

/// The next of what a thread hands over. One that is there already is taken without asking.
fn received<B>(
    batches: &Receiver<Result<B, BoxError>>,
    given_up: &dyn Fn() -> bool,
) -> Result<Waited<B>, BoxError> {
    match batches.try_recv() {
        Ok(batch) => return batch.map(Waited::Batch),
        Err(TryRecvError::Disconnected) => return Ok(Waited::Ended),
        Err(TryRecvError::Empty) => {}
    }
    while !given_up() {
        match batches.recv_timeout(SLICE) {
            Ok(batch) => return batch.map(Waited::Batch),
            Err(RecvTimeoutError::Disconnected) => return Ok(Waited::Ended),
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
    Ok(Waited::GaveUp)
}

impl<B> Clone for StreamOf<B> {
    fn clone(&self) -> StreamOf<B> {
        StreamOf {
            name: self.name.clone(),
            open: self.open.clone(),
            epoch: 0,
            skip: 0,
            reading: None,
            ..*self
        }
    }
}
