//! Threads that load ahead and deliver in order.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;

use tenterhook_core::{BoxError, backtraces};

use super::Waited;
use super::waited::SLICE;

/// What a worker does: loads the batch of this number, and gives up early when told to stop.
pub(super) type Job<B> = dyn Fn(u64, &dyn Fn() -> bool) -> Result<B, BoxError> + Send + Sync;

/// Batches are claimed in order, loaded by whoever claimed them, and taken in order: how many threads
/// there are changes nothing but the time it takes.
pub(super) struct Workers<B> {
    desk: Arc<Desk<B>>,
}

struct Desk<B> {
    state: Mutex<State<B>>,
    /// A batch has come, or there is room for another.
    changed: Condvar,
    stopped: AtomicBool,
}

struct State<B> {
    /// The next batch nobody loads yet.
    unclaimed: u64,
    /// The next batch to deliver.
    wanted: u64,
    end: u64,
    /// How far ahead of `wanted` to load.
    ahead: u64,
    loaded: BTreeMap<u64, Result<B, BoxError>>,
}

impl<B> Desk<B> {
    /// No code of users runs under the lock, so it is whole even if a thread should have died with it.
    fn state(&self) -> MutexGuard<'_, State<B>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next batch to load, as soon as there is room for it; `None` when there is nothing left to do.
    fn claim(&self) -> Option<u64> {
        let full = |state: &mut State<B>| {
            !self.stopped.load(Ordering::SeqCst)
                && state.unclaimed < state.end
                && state.unclaimed >= state.wanted.saturating_add(state.ahead)
        };
        let state = self.changed.wait_while(self.state(), full);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        if self.stopped.load(Ordering::SeqCst) || state.unclaimed >= state.end {
            return None;
        }
        state.unclaimed += 1;
        Some(state.unclaimed - 1)
    }
}

impl<B: Send + 'static> Workers<B> {
    /// Starts on the batches from `first` up to, not including, `end`.
    pub(super) fn start(
        name: &str,
        threads: usize,
        ahead: u64,
        (first, end): (u64, u64),
        job: &Arc<Job<B>>,
    ) -> Result<Workers<B>, BoxError> {
        let state =
            State { unclaimed: first, wanted: first, end, ahead: ahead.max(1), loaded: BTreeMap::new() };
        let desk =
            Desk { state: Mutex::new(state), changed: Condvar::new(), stopped: AtomicBool::new(false) };
        let workers = Workers { desk: Arc::new(desk) };
        // More threads than batches that may be ahead would only wait.
        let useful = usize::try_from(ahead.max(1).min(end.saturating_sub(first))).unwrap_or(usize::MAX);
        for number in 0..threads.clamp(1, useful.max(1)) {
            let (desk, job) = (workers.desk.clone(), job.clone());
            let keep = backtraces::inherit();
            let work = move || {
                let _keeping = keep();
                while let Some(batch) = desk.claim() {
                    let loaded = job(batch, &|| desk.stopped.load(Ordering::Relaxed));
                    desk.state().loaded.insert(batch, loaded);
                    desk.changed.notify_all();
                }
            };
            let thread = Builder::new().name(format!("{name}-{number}")).spawn(work);
            thread.map_err(|error| format!("cannot start a worker thread: {error}"))?;
        }
        Ok(workers)
    }

    /// The next batch in order, unless the waiting for it is given up.
    pub(super) fn next(&mut self, given_up: &dyn Fn() -> bool) -> Result<Waited<B>, BoxError> {
        let mut state = self.desk.state();
        let wanted = state.wanted;
        if wanted >= state.end {
            return Ok(Waited::Ended);
        }
        let loaded = loop {
            if let Some(loaded) = state.loaded.remove(&wanted) {
                break loaded;
            }
            if given_up() {
                return Ok(Waited::GaveUp);
            }
            let woken = self.desk.changed.wait_timeout(state, SLICE);
            (state, _) = woken.unwrap_or_else(PoisonError::into_inner);
        };
        state.wanted += 1;
        drop(state);
        self.desk.changed.notify_all();
        loaded.map(Waited::Batch)
    }
}

impl<B> Drop for Workers<B> {
    fn drop(&mut self) {
        // Under the lock, so that nobody reads the flag and then sleeps through the news.
        let state = self.desk.state();
        self.desk.stopped.store(true, Ordering::SeqCst);
        drop(state);
        // Nobody waits for the threads: each ends by itself when the sample comes that it is at, which may be never.
        self.desk.changed.notify_all();
    }
}
