//! Several ranks of a distributed run as threads of one process.
//!
//! ```
//! use tenterhook::toy::{Toy, ToyData};
//! use tenterhook::{Settings, Trainer};
//! use tenterhook_testkit::ranks::on_threads;
//!
//! let settings = || Settings { max_epochs: Some(2), ..Settings::default() };
//! let weights = on_threads(2, |rank| {
//!     let mut toy = Toy::default();
//!     let mut trainer = Trainer::new(settings()).unwrap().with_notices(|_| {}).with_strategy(rank);
//!     trainer.fit(&mut toy, &mut ToyData::default()).unwrap();
//!     toy.param("weight").to_vec()
//! });
//! assert_eq!(weights[0], weights[1]);
//! ```

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenterhook::strategy::RankError;
use tenterhook::{BoxError, Strategy, World};

/// The default timeout of a collective.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Runs a function on `size` threads in parallel, each with the strategy of its rank, and returns the results
/// by rank.
///
/// # Panics
/// If one of the threads panics.
pub fn on_threads<T: Send>(size: usize, run: impl Fn(ThreadRank) -> T + Sync) -> Vec<T> {
    let rendezvous = Arc::new(Rendezvous::default());
    let ranks = (0..size).map(|rank| ThreadRank::new(World::new(rank, size), &rendezvous));
    let ranks: Vec<_> = ranks.collect();
    std::thread::scope(|scope| {
        let threads: Vec<_> = ranks.into_iter().map(|rank| scope.spawn(|| run(rank))).collect();
        let ended: Vec<_> = threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        let result =
            |ended: std::thread::Result<T>| ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        ended.into_iter().map(result).collect()
    })
}

/// A strategy whose ranks are threads of one process. Values are summed as a tree over neighbouring ranks, so the sum does not
/// depend on the order in which the ranks arrive.
pub struct ThreadRank {
    world: World,
    rendezvous: Arc<Rendezvous>,
    timeout: Duration,
}

/// The shared state through which the ranks exchange messages.
#[derive(Default)]
struct Rendezvous {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The call site and the message of each rank that has arrived.
    arrived: Vec<Option<(String, Vec<u8>)>>,
    /// The number of completed collectives.
    done: u64,
    /// The messages of the last collective, by rank.
    messages: Arc<Vec<Vec<u8>>>,
    /// The error of all further collectives.
    failed: Option<RankError>,
}

impl ThreadRank {
    fn new(world: World, rendezvous: &Arc<Rendezvous>) -> ThreadRank {
        ThreadRank { world, rendezvous: rendezvous.clone(), timeout: TIMEOUT }
    }

    /// Groups the ranks into simulated machines with this many ranks each.
    #[must_use]
    pub fn with_ranks_per_machine(mut self, ranks: usize) -> ThreadRank {
        self.world = self.world.on_machine(self.world.rank % ranks, ranks);
        self
    }

