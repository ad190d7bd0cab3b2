//! The stream of training batches: the interleaved batches of all training loaders, with limits.

use std::collections::VecDeque;
use std::sync::Arc;

use tenterhook_core::BoxError;

use crate::data::interleaver::Interleaver;
use crate::data::{Fetch, Interleave, InterleaveError, Loaders, of_loader};
use crate::stall::WaitState;

/// A training batch, with its loader.
pub(crate) struct TrainBatch<B> {
    pub(crate) batch: B,
    pub(crate) loader: usize,
    /// It is known to be the last of the epoch.
    pub(crate) is_last: bool,
}

pub(crate) struct TrainStream<B> {
    loaders: Loaders<B>,
    interleaver: Interleaver,
    shuffled: bool,
    length: Option<u64>,
    /// The loaders of all batches before a position can be computed.
    is_computable: bool,
    /// Without a known length, one batch is fetched ahead to detect the last. A limit counts as a length, as
    /// in Lightning, even if the loader ends before it.
    ahead: VecDeque<(B, usize)>,
    /// Batches before this position are fetched and dropped.
    first: u64,
    wait: Arc<WaitState>,
}

impl<B> TrainStream<B> {
    /// `limits`: the number of batches to take of each loader; `None` if its length is unknown.
    pub(crate) fn new(
        loaders: Loaders<B>,
        limits: &[Option<u64>],
        mode: Interleave,
        shuffled: bool,
        seed: u64,
        wait: Arc<WaitState>,
    ) -> Result<TrainStream<B>, InterleaveError> {
        if !loaders.is_empty() {
            mode.check(loaders.len())?;
        }
        let is_computable = loaders.len() == 1 || loaders.iter().all(|loader| loader.batches().is_some());
        let interleaver = Interleaver::new(mode, limits, seed);
        let length = interleaver.length();
        let (ahead, first) = (VecDeque::with_capacity(2), 0);
        Ok(TrainStream { loaders, interleaver, shuffled, length, is_computable, ahead, first, wait })
    }

    /// The number of batches of an epoch, if known.
    pub(crate) fn length(&self) -> Option<u64> {
        self.length
    }

    /// The training loaders.
    pub(crate) fn loaders(&self) -> &Loaders<B> {
        &self.loaders
    }

    /// The name of a loader.
    pub(crate) fn name(&self, loader: usize) -> &str {
        self.loaders.get(loader).map_or("", |loader| loader.name())
    }

    /// Seeks to a batch of an epoch. The number of earlier batches per loader is computed, so each loader
    /// seeks directly. With several loaders of unknown length, the first fetch reads and drops the earlier
    /// batches.
    pub(crate) fn begin(&mut self, epoch: u64, batch: u64) -> Result<(), BoxError> {
        self.interleaver.begin(epoch);
        self.interleaver.advance(if self.is_computable { batch } else { 0 });
        for (at, (loader, taken)) in self.loaders.iter_mut().zip(self.interleaver.taken()).enumerate() {
            let _waiting = self.wait.begin(at);
            let begun = loader.seek(epoch, taken, self.shuffled);
            begun.map_err(|error| of_loader(loader.name(), error))?;
        }
        self.first = batch;
        self.ahead.clear();
        Ok(())
    }

    /// Fetches the next batch. A cancelled fetch loses no batch.
    pub(crate) fn next(&mut self, cancelled: &dyn Fn() -> bool) -> Result<Fetch<TrainBatch<B>>, BoxError> {
        while self.interleaver.position() < self.first {
            match self.fetch(cancelled)? {
                Fetch::Batch(_) => {}
                Fetch::End => return Ok(Fetch::End),
                Fetch::Cancelled => return Ok(Fetch::Cancelled),
            }
        }
        if let Some(length) = self.length {
            let fetched = self.fetch(cancelled)?;
            let is_last = self.interleaver.position() == length;
            return Ok(fetched.map(|(batch, loader)| TrainBatch { batch, loader, is_last }));
        }
        while self.ahead.len() < 2 {
            match self.fetch(cancelled)? {
                Fetch::Batch(fetched) => self.ahead.push_back(fetched),
                Fetch::End => break,
                Fetch::Cancelled => return Ok(Fetch::Cancelled),
            }
        }
        let next = self.ahead.pop_front();
        let is_last = self.ahead.is_empty();
        Ok(Fetch::from(next).map(|(batch, loader)| TrainBatch { batch, loader, is_last }))
    }

