//! A worker that starts on first use, once per call of the trainer.

use std::sync::atomic::{AtomicBool, Ordering};

use tenterhook_core::{DeliveryStats, HookResult};

use super::{QueueOptions, Work, Worker};

/// A worker that is started on first use.
#[derive(Debug)]
pub struct LazyWorker<T> {
    worker: Option<Worker<T>>,
    /// The statistics of the worker that has finished in this call.
    finished: Option<DeliveryStats>,
}

impl<T> Default for LazyWorker<T> {
    fn default() -> LazyWorker<T> {
        LazyWorker { worker: None, finished: None }
    }
}

impl<T: Send + 'static> LazyWorker<T> {
    /// Whether the worker has been started.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.worker.is_some()
    }

    /// Returns the worker, and starts it with this name, queue and work if it is not running.
    pub fn get_or_start<W: Work<Item = T>>(
        &mut self,
        name: &str,
        options: QueueOptions,
        work: impl FnOnce() -> W,
    ) -> HookResult<&mut Worker<T>> {
        match &mut self.worker {
            Some(worker) => Ok(worker),
            none => Ok(none.insert(Worker::start(name, options, work())?)),
        }
    }

    /// Sends an item if the worker is running. Returns the worker's failures since the last call as an error.
    pub fn send(&mut self, item: T) -> HookResult {
        self.worker.as_mut().map_or(Ok(()), |worker| worker.send(item))
    }

    /// Returns the worker's failures since the last call of `send` or `check` as an error.
    pub fn check(&mut self) -> HookResult {
        self.worker.as_mut().map_or(Ok(()), Worker::check)
    }

    /// Like `check`, but only if `failed` is set. The worker sets it right before it returns an error.
    #[allow(dead_code)] // unused without the hooks that need the network
    pub(crate) fn check_flagged(&mut self, failed: &AtomicBool) -> HookResult {
        if !failed.load(Ordering::Acquire) {
            return Ok(());
        }
        failed.store(false, Ordering::Relaxed);
        let checked = self.check();
        if checked.is_ok() {
            // The worker has not returned the error yet.
            failed.store(true, Ordering::Release);
        }
        checked
    }

    /// Waits for the remaining items and ends the worker.
    pub fn finish(&mut self) -> HookResult {
        let Some(mut worker) = self.worker.take() else { return Ok(()) };
        let finished = worker.finish();
        self.finished = Some(worker.delivery_stats());
        finished
    }

    /// Resets the statistics of the last call; to be called in `setup`.
    pub fn begin_call(&mut self) {
        self.finished = None;
    }

    /// Statistics of the items sent in this call.
    #[must_use]
    pub fn delivery_stats(&self) -> Option<DeliveryStats> {
        self.worker.as_ref().map(Worker::delivery_stats).or(self.finished)
    }
}
