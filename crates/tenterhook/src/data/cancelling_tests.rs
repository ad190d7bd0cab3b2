//! Fetching a batch that does not arrive can be cancelled, and no batch is lost.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

use proptest::prelude::*;
use tenterhook_core::BoxError;

use super::*;
use crate::train_stream::TrainStream;

/// A dataset of numbers that the test releases one by one.
struct Held {
    len: usize,
    let_go: Mutex<Receiver<()>>,
}

fn held(len: usize) -> (Held, Sender<()>) {
    let (let_go, gate) = channel();
    (Held { len, let_go: Mutex::new(gate) }, let_go)
}

impl Held {
    fn wait(&self) -> Result<(), BoxError> {
        Ok(self.let_go.lock().map_err(|_| "poisoned")?.recv()?)
    }
}

impl Dataset for Held {
    type Item = usize;

    fn len(&self) -> usize {
        self.len
    }

    fn load(&self, sample: Sample) -> Result<usize, BoxError> {
        self.wait()?;
        Ok(sample.index)
    }
}

fn stream_of(held: Held) -> StreamLoader<Vec<usize>> {
    let held = Arc::new(held);
    let open = move |_| {
        let held = held.clone();
        (0..held.len).map(move |number| held.wait().map(|()| number))
    };
    StreamLoader::new("held", open, Ok).size(1).prefetch(1)
}

/// Cancels after this number of checks.
fn cancel_after(asked: &std::cell::Cell<u32>, patience: u32) -> impl Fn() -> bool + '_ {
    move || {
        asked.set(asked.get() + 1);
        asked.get() > patience
    }
}

fn a_cancelled_batch_comes_later(mut loader: impl Loader<Vec<usize>>, let_go: &Sender<()>) {
    loader.seek(0, 0, true).unwrap();
    for _ in 0..2 {
        let asked = std::cell::Cell::new(0);
        assert_eq!(loader.next_unless(&cancel_after(&asked, 2)).unwrap(), Fetch::Cancelled);
        assert_eq!(asked.get(), 3, "it waited between the questions");
    }
    for _ in 0..3 {
        let_go.send(()).unwrap();
    }
    assert_eq!(loader.next_unless(&|| false).unwrap(), Fetch::Batch(vec![0]));
    assert_eq!(loader.next().unwrap(), Some(vec![1]));
    assert_eq!(loader.next_unless(&|| false).unwrap(), Fetch::Batch(vec![2]));
    assert_eq!(loader.next_unless(&|| false).unwrap(), Fetch::End);
}

#[test]
fn a_cancelled_fetch_loses_no_batch() {
    let (dataset, let_go) = held(3);
    a_cancelled_batch_comes_later(Batches::new("held", dataset, Ok).size(1).threads(2), &let_go);
    let (dataset, let_go) = held(3);
    a_cancelled_batch_comes_later(Box::new(stream_of(dataset)), &let_go);
}

#[test]
fn a_batch_that_is_ready_is_not_cancelled() {
    let (tell, told) = channel();
    let tell = Mutex::new(tell);
    let collate = move |numbers: Vec<u8>| {
        tell.lock().unwrap().send(()).unwrap();
        Ok(numbers)
    };
    let mut loader = Batches::new("ready", vec![1u8, 2], collate).size(1).threads(1).prefetch(2);
    assert_eq!(loader.next().unwrap(), Some(vec![1]));
    told.recv().unwrap();
    told.recv().unwrap();
    // The batch is collated, and delivered an instant later.
    let asked = std::cell::Cell::new(0);
    let waited = loader.next_unless(&cancel_after(&asked, 10_000)).unwrap();
    assert_eq!(waited, Fetch::Batch(vec![2]));
    assert!(asked.get() <= 1, "asked {} times", asked.get());
}

#[test]
fn a_loader_whose_fetch_was_cancelled_can_be_dropped_while_its_sample_does_not_come() {
    let (dataset, let_go) = held(1);
    let mut loader = Batches::new("held", dataset, Ok).size(1).threads(1);
    assert_eq!(loader.next_unless(&|| true).unwrap(), Fetch::Cancelled);
    drop(loader);
    let_go.send(()).unwrap_or(());
}

#[test]
fn a_loader_without_threads_can_be_cancelled_between_two_samples() {
    let caller = std::thread::current().id();
    let seen: Arc<Mutex<Vec<ThreadId>>> = Arc::default();
    let noted = seen.clone();
    let collate = move |numbers: Vec<u8>| {
        noted.lock().unwrap().push(std::thread::current().id());
        Ok(numbers)
    };
    let mut loader = Batches::new("here", vec![1u8, 2, 3, 4], collate).size(2);
    let asked = std::cell::Cell::new(0);
    assert_eq!(loader.next_unless(&cancel_after(&asked, 1)).unwrap(), Fetch::Cancelled);
    assert!(seen.lock().unwrap().is_empty(), "the second sample was not loaded");
    assert_eq!(loader.next().unwrap(), Some(vec![1, 2]));
    assert_eq!(*seen.lock().unwrap(), [caller]);
}

/// A loader that cancels every n-th fetch.
struct Halting {
    inner: Batches<Vec<u64>>,
    sized: bool,
    every: u64,
    calls: u64,
}

impl Loader<Vec<u64>> for Halting {
    fn name(&self) -> &'static str {
        "halting"
    }
    fn batches(&self) -> Option<u64> {
        self.inner.batches().filter(|_| self.sized)
    }
    fn seek(&mut self, epoch: u64, batch: u64, shuffled: bool) -> Result<(), BoxError> {
        self.inner.seek(epoch, batch, shuffled)
    }
    fn next(&mut self) -> Result<Option<Vec<u64>>, BoxError> {
        self.inner.next()
    }
    fn next_unless(&mut self, cancelled: &dyn Fn() -> bool) -> Result<Fetch<Vec<u64>>, BoxError> {
        self.calls += 1;
        if self.calls.is_multiple_of(self.every) {
            return Ok(Fetch::Cancelled);
        }
        self.inner.next_unless(cancelled)
    }
}

/// All batches of a stream of such loaders from a position on, with another fetch after each cancelled one.
fn fed(lengths: &[u64], sized: bool, every: u64, from: u64) -> Vec<(usize, Vec<u64>, bool)> {
    let loaders = lengths.iter().map(|length| {
        let inner = Batches::new("inner", (0..*length).collect::<Vec<_>>(), Ok).size(1);
        Box::new(Halting { inner, sized, every, calls: 0 }) as Box<dyn Loader<Vec<u64>>>
    });
    let limits: Vec<_> = lengths.iter().map(|length| sized.then_some(*length)).collect();
    let mut stream =
        TrainStream::new(loaders.collect(), &limits, Interleave::RoundRobin, true, 3, Arc::default())
            .expect("the interleave fit");
    stream.begin(0, from).expect("it begins");
    let mut all = Vec::new();
    loop {
        match stream.next(&|| false).expect("it yields") {
            Fetch::Batch(fetched) => all.push((fetched.loader, fetched.batch, fetched.is_last)),
            Fetch::End => return all,
            Fetch::Cancelled => {}
        }
    }
}

proptest! {
    #[test]
    fn cancelling_anywhere_does_not_change_the_batches(
        lengths in proptest::collection::vec(0u64..7, 1..4),
        sized: bool,
        every in 2u64..5,
        from in 0u64..9,
    ) {
        prop_assert_eq!(fed(&lengths, sized, every, from), fed(&lengths, sized, u64::MAX, from));
    }
}
