//! The stream of training batches: several loaders taken in turn, limited, and knowing its end.

use tenterhook_core::BoxError;

use crate::data::{Loaders, Turns};

/// A batch, and where it came from.
pub(crate) struct Fetched<B> {
    pub(crate) batch: B,
    pub(crate) loader: usize,
    /// It is known that none follows.
    pub(crate) is_last: bool,
}

struct Source {
    /// How many batches of an epoch to take; `None` is until it ends.
    limit: Option<u64>,
    served: u64,
    ended: bool,
}

pub(crate) struct Feed<B> {
    loaders: Loaders<B>,
    sources: Vec<Source>,
    turns: Turns,
    turn: usize,
    shuffled: bool,
    served: u64,
    /// Without a known length, one batch is fetched ahead to know which is the last.
    ahead: Option<(B, usize)>,
}

impl<B> Feed<B> {
    /// `limits`: how many batches of each loader to take, `None` where its length is unknown.
    pub(crate) fn new(
        loaders: Loaders<B>,
        limits: Vec<Option<u64>>,
        turns: Turns,
        shuffled: bool,
    ) -> Feed<B> {
        let sources = limits.into_iter().map(|limit| Source { limit, served: 0, ended: false }).collect();
        Feed { loaders, sources, turns, turn: 0, shuffled, served: 0, ahead: None }
    }

    /// How many batches an epoch has, where that is known.
    pub(crate) fn length(&self) -> Option<u64> {
        self.sources.iter().map(|source| source.limit).sum()
    }

    /// The name of a loader.
    pub(crate) fn name(&self, loader: usize) -> &str {
        self.loaders.get(loader).map_or("", |loader| loader.name())
    }

    /// Goes to a batch of an epoch. The first ones are drawn and dropped: with several loaders in
    /// turn, only that says which of them came from where.
    pub(crate) fn begin(&mut self, epoch: u64, batch: u64) -> Result<(), BoxError> {
        for (loader, source) in self.loaders.iter_mut().zip(&mut self.sources) {
            loader.seek(epoch, 0, self.shuffled)?;
            (source.served, source.ended) = (0, false);
        }
        (self.turn, self.served, self.ahead) = (0, 0, None);
        if self.length().is_none() {
            self.ahead = self.draw()?;
        }
        for _ in 0..batch {
            self.next()?;
        }
        Ok(())
    }

    /// The next batch.
    pub(crate) fn next(&mut self) -> Result<Option<Fetched<B>>, BoxError> {
        let length = self.length();
        let drawn = if length.is_some() { self.draw()? } else { self.ahead.take() };
        let Some((batch, loader)) = drawn else { return Ok(None) };
        self.served += 1;
        let is_last = if let Some(length) = length {
            self.served == length
        } else {
            self.ahead = self.draw()?;
            self.ahead.is_none()
        };
        Ok(Some(Fetched { batch, loader, is_last }))
    }

    fn draw(&mut self) -> Result<Option<(B, usize)>, BoxError> {
        for _ in 0..self.loaders.len() {
            let at = self.turn;
            let source = &mut self.sources[at];
            let spent = source.ended || source.limit.is_some_and(|limit| source.served >= limit);
            let batch = if spent { None } else { self.loaders[at].next()? };
            if let Some(batch) = batch {
                source.served += 1;
                if self.turns == Turns::RoundRobin {
                    self.turn = (at + 1) % self.loaders.len();
                }
                return Ok(Some((batch, at)));
            }
            source.ended = true;
            self.turn = (at + 1) % self.loaders.len();
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Loader;

    struct Count {
        name: &'static str,
        sized: bool,
        batches: u64,
        next: u64,
    }

    impl Loader<u64> for Count {
        fn name(&self) -> &str {
            self.name
        }
        fn batches(&self) -> Option<u64> {
            self.sized.then_some(self.batches)
        }
        fn seek(&mut self, _: u64, batch: u64, _: bool) -> Result<(), BoxError> {
            self.next = batch;
            Ok(())
        }
        fn next(&mut self) -> Result<Option<u64>, BoxError> {
            self.next += 1;
            Ok((self.next <= self.batches).then_some(self.next - 1))
        }
    }

    fn served(
        loaders: &[(&'static str, u64)],
        limits: Vec<Option<u64>>,
        turns: Turns,
    ) -> Vec<(usize, u64, bool)> {
        let sized = limits.iter().all(Option::is_some);
        let loaders: Loaders<u64> = loaders
            .iter()
            .map(|(name, batches)| {
                Box::new(Count { name, sized, batches: *batches, next: 0 }) as Box<dyn Loader<u64>>
            })
            .collect();
        let mut feed = Feed::new(loaders, limits, turns, true);
        feed.begin(0, 0).expect("it begins");
        let mut all = Vec::new();
        while let Some(fetched) = feed.next().expect("it yields") {
            all.push((fetched.loader, fetched.batch, fetched.is_last));
        }
        all
    }

    #[test]
    fn the_last_batch_is_known_with_and_without_a_length() {
        let expected = [(0, 0, false), (0, 1, true)];
        assert_eq!(served(&[("a", 2)], vec![Some(2)], Turns::RoundRobin), expected);
        assert_eq!(served(&[("a", 2)], vec![None], Turns::RoundRobin), expected);
    }

    #[test]
    fn several_loaders_take_turns_until_all_are_spent() {
        let loaders = [("a", 3), ("b", 1)];
        let round = [(0, 0, false), (1, 0, false), (0, 1, false), (0, 2, true)];
        assert_eq!(served(&loaders, vec![Some(3), Some(1)], Turns::RoundRobin), round);
        assert_eq!(served(&loaders, vec![None, None], Turns::RoundRobin), round);
        let in_sequence = [(0, 0, false), (0, 1, false), (0, 2, false), (1, 0, true)];
        assert_eq!(served(&loaders, vec![Some(3), Some(1)], Turns::Sequential), in_sequence);
    }

    #[test]
    fn a_limit_cuts_each_loader() {
        let loaders = [("a", 5), ("b", 5)];
        let cut = [(0, 0, false), (1, 0, false), (0, 1, true)];
        assert_eq!(served(&loaders, vec![Some(2), Some(1)], Turns::RoundRobin), cut);
    }
}