    fn fetch(&mut self, cancelled: &dyn Fn() -> bool) -> Result<Fetch<(B, usize)>, BoxError> {
        while let Some(loader) = self.interleaver.next().filter(|next| *next < self.loaders.len()) {
            let waiting = self.wait.begin(loader);
            let from = &mut self.loaders[loader];
            let next = from.next_unless(cancelled).map_err(|error| of_loader(from.name(), error));
            drop(waiting);
            match next? {
                Fetch::Batch(batch) => {
                    self.interleaver.took(loader);
                    return Ok(Fetch::Batch((batch, loader)));
                }
                Fetch::End => self.interleaver.ended(loader),
                Fetch::Cancelled => return Ok(Fetch::Cancelled),
            }
        }
        Ok(Fetch::End)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use proptest::prelude::*;

    use super::*;
    use crate::data::Loader;

    struct Count {
        sized: bool,
        batches: u64,
        next: u64,
        calls: Rc<Cell<u64>>,
    }

    impl Loader<u64> for Count {
        fn name(&self) -> &'static str {
            "count"
        }
        fn batches(&self) -> Option<u64> {
            self.sized.then_some(self.batches)
        }
        fn seek(&mut self, _: u64, batch: u64, _: bool) -> Result<(), BoxError> {
            self.next = batch;
            Ok(())
        }
        fn next(&mut self) -> Result<Option<u64>, BoxError> {
            self.calls.set(self.calls.get() + 1);
            self.next += 1;
            Ok((self.next <= self.batches).then_some(self.next - 1))
        }
    }

    const KINDS: usize = 5;

    fn interleave(kind: usize, loaders: usize) -> Interleave {
        match kind {
            0 => Interleave::RoundRobin,
            1 => Interleave::Sequential,
            2 => Interleave::Weighted((0..loaders).map(|at| 1.0 + at as f64).collect()),
            3 => Interleave::Alternating(Vec::new()),
            _ => Interleave::Alternating((0..loaders).map(|at| 1 + (at as u64 + 1) % 3).collect()),
        }
    }

    /// Loaders that count calls of `next`, and their stream.
    fn stream(
        batches: &[u64],
        limit: u64,
        interleave: Interleave,
        sized: bool,
    ) -> (TrainStream<u64>, Rc<Cell<u64>>) {
        let calls = Rc::new(Cell::new(0));
        let loaders: Loaders<u64> = batches
            .iter()
            .map(|batches| Box::new(Count { sized, batches: *batches, next: 0, calls: calls.clone() }) as _)
            .collect();
        let limit = |batches: &u64| match (sized, limit) {
            (true, limit) => Some(limit.min(*batches)),
            (false, u64::MAX) => None,
            (false, limit) => Some(limit),
        };
        let limits: Vec<_> = batches.iter().map(limit).collect();
        (
            TrainStream::new(loaders, &limits, interleave, true, 11, Arc::default())
                .expect("the interleave fit"),
            calls,
        )
    }

    type Served = (usize, u64, bool);

    fn rest(stream: &mut TrainStream<u64>, epoch: u64, from: u64) -> Vec<Served> {
        stream.begin(epoch, from).expect("it begins");
        let mut all = Vec::new();
        while let Fetch::Batch(fetched) = stream.next(&|| false).expect("it yields") {
            all.push((fetched.loader, fetched.batch, fetched.is_last));
        }
        all
    }

    fn served(batches: &[u64], limit: u64, interleave: Interleave, sized: bool) -> Vec<Served> {
        rest(&mut stream(batches, limit, interleave, sized).0, 0, 0)
    }

    const ALL: u64 = u64::MAX;

    #[test]
    fn the_last_batch_is_known_with_and_without_a_length() {
        let expected = [(0, 0, false), (0, 1, true)];
        for sized in [true, false] {
            assert_eq!(served(&[2], ALL, Interleave::RoundRobin, sized), expected);
            assert_eq!(served(&[5], 2, Interleave::RoundRobin, sized), expected);
        }
        let unforeseen = [(0, 0, false), (0, 1, false)];
        assert_eq!(served(&[2], 5, Interleave::RoundRobin, false), unforeseen, "ended before its limit");
    }

