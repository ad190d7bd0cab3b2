//! A thread of a hook's own, for everything that leaves the training thread.
//!
//! A hook hands over what it has copied, and goes on. The queue between the two is bounded: when it is full, the oldest
//! makes way or training waits, as `when_full` says. What fails on the thread comes back with the next thing that is
//! handed over, and so is a failure of the hook, under the hook's policy. At the end of a call the hook waits for the
//! rest, for so long at most, and says what was lost.
//!
//! ```
//! use std::time::Duration;
//! use tenterhook_core::{HookResult, Observer, DeliveryStats, StepEnd, hook};
//! use tenterhook_hooks::worker::{Desk, Queue, Work, Worker};
//!
//! /// On its own thread.
//! struct Sender;
//!
//! impl Work for Sender {
//!     type Item = f64;
//!     fn take(&mut self, loss: f64, _: &Desk) -> HookResult {
//!         // Send it somewhere; take as long as it takes.
//!         if loss.is_nan() { Err("there is no loss".into()) } else { Ok(()) }
//!     }
//! }
//!
//! #[derive(Default)]
//! struct Send {
//!     worker: Option<Worker<f64>>,
//! }
//!
//! #[hook]
//! impl Observer for Send {
//!     fn on_step_end(&mut self, cx: &StepEnd) -> HookResult {
//!         let worker = match &mut self.worker {
//!             Some(worker) => worker,
//!             None => self.worker.insert(Worker::start("send", Queue::default(), Sender)?),
//!         };
//!         worker.send(cx.loss.value())
//!     }
//!
//!     fn finish(&mut self) -> HookResult {
//!         self.worker.as_mut().map_or(Ok(()), Worker::finish)
//!     }
//!
//!     fn delivery_stats(&self) -> Option<DeliveryStats> {
//!         self.worker.as_ref().map(Worker::delivery_stats)
//!     }
//! }
//! ```

mod line;
pub(crate) mod outbox;
mod thread;

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook_core::backtraces;
use tenterhook_core::{BoxError, DeliveryStats, HookResult};

use line::Line;
pub use outbox::Outbox;
pub use thread::Desk;

/// What a hook's worker does, on a thread of its own.
pub trait Work: Send + 'static {
    /// What is handed over.
    type Item: Send + 'static;

    /// Deals with one of them. An error, or a panic, is a failure of the hook, and the next one follows.
    fn take(&mut self, item: Self::Item, desk: &Desk) -> HookResult;

    /// Nothing waits any more, or the worker is about to end: what was held back goes out now.
    fn flush(&mut self, _desk: &Desk) -> HookResult {
        Ok(())
    }

    /// How often [`tick`](Work::tick) is called, by the worker's own clock; `None` is never. Asked once.
    fn period(&self) -> Option<Duration> {
        None
    }

    /// It is time again, whether or not anything was handed over.
    fn tick(&mut self, _desk: &Desk) -> HookResult {
        Ok(())
    }
}

/// What happens when a worker's queue is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WhenFull {
    /// The oldest in the queue makes way, and is counted.
    #[default]
    DropOldest,
    /// Training waits until there is room.
    Block,
}

/// The queue before a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// How many may wait; 0 counts as 1.
    pub capacity: usize,
    /// What happens when they do.
    pub when_full: WhenFull,
    /// How long the end of a call waits for the rest.
    pub flush_timeout: Duration,
}

impl Default for Queue {
    fn default() -> Queue {
        Queue { capacity: 1000, when_full: WhenFull::DropOldest, flush_timeout: Duration::from_secs(10) }
    }
}

/// A hook's handle on its worker. Dropped, it [finishes](Worker::finish).
#[derive(Debug)]
pub struct Worker<T> {
    line: Arc<Line<T>>,
    thread: Option<JoinHandle<()>>,
    queue: Queue,
    sent: u64,
    waited: Duration,
    flushed: Duration,
}

impl<T: Send + 'static> Worker<T> {
    /// Starts a thread of this name for the work.
    pub fn start(name: &str, queue: Queue, work: impl Work<Item = T>) -> HookResult<Worker<T>> {
        let queue = Queue { capacity: queue.capacity.max(1), ..queue };
        let line = Arc::new(Line::default());
        let of_thread = Arc::clone(&line);
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
        Ok(Worker { line, thread: Some(thread), queue, sent: 0, waited: zero, flushed: zero })
    }

    /// Hands something over. It always gets into the queue; the error is what failed since it was last asked.
    pub fn send(&mut self, item: T) -> HookResult {
        self.sent += 1;
        let mut state = self.line.lock();
        if state.items.len() >= self.queue.capacity {
            match self.queue.when_full {
                WhenFull::DropOldest => {
                    state.items.pop_front();
                    state.dropped += 1;
                }
                WhenFull::Block => {
                    let began = Instant::now();
                    state = self.line.wait_for_room(state, self.queue.capacity);
                    self.waited += began.elapsed();
                }
            }
        }
        state.items.push_back(item);
        let failures = state.failures.take();
        drop(state);
        self.line.wake();
        failures.map_or(Ok(()), |failures| Err(failures.into_error()))
    }

    /// What failed since it was last asked.
    pub fn check(&mut self) -> HookResult {
        self.line.lock().failures.take().map_or(Ok(()), |failures| Err(failures.into_error()))
    }

    /// Waits until everything is dealt with, for as long as the queue's `flush_timeout` at most, and ends the thread. What
    /// is lost then is in the error, beside what failed. Does nothing the second time.
    pub fn finish(&mut self) -> HookResult {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        let began = Instant::now();
        // A time that is too long to be said is no limit.
        let deadline = began.checked_add(self.queue.flush_timeout);
        let (ended, lost) = self.line.close(deadline);
        self.flushed = began.elapsed();
        if ended {
            // It has nothing left to do, and cannot panic.
            let _ = thread.join();
        }
        let failed = self.check();
        if lost == 0 && ended {
            return failed;
        }
        let timeout = self.queue.flush_timeout.as_secs_f64();
        let lost = match lost {
            0 => format!("it was not done {timeout} s after the end"),
            lost => {
                format!("{lost} of {} were lost: they were not done {timeout} s after the end", self.sent)
            }
        };
        let before = failed.err().map(|error| format!("; before that, {error}")).unwrap_or_default();
        Err(format!("{lost} (`flush_timeout`){before}").into())
    }

    /// What became of what was handed over so far.
    #[must_use]
    pub fn delivery_stats(&self) -> DeliveryStats {
        let state = self.line.lock();
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
    /// Nobody is left to be told of failures, but what was handed over still arrives.
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            let deadline = Instant::now().checked_add(self.queue.flush_timeout);
            if self.line.close(deadline).0 {
                let _ = thread.join();
            }
        }
    }
}

/// What failed since the hook last heard of it: the first in full, the others counted.
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
