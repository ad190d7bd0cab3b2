//! The stream of training batches: several loaders taken in turn, limited, and knowing its end.

use std::sync::Arc;

use tenterhook_core::BoxError;

use crate::data::rota::Rota;
use crate::data::{Loaders, Turns, TurnsError, Waited, of_loader};
use crate::stall::Desk;

/// A batch, and where it came from.
pub(crate) struct Fetched<B> {
    pub(crate) batch: B,
    pub(crate) loader: usize,
    /// It is known that none follows.
    pub(crate) is_last: bool,
}

pub(crate) struct Feed<B> {
    loaders: Loaders<B>,
    rota: Rota,
    shuffled: bool,
    length: Option<u64>,
    /// It follows from a position alone who gave how many of the batches before it.
    is_computable: bool,
    /// Without a known length, one batch is fetched ahead to know which is the last. A limit counts as a
    /// length, as in Lightning: a loader that ends before it does so unforeseen.
    ahead: Option<(B, usize)>,
    /// What comes before this is drawn and dropped.
    first: u64,
    /// Nothing was fetched ahead yet.
    is_fresh: bool,
    /// Where it notes for whom it waits.
    desk: Arc<Desk>,
}

impl<B> Feed<B> {
    /// `limits`: how many batches of each loader to take, `None` where its length is unknown.
    pub(crate) fn new(
        loaders: Loaders<B>,
        limits: &[Option<u64>],
        turns: Turns,
        shuffled: bool,
        seed: u64,
    ) -> Result<Feed<B>, TurnsError> {
        if !loaders.is_empty() {
            turns.check(loaders.len())?;
        }
        let is_computable = loaders.len() == 1 || loaders.iter().all(|loader| loader.batches().is_some());
        let rota = Rota::new(turns, limits, seed);
        let length = rota.length();
        let (ahead, first, is_fresh) = (None, 0, true);
        let desk = Arc::default();
        Ok(Feed { loaders, rota, shuffled, length, is_computable, ahead, first, is_fresh, desk })
    }

    /// The same, watched for loaders that keep it waiting.
    pub(crate) fn watched(self, desk: &Arc<Desk>) -> Feed<B> {
        Feed { desk: desk.clone(), ..self }
    }

    /// How many batches an epoch has, where that is known.
    pub(crate) fn length(&self) -> Option<u64> {
        self.length
    }

    /// The loaders that it takes batches from.
    pub(crate) fn loaders(&self) -> &Loaders<B> {
        &self.loaders
    }

    /// The name of a loader.
    pub(crate) fn name(&self, loader: usize) -> &str {
        self.loaders.get(loader).map_or("", |loader| loader.name())
    }

    /// Goes to a batch of an epoch. Who gave how many of the batches before it is worked out, so that each
    /// loader goes straight to its place. Only where several loaders do not know their length must the
    /// batches be drawn and dropped to learn who gave them, which happens when the first is asked for.
    pub(crate) fn begin(&mut self, epoch: u64, batch: u64) -> Result<(), BoxError> {
        self.rota.begin(epoch);
        self.rota.advance(if self.is_computable { batch } else { 0 });
        for (at, (loader, taken)) in self.loaders.iter_mut().zip(self.rota.taken()).enumerate() {
            let _waiting = self.desk.waits_for(at);
            let begun = loader.seek(epoch, taken, self.shuffled);
            begun.map_err(|error| of_loader(loader.name(), error))?;
        }
        (self.first, self.ahead, self.is_fresh) = (batch, None, true);
        Ok(())
    }

    /// The next batch, unless the waiting for it is given up, which loses nothing.
    pub(crate) fn next(&mut self, given_up: &dyn Fn() -> bool) -> Result<Waited<Fetched<B>>, BoxError> {
        while self.rota.position() < self.first {
            match self.draw(given_up)? {
                Waited::Batch(_) => {}
                Waited::Ended => return Ok(Waited::Ended),
                Waited::GaveUp => return Ok(Waited::GaveUp),
            }
        }
        if let Some(length) = self.length {
            let drawn = self.draw(given_up)?;
            let is_last = self.rota.position() == length;
            return Ok(drawn.map(|(batch, loader)| Fetched { batch, loader, is_last }));
        }
        if std::mem::take(&mut self.is_fresh) {
            match self.draw(given_up)? {
                Waited::Batch(drawn) => self.ahead = Some(drawn),
                Waited::Ended => {}
                Waited::GaveUp => {
                    self.is_fresh = true;
                    return Ok(Waited::GaveUp);
                }
            }
        }
        let Some((batch, loader)) = self.ahead.take() else { return Ok(Waited::Ended) };
        match self.draw(given_up)? {
            Waited::Batch(drawn) => self.ahead = Some(drawn),
            Waited::Ended => {}
            Waited::GaveUp => {
                self.ahead = Some((batch, loader));
                return Ok(Waited::GaveUp);
            }
        }
        Ok(Waited::Batch(Fetched { batch, loader, is_last: self.ahead.is_none() }))
    }

