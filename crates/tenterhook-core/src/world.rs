//! The rank of a process in a distributed run.

use serde::{Deserialize, Serialize};

use crate::spec::Ranks;

/// The rank of a process in a distributed run, and the number of processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct World {
    /// The rank of this process, from 0. Rank 0 owns the run directory.
    pub rank: usize,
    /// The number of processes.
    pub size: usize,
    /// The rank of this process on its machine, from 0.
    pub local_rank: usize,
    /// The number of processes on its machine.
    pub local_size: usize,
}

impl World {
    /// A run of one process.
    pub const SOLO: World = World { rank: 0, size: 1, local_rank: 0, local_size: 1 };

    /// The rank in a run of `size` processes on one machine.
    #[must_use]
    pub fn new(rank: usize, size: usize) -> World {
        World { rank, size, local_rank: rank, local_size: size }
    }

    /// Sets the rank and the number of processes on the machine.
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
    /// Whether these ranks include the rank of a process.
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
