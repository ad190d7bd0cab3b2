//! Which process of a distributed run this is.

use serde::{Deserialize, Serialize};

use crate::spec::Ranks;

/// Which process of a distributed run this is, and of how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct World {
    /// The number of this process, from 0. Rank 0 owns the run directory.
    pub rank: usize,
    /// How many processes there are.
    pub size: usize,
    /// The number of this process among those of its machine, from 0.
    pub local_rank: usize,
    /// How many processes its machine has.
    pub local_size: usize,
}

impl World {
    /// A run of one process.
    pub const SOLO: World = World { rank: 0, size: 1, local_rank: 0, local_size: 1 };

    /// This rank of so many, all of them on one machine.
    #[must_use]
    pub fn new(rank: usize, size: usize) -> World {
        World { rank, size, local_rank: rank, local_size: size }
    }

    /// The same on a machine that has `local_size` of the processes.
    #[must_use]
    pub fn on_machine(self, local_rank: usize, local_size: usize) -> World {
        World { local_rank, local_size, ..self }
    }

    /// Whether it is rank 0.
    #[inline]
    #[must_use]
    pub fn is_main(&self) -> bool {
        self.rank == 0
    }

    /// Whether there is more than one process.
    #[inline]
    #[must_use]
    pub fn is_distributed(&self) -> bool {
        self.size > 1
    }
}

impl Default for World {
    fn default() -> World {
        World::SOLO
    }
}

impl Ranks {
    /// Whether a hook of these ranks runs on this one.
    #[inline]
    #[must_use]
    pub fn include(self, world: World) -> bool {
        match self {
            Ranks::All => true,
            Ranks::Main => world.is_main(),
            Ranks::LocalMain => world.local_rank == 0,
        }
    }
}
