//! Whose turn it is: arithmetic only, so that a position is found without loading anything.

use tenterhook_core::random::seed_at;

use super::Turns;

/// What separates the draws from others made of the run's seed.
const PURPOSE: u64 = 0x5c;

/// Where the loaders of an epoch stand, and who is next.
#[derive(Clone, Debug)]
pub(crate) struct Rota {
    turns: Turns,
    seed: u64,
    sources: Vec<Source>,
    turn: usize,
    /// Batches taken in this turn.
    in_turn: u64,
    /// Batches taken in this epoch.
    position: u64,
    of_epoch: u64,
}

#[derive(Clone, Debug)]
struct Source {
    /// How many batches of an epoch to take; `None` is until it ends.
    limit: Option<u64>,
    taken: u64,
    ended: bool,
}

impl Source {
    fn is_spent(&self) -> bool {
        self.ended || self.limit.is_some_and(|limit| self.taken >= limit)
    }
}

impl Rota {
    pub(crate) fn new(turns: Turns, limits: &[Option<u64>], seed: u64) -> Rota {
        let sources = limits.iter().map(|limit| Source { limit: *limit, taken: 0, ended: false }).collect();
        let mut rota = Rota { turns, seed, sources, turn: 0, in_turn: 0, position: 0, of_epoch: 0 };
        rota.begin(0);
        rota
    }

    /// Goes to the beginning of an epoch.
    pub(crate) fn begin(&mut self, epoch: u64) {
        for source in &mut self.sources {
            (source.taken, source.ended) = (0, false);
        }
        (self.turn, self.in_turn, self.position) = (0, 0, 0);
        self.of_epoch = seed_at(self.seed, PURPOSE, epoch);
    }

    /// Goes on by so many batches, as if they had been taken. What has no known length is taken not to end.
    pub(crate) fn advance(&mut self, batches: u64) {
        for _ in 0..batches {
            let Some(next) = self.next() else { break };
            self.took(next);
        }
    }

    /// How many batches of each loader have been taken.
    pub(crate) fn taken(&self) -> impl Iterator<Item = u64> {
        self.sources.iter().map(|source| source.taken)
    }

    /// How many batches have been taken.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// How many batches an epoch has, where that is known.
    pub(crate) fn length(&self) -> Option<u64> {
        let limits: Vec<u64> = self.sources.iter().map(|source| source.limit).collect::<Option<_>>()?;
        let Turns::Alternating(_) = self.turns else { return Some(limits.iter().sum()) };
        // So many times the whole pattern, and then up to whoever cannot fill a turn.
        let rounds =
            limits.iter().enumerate().map(|(at, limit)| limit / self.per_turn(at)).min().unwrap_or(0);
        let mut length = 0;
        let mut broken = false;
        for (at, limit) in limits.iter().enumerate() {
            let rest = limit - rounds * self.per_turn(at);
            length += rounds * self.per_turn(at);
            if !broken {
                length += rest.min(self.per_turn(at));
                broken = rest < self.per_turn(at);
            }
        }
        Some(length)
    }

    /// Who is next; `None` when the epoch is over.
    pub(crate) fn next(&self) -> Option<usize> {
        match &self.turns {
            Turns::RoundRobin | Turns::Sequential => {
                let count = self.sources.len();
                (0..count).map(|ahead| (self.turn + ahead) % count).find(|at| !self.sources[*at].is_spent())
            }
            Turns::Weighted(weights) => self.drawn(weights),
            Turns::Alternating(_) => {
                self.sources.get(self.turn).is_some_and(|source| !source.is_spent()).then_some(self.turn)
            }
        }
    }

    /// A batch of this loader was taken.
    pub(crate) fn took(&mut self, loader: usize) {
        self.sources[loader].taken += 1;
        self.position += 1;
        self.in_turn += 1;
        self.turn = loader;
        let turn_is_over = match self.turns {
            Turns::RoundRobin => true,
            Turns::Alternating(_) => self.in_turn >= self.per_turn(loader),
            Turns::Sequential | Turns::Weighted(_) => false,
        };
        if turn_is_over {
            (self.turn, self.in_turn) = ((loader + 1) % self.sources.len(), 0);
        }
    }

    /// This loader turned out to have no more.
    pub(crate) fn ended(&mut self, loader: usize) {
        self.sources[loader].ended = true;
    }

    fn per_turn(&self, loader: usize) -> u64 {
        match &self.turns {
            Turns::Alternating(pattern) => pattern.get(loader).copied().unwrap_or(1).max(1),
            _ => 1,
        }
    }

    fn drawn(&self, weights: &[f64]) -> Option<usize> {
        let weight = |at: usize| weights.get(at).copied().unwrap_or(1.0);
        let open: Vec<usize> = (0..self.sources.len()).filter(|at| !self.sources[*at].is_spent()).collect();
        // When one turns out to have ended, the next draw must be a new one, or it would favour neighbours.
        let ended = self.sources.iter().filter(|source| source.ended).count() as u64;
        let uniform = (seed_at(seed_at(self.of_epoch, PURPOSE, self.position), ended, 1) >> 11) as f64
            / (1u64 << 53) as f64;
        let mut left = uniform * open.iter().map(|at| weight(*at)).sum::<f64>();
        let found = open.iter().find(|at| {
            left -= weight(**at);
            left < 0.0
        });
        // Rounding may leave a little behind the last.
        found.or(open.last()).copied()
    }
}
