//! Worker threads that load batches ahead and deliver them in order.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;

use tenterhook_core::{BoxError, backtraces};

use super::Fetch;
use super::fetch::POLL;

/// Loads the batch with this number. Returns early when the second argument returns `true`.
pub(super) type Job<B> = dyn Fn(u64, &dyn Fn() -> bool) -> Result<B, BoxError> + Send + Sync;

/// The worker threads of an epoch. Batches are claimed and delivered in order, so the number of threads does
/// not change the result.
pub(super) struct Workers<B> {
    queue: Arc<BatchQueue<B>>,
}

struct BatchQueue<B> {
    state: Mutex<State<B>>,
    /// A batch was loaded, or there is room for another.
    changed: Condvar,
    stopped: AtomicBool,
}

struct State<B> {
    /// The next batch to load.
    unclaimed: u64,
    /// The next batch to deliver.
    wanted: u64,
    end: u64,
    /// The number of batches to load ahead.
    ahead: u64,
    loaded: BTreeMap<u64, Result<B, BoxError>>,
}

impl<B> BatchQueue<B> {
    /// No user code runs under the lock, so the state is consistent even after a panic.
    fn state(&self) -> MutexGuard<'_, State<B>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for room, and returns the next batch to load; `None` when there is none.
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
    /// Starts loading the batches from `first` up to, not including, `end`.
    pub(super) fn start(
        name: &str,
        threads: usize,
        ahead: u64,
        (first, end): (u64, u64),
        job: &Arc<Job<B>>,
    ) -> Result<Workers<B>, BoxError> {
        let state =
            State { unclaimed: first, wanted: first, end, ahead: ahead.max(1), loaded: BTreeMap::new() };
        let queue =
            BatchQueue { state: Mutex::new(state), changed: Condvar::new(), stopped: AtomicBool::new(false) };
        let workers = Workers { queue: Arc::new(queue) };
        // At most one thread per batch that may be loading.
        let useful = usize::try_from(ahead.max(1).min(end.saturating_sub(first))).unwrap_or(usize::MAX);
        for number in 0..threads.clamp(1, useful.max(1)) {
            let (queue, job) = (workers.queue.clone(), job.clone());
            let keep = backtraces::inherit();
            let work = move || {
                let _keeping = keep();
                while let Some(batch) = queue.claim() {
                    let loaded = job(batch, &|| queue.stopped.load(Ordering::Relaxed));
                    queue.state().loaded.insert(batch, loaded);
                    queue.changed.notify_all();
                }
            };
            let thread = Builder::new().name(format!("{name}-{number}")).spawn(work);
            thread.map_err(|error| format!("cannot start a worker thread: {error}"))?;
        }
        Ok(workers)
    }

    /// Waits for the next batch in order, until `cancelled` returns `true`.
    pub(super) fn next(&mut self, cancelled: &dyn Fn() -> bool) -> Result<Fetch<B>, BoxError> {
        let mut state = self.queue.state();
        let wanted = state.wanted;
        if wanted >= state.end {
            return Ok(Fetch::End);
        }
        let loaded = loop {
            if let Some(loaded) = state.loaded.remove(&wanted) {
                break loaded;
            }
            if cancelled() {
                return Ok(Fetch::Cancelled);
            }
            let woken = self.queue.changed.wait_timeout(state, POLL);
            (state, _) = woken.unwrap_or_else(PoisonError::into_inner);
        };
        state.wanted += 1;
        drop(state);
        self.queue.changed.notify_all();
        loaded.map(Fetch::Batch)
    }
}

impl<B> Drop for Workers<B> {
    fn drop(&mut self) {
        // Under the lock, so that no thread checks the flag and then misses the notification.
        let state = self.queue.state();
        self.queue.stopped.store(true, Ordering::SeqCst);
        drop(state);
        // The threads are not joined: each ends after its current sample, which may never arrive.
        self.queue.changed.notify_all();
    }
}
