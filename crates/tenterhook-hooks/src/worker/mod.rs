//! Worker threads for hooks: files, requests and commands stay off the training thread.
//!
//! A hook copies what it needs and sends it to its worker through a bounded queue. When the queue is full, the oldest item is
//! dropped or training waits, as `when_full` says. The next `send` returns an error of the worker, so it is a failure of
//! the hook, under the hook's policy. At the end of a call the hook waits for the remaining items, up to `flush_timeout`, and
//! reports lost ones.
//!
//! ```
//! use std::time::Duration;
//! use tenterhook_core::{HookResult, Observer, DeliveryStats, StepEnd, hook};
//! use tenterhook_hooks::worker::{LazyWorker, QueueOptions, Work, WorkerContext};
//!
//! /// Runs on the worker thread.
//! struct Sender;
//!
//! impl Work for Sender {
//!     type Item = f64;
//!     fn process(&mut self, loss: f64, _: &WorkerContext) -> HookResult {
//!         // Send it somewhere; this may take long.
//!         if loss.is_nan() { Err("there is no loss".into()) } else { Ok(()) }
//!     }
//! }
//!
//! #[derive(Default)]
//! struct Send {
//!     worker: LazyWorker<f64>,
//! }
//!
//! #[hook]
//! impl Observer for Send {
//!     fn on_step_end(&mut self, cx: &StepEnd) -> HookResult {
//!         let worker = self.worker.get_or_start("send", QueueOptions::default(), || Sender)?;
//!         worker.send(cx.loss.value())
//!     }
//!
//!     fn finish(&mut self) -> HookResult {
//!         self.worker.finish()
//!     }
//!
//!     fn delivery_stats(&self) -> Option<DeliveryStats> {
//!         self.worker.delivery_stats()
//!     }
//! }
//! ```

mod lazy;
mod queue;
mod thread;

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook_core::backtraces;
use tenterhook_core::{
    BoxError, DeliveryStats, EffectPermit, HookResult, OptionError, Phase, RunContext, TimeSpan,
};

use crate::support::checks;
pub use lazy::LazyWorker;
use queue::Queue;
pub use thread::WorkerContext;

/// The work of a worker thread.
pub trait Work: Send + 'static {
    /// The items that the hook sends.
    type Item: Send + 'static;

    /// Called once, before the first item. An error, or a panic, is a failure of the hook, and the worker continues.
    fn start(&mut self, _cx: &WorkerContext) -> HookResult {
        Ok(())
    }

    /// Processes one item. An error, or a panic, is a failure of the hook, and the worker continues with the next item.
    fn process(&mut self, item: Self::Item, cx: &WorkerContext) -> HookResult;

    /// Writes out buffered data. Called when the queue has become empty, and before the worker ends.
    fn flush(&mut self, _cx: &WorkerContext) -> HookResult {
        Ok(())
    }

    /// How often [`on_tick`](Work::on_tick) is called; `None` means never. Called once.
    fn tick_interval(&self) -> Option<Duration> {
        None
    }

    /// Called at every [`tick_interval`](Work::tick_interval), whether or not items were sent.
    fn on_tick(&mut self, _cx: &WorkerContext) -> HookResult {
        Ok(())
    }
}

/// What happens when a worker's queue is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WhenFull {
    /// The oldest item in the queue is dropped and counted.
    #[default]
    DropOldest,
    /// Training waits until there is room.
    Block,
}

/// The options of a worker's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueOptions {
    /// The maximum number of waiting items; 0 counts as 1.
    pub capacity: usize,
    /// What happens when the queue is full.
    pub when_full: WhenFull,
    /// How long the end of a call waits for the remaining items.
    pub flush_timeout: Duration,
}

impl Default for QueueOptions {
    fn default() -> QueueOptions {
        QueueOptions {
            capacity: 1000,
            when_full: WhenFull::DropOldest,
            flush_timeout: Duration::from_secs(10),
        }
    }
}

impl QueueOptions {
    /// The options `queue_size`, `when_full` and `flush_timeout` of a hook, checked.
    pub(crate) fn checked(
        queue_size: usize,
        when_full: WhenFull,
        flush_timeout: TimeSpan,
    ) -> Result<QueueOptions, OptionError> {
        checks::one_or_more("queue_size", queue_size as u64)?;
        checks::above_zero("flush_timeout", flush_timeout)?;
        Ok(QueueOptions { capacity: queue_size, when_full, flush_timeout: flush_timeout.0 })
    }
}