    /// Sets how long a collective waits for the other ranks.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> ThreadRank {
        self.timeout = timeout;
        self
    }

    /// Sends a message to all ranks, and waits for those of the others.
    fn exchange(&self, site: String, message: Vec<u8>) -> Result<Arc<Vec<Vec<u8>>>, RankError> {
        let World { rank, size, .. } = self.world;
        let mut state = self.rendezvous.state();
        if let Some(failed) = &state.failed {
            return Err(failed.clone());
        }
        state.arrived.resize(size, None);
        state.arrived[rank] = Some((site.clone(), message));
        let this = state.done;
        if state.arrived.iter().all(Option::is_some) {
            state.close();
            self.rendezvous.changed.notify_all();
        }
        while state.done == this && state.failed.is_none() {
            let (next, waited) = self
                .rendezvous
                .changed
                .wait_timeout(state, self.timeout)
                .unwrap_or_else(PoisonError::into_inner);
            state = next;
            if waited.timed_out() && state.done == this && state.failed.is_none() {
                let missing = state.arrived.iter().position(Option::is_none).unwrap_or_default();
                let seconds = self.timeout.as_secs();
                state.failed = Some(RankError::Missing { rank: missing, site: site.clone(), seconds });
                self.rendezvous.changed.notify_all();
            }
        }
        if state.done == this {
            return Err(state.failed.clone().unwrap_or(RankError::Missing { rank, site, seconds: 0 }));
        }
        Ok(state.messages.clone())
    }

    fn sum<T: Copy + std::ops::Add<Output = T>, const N: usize>(
        &self,
        site: String,
        values: &mut [T],
        write: fn(T) -> [u8; N],
        read: fn([u8; N]) -> T,
    ) -> Result<(), BoxError> {
        let message = values.iter().flat_map(|value| write(*value)).collect();
        let messages = self.exchange(site, message)?;
        let numbers = |message: &Vec<u8>| -> Vec<T> {
            message.as_chunks::<N>().0.iter().map(|bytes| read(*bytes)).collect()
        };
        let mut all: Vec<_> = messages.iter().map(numbers).collect();
        while all.len() > 1 {
            let add = |pair: &[Vec<T>]| match pair {
                [one, other] => one.iter().zip(other).map(|(one, other)| *one + *other).collect::<Vec<T>>(),
                one => one.concat(),
            };
            all = all.chunks(2).map(add).collect();
        }
        values.copy_from_slice(&all[0]);
        Ok(())
    }
}

impl State {
    /// Completes a collective when all ranks have arrived, or fails if they are at different call sites.
    fn close(&mut self) {
        let arrived: Vec<_> = self.arrived.iter_mut().filter_map(Option::take).collect();
        if let Some(other) = arrived.iter().position(|(site, _)| *site != arrived[0].0) {
            let at = |rank: usize| (rank, arrived[rank].0.clone());
            self.failed = Some(RankError::Apart { one: at(0), other: at(other) });
            return;
        }
        self.messages = Arc::new(arrived.into_iter().map(|(_, message)| message).collect());
        self.done += 1;
    }
}

impl Rendezvous {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, rank: usize, reason: &str) {
        let failed = RankError::Failed { rank, reason: reason.to_owned() };
        self.state().failed.get_or_insert(failed);
        self.changed.notify_all();
    }
}

impl Strategy for ThreadRank {
    fn world(&self) -> World {
        self.world
    }

    fn sum_f32(&mut self, site: &str, values: &mut [f32]) -> Result<(), BoxError> {
        let site = format!("{site}, {} numbers", values.len());
        self.sum(site, values, f32::to_le_bytes, f32::from_le_bytes)
    }

    fn sum_f64(&mut self, site: &str, values: &mut [f64]) -> Result<(), BoxError> {
        let site = format!("{site}, {} numbers", values.len());
        self.sum(site, values, f64::to_le_bytes, f64::from_le_bytes)
    }

    fn gather(&mut self, site: &str, message: Vec<u8>) -> Result<Vec<Vec<u8>>, BoxError> {
        Ok(self.exchange(site.to_owned(), message)?.to_vec())
    }

    fn broadcast(&mut self, site: &str, message: Vec<u8>) -> Result<Vec<u8>, BoxError> {
        let messages = self.exchange(site.to_owned(), message)?;
        Ok(messages.first().cloned().unwrap_or_default())
    }

    fn wait(&mut self, site: &str) -> Result<(), BoxError> {
        self.exchange(site.to_owned(), Vec::new())?;
        Ok(())
    }

    fn abort(&mut self, reason: &str) {
        self.rendezvous.fail(self.world.rank, reason);
    }
}

/// Fails the collectives of the other ranks, which would otherwise wait for this rank.
impl Drop for ThreadRank {
    fn drop(&mut self) {
        self.rendezvous.fail(self.world.rank, "it is gone");
    }
}
