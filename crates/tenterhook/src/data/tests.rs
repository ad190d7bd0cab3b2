//! Loaders: the same batches on any number of threads, and no failure that hangs or is lost.

use std::panic::panic_any;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use tenterhook_core::BoxError;

use super::*;

/// A dataset whose items are the requested samples, with an error or a panic at given indices.
#[derive(Default)]
struct Probe {
    len: usize,
    fails_at: Option<usize>,
    panics_at: Option<usize>,
    loaded: AtomicUsize,
}

impl Dataset for Probe {
    type Item = Sample;

    fn len(&self) -> usize {
        self.len
    }

    fn load(&self, sample: Sample) -> Result<Sample, BoxError> {
        self.loaded.fetch_add(1, Ordering::SeqCst);
        if self.panics_at == Some(sample.index) {
            panic_any("out of paper");
        }
        if self.fails_at == Some(sample.index) { Err("torn".into()) } else { Ok(sample) }
    }
}

fn samples(dataset: impl Dataset<Item = Sample>) -> Batches<Vec<Sample>> {
    Batches::new("train", dataset, Ok)
}

fn rest<B>(loader: &mut impl Loader<B>) -> Vec<B> {
    std::iter::from_fn(|| loader.next().expect("it yields")).collect()
}

fn indices(batches: &[Vec<Sample>]) -> Vec<Vec<usize>> {
    batches.iter().map(|batch| batch.iter().map(|sample| sample.index).collect()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn threads_prefetching_and_resuming_do_not_change_the_batches(
        len in 0usize..60,
        size in 1usize..9,
        threads in 0usize..5,
        prefetch in 0usize..6,
        drop_last: bool,
        shuffled: bool,
        epoch in 0u64..4,
    ) {
        let made = |threads| {
            let loader = samples(Probe { len, ..Probe::default() }).size(size).shuffled(5).threads(threads);
            if drop_last { loader.drop_last() } else { loader }
        };
        let mut plain = made(0);
        plain.seek(epoch, 0, shuffled).expect("it seeks");
        let whole = rest(&mut plain);
        prop_assert_eq!(plain.batches(), Some(whole.len() as u64));
        let full = whole.iter().all(|batch| batch.len() == size);
        prop_assert!(full || !drop_last);
        prop_assert_eq!(whole.concat().len(), if drop_last { len / size * size } else { len });

        let mut threaded = made(threads).prefetch(prefetch);
        for from in 0..=whole.len() {
            threaded.seek(epoch, from as u64, shuffled).expect("it seeks");
            prop_assert_eq!(&rest(&mut threaded), &whole[from..]);
            prop_assert_eq!(threaded.next().expect("it ends"), None);
        }
    }

    #[test]
    fn a_stream_is_the_same_read_ahead_and_from_every_position(
        len in 0u64..40, size in 1usize..7, prefetch in 0usize..5, drop_last: bool,
    ) {
        let made = |prefetch| {
            let stream = move |epoch: u64| (0..len).map(move |item| Ok(epoch * 100 + item));
            let loader = StreamLoader::new("stream", stream, Ok).size(size).prefetch(prefetch);
            if drop_last { loader.drop_last() } else { loader }
        };
        let mut plain = made(0);
        plain.seek(2, 0, true).expect("it seeks");
        let whole: Vec<Vec<u64>> = rest(&mut plain);
        let kept = if drop_last { len / size as u64 * size as u64 } else { len };
        prop_assert_eq!(whole.concat(), (200..200 + kept).collect::<Vec<_>>());
        let mut ahead = made(prefetch);
        for from in 0..=whole.len() {
            ahead.seek(2, from as u64, true).expect("it seeks");
            prop_assert_eq!(&rest(&mut ahead), &whole[from..]);
            prop_assert_eq!(ahead.next().expect("it ends"), None);
        }
    }
}

#[test]
fn samples_are_shuffled_only_if_both_loader_and_loop_ask_for_it() {
    let natural = [vec![0, 1, 2], vec![3, 4]];
    let mut plain = samples(Probe { len: 5, ..Probe::default() }).size(3);
    plain.seek(1, 0, true).unwrap();
    assert_eq!(indices(&rest(&mut plain)), natural);
    let mut shuffled = samples(Probe { len: 5, ..Probe::default() }).size(3).shuffled(9);
    shuffled.seek(1, 0, false).unwrap();
    assert_eq!(indices(&rest(&mut shuffled)), natural);
    shuffled.seek(1, 0, true).unwrap();
    assert_ne!(indices(&rest(&mut shuffled)), natural);
}

#[test]
fn a_sample_has_its_own_seed_in_every_epoch() {
    let mut loader = samples(Probe { len: 50, ..Probe::default() }).size(50).shuffled(1);
    let mut seeds = |epoch, shuffled| {
        loader.seek(epoch, 0, shuffled).unwrap();
        let mut samples = rest(&mut loader).concat();
        samples.sort_by_key(|sample| sample.index);
        samples.into_iter().map(|sample| sample.seed).collect::<Vec<_>>()
    };
    let first = seeds(0, true);
    let mut different = first.clone();
    different.sort_unstable();
    different.dedup();
    assert_eq!(different.len(), 50);
    assert_ne!(first, seeds(1, true));
    assert_eq!(seeds(3, false), seeds(4, false), "where every epoch must see the same batches");
}

#[test]
fn an_error_names_the_sample_and_the_next_batch_is_loaded() {
    for threads in [0, 1, 3] {
        let probe = Probe { len: 6, fails_at: Some(3), ..Probe::default() };
        let mut loader = samples(probe).size(2).threads(threads);
        assert!(loader.next().unwrap().is_some());
        let error = loader.next().unwrap_err().to_string();
        let named = "loader `train`, epoch 1, batch 1 (samples 2 to 3): sample 3 of the dataset: torn";
        assert_eq!(error, named);
        assert_eq!(indices(&rest(&mut loader)), [[4, 5]], "with {threads} threads");
    }
}

#[test]
fn a_panic_in_the_dataset_or_while_collating_is_an_error() {
    for threads in [0, 2] {
        let probe = Probe { len: 4, panics_at: Some(1), ..Probe::default() };
        let mut error = samples(probe).size(2).threads(threads).next().unwrap_err();
        assert!(panic_in(&mut error).is_some(), "it is known to be one");
        let error = error.to_string();
        assert!(
            error.ends_with("(samples 0 to 1): sample 1 of the dataset: panicked: out of paper"),
            "{error}"
        );

        let collate = |_: Vec<u8>| -> Result<u8, BoxError> { panic_any("out of glue") };
        let error = Batches::new("val", vec![1, 2], collate).threads(threads).next().unwrap_err();
        assert!(error.to_string().starts_with("loader `val`, epoch 1, batch 0 (samples 0 to 1)"), "{error}");
        assert!(error.to_string().ends_with("panicked: out of glue"), "{error}");
    }
}

#[test]
fn workers_respect_the_prefetch_limit_and_end_with_the_loader() {
    for taken in 0..4 {
        let probe = Arc::new(Probe { len: 1000, ..Probe::default() });
        let mut loader = samples(probe.clone()).size(10).threads(3).prefetch(4);
        for _ in 0..taken {
            loader.next().unwrap();
        }
        drop(loader);
        // The threads are not joined: each ends after its current sample.
        while Arc::strong_count(&probe) > 1 {
            std::thread::yield_now();
        }
        let most = if taken == 0 { 0 } else { (taken + 4) * 10 };
        assert!(probe.loaded.load(Ordering::SeqCst) <= most, "{probe:?} of {most}", probe = probe.loaded);
    }
}

#[test]
fn seeking_stops_the_workers_of_the_old_position() {
    let probe = Arc::new(Probe { len: 100, ..Probe::default() });
    let mut loader = samples(probe.clone()).size(1).threads(2).prefetch(2);
    loader.next().unwrap();
    assert!(Arc::strong_count(&probe) >= 2);
    loader.seek(0, 99, true).unwrap();
    let before = probe.loaded.load(Ordering::SeqCst);
    assert_eq!(indices(&rest(&mut loader)), [[99]]);
    assert_eq!(probe.loaded.load(Ordering::SeqCst), before + 1);
}

#[test]
fn an_empty_dataset_has_no_batch_and_a_batch_size_of_0_is_an_error() {
    let mut empty = samples(Probe::default()).threads(2);
    assert_eq!((empty.batches(), empty.next().unwrap()), (Some(0), None));
    for size_zero in [samples(Probe::default()).size(0).seek(0, 0, true), sized_stream(0).seek(0, 0, true)] {
        assert!(size_zero.unwrap_err().to_string().contains("batch size of 0"));
    }
}

fn sized_stream(size: usize) -> StreamLoader<Vec<u8>> {
    StreamLoader::new("stream", |_| std::iter::empty(), Ok).size(size)
}

#[test]
fn a_stream_of_unknown_length_ends_at_its_failure() {
    for prefetch in [0, 3] {
        let open = |_| vec![Ok(1u8), Ok(2), Ok(3), Err(BoxError::from("cut off")), Ok(5)].into_iter();
        let mut loader = StreamLoader::new("lines", open, Ok).size(2).prefetch(prefetch);
        assert_eq!(loader.batches(), None);
        assert_eq!(loader.next().unwrap(), Some(vec![1, 2]));
        let error = loader.next().unwrap_err().to_string();
        assert_eq!(error, "loader `lines`, epoch 1, batch 1 (samples 2 to 3): cut off");
        assert_eq!(loader.next().unwrap(), None);

        let open = |_| (0..3u8).map(|item| if item < 2 { Ok(item) } else { panic_any("dried up") });
        let mut loader = StreamLoader::new("lines", open, Ok).size(2).prefetch(prefetch);
        loader.next().unwrap();
        assert!(loader.next().unwrap_err().to_string().ends_with("panicked: dried up"));
    }
}

#[test]
fn without_shuffling_every_epoch_has_the_stream_of_the_first() {
    let mut loader = StreamLoader::new("epochs", |epoch| std::iter::once(Ok(epoch)), Ok);
    loader.seek(4, 0, true).unwrap();
    assert_eq!(loader.next().unwrap(), Some(vec![4]));
    loader.seek(4, 0, false).unwrap();
    assert_eq!(loader.next().unwrap(), Some(vec![0]));
}

/// An endless stream that sends a message when it is dropped.
struct Endless(Sender<()>);

impl Iterator for Endless {
    type Item = Result<u8, BoxError>;
    fn next(&mut self) -> Option<Self::Item> {
        Some(Ok(1))
    }
}

impl Drop for Endless {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

#[test]
fn the_reading_thread_of_a_stream_ends_with_its_receiver() {
    let (to, dropped) = channel();
    let to = Mutex::new(to);
    let open = move |_| Endless(to.lock().unwrap().clone());
    let mut loader = StreamLoader::new("endless", open, Ok).size(3).prefetch(2);
    assert_eq!(loader.next().unwrap(), Some(vec![1; 3]));
    loader.seek(1, 0, true).unwrap();
    dropped.recv().unwrap();
    assert_eq!(loader.next().unwrap(), Some(vec![1; 3]));
    drop(loader);
    dropped.recv().unwrap();
}

#[test]
fn data_loaders_are_made_again_for_every_call() {
    let batches = |name: &str| Batches::new(name, vec![1u8, 2, 3], Ok).size(2);
    let mut data = DataLoaders::new()
        .train(batches("a"))
        .make(Split::Train, || Ok(StreamLoader::new("b", |_| std::iter::once(Ok(7u8)), Ok)))
        .validate(batches("val"))
        .test(batches("test"))
        .interleave(Interleave::Sequential);
    for _ in 0..2 {
        let mut train = data.loaders(Split::Train).unwrap();
        let names: Vec<_> = train.iter().map(|loader| loader.name().to_owned()).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(rest(&mut train[0]), [vec![1, 2], vec![3]]);
        assert_eq!(rest(&mut train[1]), [vec![7]]);
    }
    assert_eq!(data.loaders(Split::Validate).unwrap()[0].name(), "val");
    assert_eq!(data.loaders(Split::Test).unwrap()[0].name(), "test");
    assert!(data.loaders(Split::Predict).unwrap().is_empty());
    assert_eq!(DataModule::interleave(&data), Interleave::Sequential);
}