    fn draw(&mut self, given_up: &dyn Fn() -> bool) -> Result<Waited<(B, usize)>, BoxError> {
        while let Some(loader) = self.rota.next().filter(|next| *next < self.loaders.len()) {
            let waiting = self.desk.waits_for(loader);
            let from = &mut self.loaders[loader];
            let next = from.next_unless(given_up).map_err(|error| of_loader(from.name(), error));
            drop(waiting);
            match next? {
                Waited::Batch(batch) => {
                    self.rota.took(loader);
                    return Ok(Waited::Batch((batch, loader)));
                }
                Waited::Ended => self.rota.ended(loader),
                Waited::GaveUp => return Ok(Waited::GaveUp),
            }
        }
        Ok(Waited::Ended)
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

    fn turns(kind: usize, loaders: usize) -> Turns {
        match kind {
            0 => Turns::RoundRobin,
            1 => Turns::Sequential,
            2 => Turns::Weighted((0..loaders).map(|at| 1.0 + at as f64).collect()),
            3 => Turns::Alternating(Vec::new()),
            _ => Turns::Alternating((0..loaders).map(|at| 1 + (at as u64 + 1) % 3).collect()),
        }
    }

    /// Loaders that count calls of `next`, and their feed.
    fn feed(batches: &[u64], limit: u64, turns: Turns, sized: bool) -> (Feed<u64>, Rc<Cell<u64>>) {
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
        (Feed::new(loaders, &limits, turns, true, 11).expect("the turns fit"), calls)
    }

    type Served = (usize, u64, bool);

    fn rest(feed: &mut Feed<u64>, epoch: u64, from: u64) -> Vec<Served> {
        feed.begin(epoch, from).expect("it begins");
        let mut all = Vec::new();
        while let Waited::Batch(fetched) = feed.next(&|| false).expect("it yields") {
            all.push((fetched.loader, fetched.batch, fetched.is_last));
        }
        all
    }

    fn served(batches: &[u64], limit: u64, turns: Turns, sized: bool) -> Vec<Served> {
        rest(&mut feed(batches, limit, turns, sized).0, 0, 0)
    }

    const ALL: u64 = u64::MAX;

    #[test]
    fn the_last_batch_is_known_with_and_without_a_length() {
        let expected = [(0, 0, false), (0, 1, true)];
        for sized in [true, false] {
            assert_eq!(served(&[2], ALL, Turns::RoundRobin, sized), expected);
            assert_eq!(served(&[5], 2, Turns::RoundRobin, sized), expected);
        }
        let unforeseen = [(0, 0, false), (0, 1, false)];
        assert_eq!(served(&[2], 5, Turns::RoundRobin, false), unforeseen, "ended before its limit");
    }

    #[test]
    fn several_loaders_take_turns_until_all_are_spent() {
        for sized in [true, false] {
            let round = [(0, 0, false), (1, 0, false), (0, 1, false), (0, 2, true)];
            assert_eq!(served(&[3, 1], ALL, Turns::RoundRobin, sized), round);
            let in_sequence = [(0, 0, false), (0, 1, false), (0, 2, false), (1, 0, true)];
            assert_eq!(served(&[3, 1], ALL, Turns::Sequential, sized), in_sequence);
        }
    }

    #[test]
    fn a_limit_cuts_each_loader() {
        let cut = [(0, 0, false), (1, 0, false), (0, 1, true)];
        assert_eq!(served(&[5, 1], 2, Turns::RoundRobin, true), cut);
    }

    #[test]
    fn an_alternating_epoch_ends_with_the_first_that_cannot_fill_its_turn() {
        let who = |batches: &[u64], pattern: Vec<u64>, sized| {
            let served = served(batches, ALL, Turns::Alternating(pattern), sized);
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
    fn weights_are_kept_and_every_epoch_draws_anew() {
        let (mut feed, _) = feed(&[3000, 3000], ALL, Turns::Weighted(vec![3.0, 1.0]), true);
        let first = rest(&mut feed, 0, 0);
        assert_eq!(first.len(), 6000, "until all are spent");
        let share = first[..3000].iter().filter(|(loader, ..)| *loader == 0).count();
        assert!((2140..2360).contains(&share), "{share} of 3000 for three quarters");
        assert_ne!(rest(&mut feed, 1, 0), first);
        assert_eq!(rest(&mut feed, 0, 0), first);
    }

    #[test]
    fn another_seed_draws_others() {
        let loaders = |seed| {
            let (Feed { loaders, .. }, _) = feed(&[50, 50], ALL, Turns::RoundRobin, true);
            let mut feed =
                Feed::new(loaders, &[Some(50), Some(50)], Turns::Weighted(vec![1.0; 2]), true, seed)
                    .expect("the turns fit");
            rest(&mut feed, 0, 0)
        };
        assert_ne!(loaders(1), loaders(2));
    }

    #[test]
    fn turns_that_do_not_fit_the_loaders_are_refused() {
        let (Feed { loaders, .. }, _) = feed(&[1, 1], ALL, Turns::RoundRobin, true);
        let refused = Feed::new(loaders, &[Some(1), Some(1)], Turns::Weighted(vec![1.0]), true, 0);
        assert_eq!(refused.err(), Some(TurnsError::Count { key: "weights", given: 1, loaders: 2 }),);
    }

    proptest! {
        #[test]
        fn from_every_position_comes_the_rest_of_the_epoch(
            batches in proptest::collection::vec(0u64..9, 1..4),
            kind in 0..KINDS,
            sized: bool,
            limit in prop_oneof![Just(ALL), 0u64..6],
            epoch in 0u64..3,
        ) {
            let (mut feed, calls) = feed(&batches, limit, turns(kind, batches.len()), sized);
            let whole = rest(&mut feed, epoch, 0);
            if sized {
                prop_assert_eq!(feed.length(), Some(whole.len() as u64));
            }
            prop_assert!(whole.iter().rev().skip(1).all(|(.., is_last)| !is_last));
            let foreseen = feed.length().is_none_or(|length| length == whole.len() as u64);
            prop_assert!(whole.last().is_none_or(|(.., is_last)| *is_last == foreseen));
            for from in 0..=whole.len() {
                calls.set(0);
                let after = rest(&mut feed, epoch, from as u64);
                prop_assert_eq!(&after, &whole[from..], "from {}", from);
                if sized {
                    prop_assert_eq!(calls.get(), after.len() as u64, "nothing is drawn to be dropped");
                }
            }
        }
    }
}
