//! Selects the loader of the next batch. It only counts, so it reaches any position without loading.

use tenterhook_core::random::seed_at;

use super::Interleave;

/// Domain separator of the random draws.
const PURPOSE: u64 = 0x5c;

/// The sequence of loaders of an epoch, and the position in it.
#[derive(Clone, Debug)]
pub(crate) struct Interleaver {
    mode: Interleave,
    seed: u64,
    sources: Vec<Source>,
    /// The loader whose turn it is.
    turn: usize,
    /// Batches taken in this turn.
    in_turn: u64,
    /// Batches taken in this epoch.
    position: u64,
    epoch_seed: u64,
}

#[derive(Clone, Debug)]
struct Source {
    /// The number of batches to take per epoch; `None` is all.
    limit: Option<u64>,
    taken: u64,
    ended: bool,
}

impl Source {
    fn is_exhausted(&self) -> bool {
        self.ended || self.limit.is_some_and(|limit| self.taken >= limit)
    }
}

impl Interleaver {
    pub(crate) fn new(mode: Interleave, limits: &[Option<u64>], seed: u64) -> Interleaver {
        let sources = limits.iter().map(|limit| Source { limit: *limit, taken: 0, ended: false }).collect();
        let mut interleaver =
            Interleaver { mode, seed, sources, turn: 0, in_turn: 0, position: 0, epoch_seed: 0 };
        interleaver.begin(0);
        interleaver
    }

    /// Goes to the start of an epoch.
    pub(crate) fn begin(&mut self, epoch: u64) {
        for source in &mut self.sources {
            (source.taken, source.ended) = (0, false);
        }
        (self.turn, self.in_turn, self.position) = (0, 0, 0);
        self.epoch_seed = seed_at(self.seed, PURPOSE, epoch);
    }

    /// Skips this number of batches. Loaders of unknown length are assumed not to end.
    pub(crate) fn advance(&mut self, batches: u64) {
        for _ in 0..batches {
            let Some(next) = self.next() else { break };
            self.took(next);
        }
    }

    /// The number of batches taken of each loader.
    pub(crate) fn taken(&self) -> impl Iterator<Item = u64> {
        self.sources.iter().map(|source| source.taken)
    }

    /// The number of batches taken in this epoch.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// The number of batches of an epoch, if known.
    pub(crate) fn length(&self) -> Option<u64> {
        let limits: Vec<u64> = self.sources.iter().map(|source| source.limit).collect::<Option<_>>()?;
        let Interleave::Alternating(_) = self.mode else { return Some(limits.iter().sum()) };
        // Whole rounds of the pattern, then up to the loader that cannot fill its turn.
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

    /// The next loader; `None` at the end of the epoch.
    pub(crate) fn next(&self) -> Option<usize> {
        match &self.mode {
            Interleave::RoundRobin | Interleave::Sequential => {
                let count = self.sources.len();
                (0..count)
                    .map(|ahead| (self.turn + ahead) % count)
                    .find(|at| !self.sources[*at].is_exhausted())
            }
            Interleave::Weighted(weights) => self.drawn(weights),
            Interleave::Alternating(_) => {
                self.sources.get(self.turn).is_some_and(|source| !source.is_exhausted()).then_some(self.turn)
            }
        }
    }

    /// Counts a batch of this loader.
    pub(crate) fn took(&mut self, loader: usize) {
        self.sources[loader].taken += 1;
        self.position += 1;
        self.in_turn += 1;
        self.turn = loader;
        let turn_is_over = match self.mode {
            Interleave::RoundRobin => true,
            Interleave::Alternating(_) => self.in_turn >= self.per_turn(loader),
            Interleave::Sequential | Interleave::Weighted(_) => false,
        };
        if turn_is_over {
            (self.turn, self.in_turn) = ((loader + 1) % self.sources.len(), 0);
        }
    }

    /// Marks this loader as exhausted.
    pub(crate) fn ended(&mut self, loader: usize) {
        self.sources[loader].ended = true;
    }

    fn per_turn(&self, loader: usize) -> u64 {
        match &self.mode {
            Interleave::Alternating(pattern) => pattern.get(loader).copied().unwrap_or(1).max(1),
            _ => 1,
        }
    }

    fn drawn(&self, weights: &[f64]) -> Option<usize> {
        let weight = |at: usize| weights.get(at).copied().unwrap_or(1.0);
        let open: Vec<usize> =
            (0..self.sources.len()).filter(|at| !self.sources[*at].is_exhausted()).collect();
        // If a loader has ended at this position, the draw is repeated with a new seed; otherwise its
        // neighbours would be favoured.
        let ended = self.sources.iter().filter(|source| source.ended).count() as u64;
        let uniform = (seed_at(seed_at(self.epoch_seed, PURPOSE, self.position), ended, 1) >> 11) as f64
            / (1u64 << 53) as f64;
        let mut left = uniform * open.iter().map(|at| weight(*at)).sum::<f64>();
        let found = open.iter().find(|at| {
            left -= weight(**at);
            left < 0.0
        });
        // Rounding may leave a remainder after the last.
        found.or(open.last()).copied()
    }
}
