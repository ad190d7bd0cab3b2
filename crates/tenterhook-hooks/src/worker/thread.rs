//! The loop of a worker thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tenterhook_core::{HookResult, backtraces};

use super::Work;
use super::queue::{Queue, Shutdown};

/// The context of [`Work`]: the time left, and pauses before retries.
pub struct WorkerContext(Arc<dyn ShutdownSignal>);

/// The part of a queue that does not depend on the type of its items.
trait ShutdownSignal: Send + Sync {
    fn shutdown(&self) -> Shutdown;
    /// Waits for this time, or until the deadline of a shutdown.
    fn pause(&self, time: Duration);
}

impl<T: Send> ShutdownSignal for Queue<T> {
    fn shutdown(&self) -> Shutdown {
        self.lock().shutdown
    }

    fn pause(&self, time: Duration) {
        let Some(until) = Instant::now().checked_add(time) else { return };
        let mut state = self.lock();
        loop {
            let until = match state.shutdown {
                Shutdown::By(Some(deadline)) => until.min(deadline),
                Shutdown::No | Shutdown::By(None) => until,
                Shutdown::Done => return,
            };
            if Instant::now() >= until {
                return;
            }
            state = self.wait_for_work(state, Some(until));
        }
    }
}

impl WorkerContext {
    /// Waits before a retry, up to the deadline of a shutdown. Returns whether there is time for the retry.
    #[must_use]
    pub fn pause(&self, time: Duration) -> bool {
        self.0.pause(time);
        !self.deadline_passed()
    }

    /// The time left until the deadline of the shutdown; `None` before the shutdown.
    #[must_use]
    pub fn time_left(&self) -> Option<Duration> {
        match self.0.shutdown() {
            Shutdown::By(Some(deadline)) => Some(deadline.saturating_duration_since(Instant::now())),
            Shutdown::No | Shutdown::By(None) => None,
            Shutdown::Done => Some(Duration::ZERO),
        }
    }

    /// Whether no time is left: work in progress should be cancelled.
    #[must_use]
    pub fn deadline_passed(&self) -> bool {
        self.time_left() == Some(Duration::ZERO)
    }
}

/// The next task of the worker.
enum Next<T> {
    Process(T),
    Tick,
    Flush,
    End,
}

/// Runs the worker until its shutdown.
pub(super) fn run<W: Work>(queue: &Arc<Queue<W::Item>>, mut work: W) {
    let cx = WorkerContext(Arc::clone(queue) as Arc<dyn ShutdownSignal>);
    note(queue, guarded(|| work.start(&cx)));
    let mut period = None;
    note(
        queue,
        guarded(|| {
            period = work.tick_interval().filter(|period| !period.is_zero());
            Ok(())
        }),
    );
    let mut tick_at = period.and_then(|period| Instant::now().checked_add(period));
    // An item was processed since the last flush.
    let mut unflushed = false;
    loop {
        match next(queue, tick_at, unflushed) {
            Next::Process(item) => {
                unflushed = true;
                let processed = guarded(|| work.process(item, &cx));
                let mut state = queue.lock();
                state.busy = false;
                let counts = u64::from(!state.abandoned);
                match processed {
                    Ok(()) => state.delivered += counts,
                    Err(error) => {
                        state.failed += counts;
                        state.note_failure(error);
                    }
                }
                drop(state);
                queue.notify_progress();
            }
            Next::Tick => {
                tick_at = period.and_then(|period| Instant::now().checked_add(period));
                note(queue, guarded(|| work.on_tick(&cx)));
            }
            Next::Flush => {
                unflushed = false;
                note(queue, guarded(|| work.flush(&cx)));
            }
            Next::End => break,
        }
    }
    // Files and connections are closed before `finish` returns.
    note(
        queue,
        guarded(|| {
            drop(work);
            Ok(())
        }),
    );
    queue.lock().shutdown = Shutdown::Done;
    queue.notify_progress();
}

fn next<T>(queue: &Queue<T>, tick_at: Option<Instant>, unflushed: bool) -> Next<T> {
    let mut state = queue.lock();
    loop {
        let ends = state.shutdown != Shutdown::No;
        // Ticks are on time even while many items wait.
        if !ends && tick_at.is_some_and(|tick_at| Instant::now() >= tick_at) {
            return Next::Tick;
        }
        if let Some(item) = state.items.pop_front() {
            state.busy = true;
            drop(state);
            queue.notify_progress();
            return Next::Process(item);
        }
        if unflushed {
            return Next::Flush;
        }
        if ends {
            return Next::End;
        }
        state = queue.wait_for_work(state, tick_at);
    }
}

fn note<T>(queue: &Queue<T>, done: HookResult) {
    if let Err(error) = done {
        queue.lock().note_failure(error);
    }
}

/// A panic counts as a failure.
fn guarded(work: impl FnOnce() -> HookResult) -> HookResult {
    backtraces::catch_panic("its worker panicked: ", work)
}