/// The permission for effects outside of the run directory: dry runs and sanity checks have none.
pub(crate) fn outside(cx: &RunContext<'_>) -> Option<EffectPermit> {
    cx.run.effect_permit().filter(|_| cx.phase != Phase::SanityCheck)
}

/// A hook's handle on its worker thread. Dropping it [finishes](Worker::finish) the worker.
#[derive(Debug)]
pub struct Worker<T> {
    queue: Arc<Queue<T>>,
    thread: Option<JoinHandle<()>>,
    options: QueueOptions,
    sent: u64,
    waited: Duration,
    flushed: Duration,
}

impl<T: Send + 'static> Worker<T> {
    /// Starts a thread of this name for the work.
    pub fn start(name: &str, options: QueueOptions, work: impl Work<Item = T>) -> HookResult<Worker<T>> {
        let options = QueueOptions { capacity: options.capacity.max(1), ..options };
        let queue = Arc::new(Queue::default());
        let of_thread = Arc::clone(&queue);
        let builder = std::thread::Builder::new().name(name.to_owned());
        let keep = backtraces::inherit();
        #[cfg(test)]
        let work = tests::Gated::new(work);
        let work = move || {
            let _keeping = keep();
            thread::run(&of_thread, work);
        };
        let thread =
            builder.spawn(work).map_err(|error| format!("no thread can be started for `{name}`: {error}"))?;
        let zero = Duration::ZERO;
        Ok(Worker { queue, thread: Some(thread), options, sent: 0, waited: zero, flushed: zero })
    }

    /// Sends an item. Returns the worker's failures since the last call as an error; the item is queued in any case.
    pub fn send(&mut self, item: T) -> HookResult {
        self.sent += 1;
        let mut state = self.queue.lock();
        if state.items.len() >= self.options.capacity {
            match self.options.when_full {
                WhenFull::DropOldest => {
                    state.items.pop_front();
                    state.dropped += 1;
                }
                WhenFull::Block => {
                    let began = Instant::now();
                    state = self.queue.wait_for_room(state, self.options.capacity);
                    self.waited += began.elapsed();
                }
            }
        }
        state.items.push_back(item);
        let failures = state.failures.take();
        drop(state);
        self.queue.wake_worker();
        failures.map_or(Ok(()), |failures| Err(failures.into_error()))
    }

    /// Returns the worker's failures since the last call of `send` or `check` as an error.
    pub fn check(&mut self) -> HookResult {
        self.queue.lock().failures.take().map_or(Ok(()), |failures| Err(failures.into_error()))
    }

    /// Waits until all items are processed, up to `flush_timeout`, and ends the thread. The error reports failures and lost
    /// items. A second call does nothing.
    pub fn finish(&mut self) -> HookResult {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        let began = Instant::now();
        // A timeout beyond the range of the clock is no limit.
        let deadline = began.checked_add(self.options.flush_timeout);
        let (ended, lost) = self.queue.close(deadline);
        self.flushed = began.elapsed();
        if ended {
            // The worker's code has finished, so the thread cannot panic.
            let _ = thread.join();
        }
        let failed = self.check();
        if lost == 0 && ended {
            return failed;
        }
        let timeout = self.options.flush_timeout.as_secs_f64();
        let lost = match lost {
            0 => format!("its worker did not stop within {timeout} s after the end"),
            lost => {
                format!("{lost} of {} were lost: not processed within {timeout} s after the end", self.sent)
            }
        };
        let before = failed.err().map(|error| format!("; before that, {error}")).unwrap_or_default();
        Err(format!("{lost} (`flush_timeout`){before}").into())
    }

    /// Statistics of the items sent so far.
    #[must_use]
    pub fn delivery_stats(&self) -> DeliveryStats {
        let state = self.queue.lock();
        DeliveryStats {
            sent: self.sent,
            delivered: state.delivered,
            failed: state.failed,
            dropped: state.dropped,
            lost: state.lost,
            waited: self.waited,
            flushed: self.flushed,
        }
    }
}

impl<T> Drop for Worker<T> {
    /// Failures can no longer be reported, but the items are still processed.
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            let deadline = Instant::now().checked_add(self.options.flush_timeout);
            if self.queue.close(deadline).0 {
                let _ = thread.join();
            }
        }
    }
}

/// Failures that the hook has not received yet: the first in full, the others counted.
#[derive(Debug)]
struct Failures {
    first: BoxError,
    more: u64,
}

impl Failures {
    fn into_error(self) -> BoxError {
        if self.more == 0 {
            return self.first;
        }
        backtraces::map_message(self.first, |text| format!("{text} (and {} more since)", self.more))
    }
}

#[cfg(test)]
pub(crate) mod tests;