    #[test]
    fn several_loaders_take_turns_until_all_are_exhausted() {
        for sized in [true, false] {
            let round = [(0, 0, false), (1, 0, false), (0, 1, false), (0, 2, true)];
            assert_eq!(served(&[3, 1], ALL, Interleave::RoundRobin, sized), round);
            let in_sequence = [(0, 0, false), (0, 1, false), (0, 2, false), (1, 0, true)];
            assert_eq!(served(&[3, 1], ALL, Interleave::Sequential, sized), in_sequence);
        }
    }

    #[test]
    fn a_limit_cuts_each_loader() {
        let cut = [(0, 0, false), (1, 0, false), (0, 1, true)];
        assert_eq!(served(&[5, 1], 2, Interleave::RoundRobin, true), cut);
    }

    #[test]
    fn an_alternating_epoch_ends_with_the_first_that_cannot_fill_its_turn() {
        let who = |batches: &[u64], pattern: Vec<u64>, sized| {
            let served = served(batches, ALL, Interleave::Alternating(pattern), sized);
            served.iter().map(|(loader, ..)| *loader).collect::<Vec<_>>()
        };
        for sized in [true, false] {
            assert_eq!(who(&[5, 2], vec![], sized), [0, 1, 0, 1, 0]);
            assert_eq!(who(&[2, 5], vec![], sized), [0, 1, 0, 1]);
            assert_eq!(who(&[5, 4], vec![2, 1], sized), [0, 0, 1, 0, 0, 1, 0]);
            assert_eq!(who(&[9, 3], vec![1, 2], sized), [0, 1, 1, 0, 1]);
        }
    }

    #[test]
    fn weights_are_respected_and_every_epoch_draws_anew() {
        let (mut stream, _) = stream(&[3000, 3000], ALL, Interleave::Weighted(vec![3.0, 1.0]), true);
        let first = rest(&mut stream, 0, 0);
        assert_eq!(first.len(), 6000, "until all are exhausted");
        let share = first[..3000].iter().filter(|(loader, ..)| *loader == 0).count();
        assert!((2140..2360).contains(&share), "{share} of 3000 for three quarters");
        assert_ne!(rest(&mut stream, 1, 0), first);
        assert_eq!(rest(&mut stream, 0, 0), first);
    }

    #[test]
    fn another_seed_draws_others() {
        let loaders = |seed| {
            let (TrainStream { loaders, .. }, _) = stream(&[50, 50], ALL, Interleave::RoundRobin, true);
            let mut stream = TrainStream::new(
                loaders,
                &[Some(50), Some(50)],
                Interleave::Weighted(vec![1.0; 2]),
                true,
                seed,
                Arc::default(),
            )
            .expect("the interleave fit");
            rest(&mut stream, 0, 0)
        };
        assert_ne!(loaders(1), loaders(2));
    }

    #[test]
    fn an_interleave_that_does_not_fit_the_loaders_is_refused() {
        let (TrainStream { loaders, .. }, _) = stream(&[1, 1], ALL, Interleave::RoundRobin, true);
        let refused = TrainStream::new(
            loaders,
            &[Some(1), Some(1)],
            Interleave::Weighted(vec![1.0]),
            true,
            0,
            Arc::default(),
        );
        assert_eq!(refused.err(), Some(InterleaveError::Count { key: "weights", given: 1, loaders: 2 }),);
    }

    proptest! {
        #[test]
        fn seeking_to_any_position_gives_the_rest_of_the_epoch(
            batches in proptest::collection::vec(0u64..9, 1..4),
            kind in 0..KINDS,
            sized: bool,
            limit in prop_oneof![Just(ALL), 0u64..6],
            epoch in 0u64..3,
        ) {
            let (mut stream, calls) = stream(&batches, limit, interleave(kind, batches.len()), sized);
            let whole = rest(&mut stream, epoch, 0);
            if sized {
                prop_assert_eq!(stream.length(), Some(whole.len() as u64));
            }
            prop_assert!(whole.iter().rev().skip(1).all(|(.., is_last)| !is_last));
            let foreseen = stream.length().is_none_or(|length| length == whole.len() as u64);
            prop_assert!(whole.last().is_none_or(|(.., is_last)| *is_last == foreseen));
            for from in 0..=whole.len() {
                calls.set(0);
                let after = rest(&mut stream, epoch, from as u64);
                prop_assert_eq!(&after, &whole[from..], "from {}", from);
                if sized {
                    prop_assert_eq!(calls.get(), after.len() as u64, "no batch is fetched to be dropped");
                }
            }
        }
    }
}
