//! The queue between a hook and its worker.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tenterhook_core::BoxError;

use super::Failures;

#[derive(Debug)]
pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    /// Signals the worker that an item was sent or that it must end.
    work_available: Condvar,
    /// Signals the hook that there is room or that the worker has ended.
    progress: Condvar,
}

#[derive(Debug)]
pub(super) struct State<T> {
    pub(super) items: VecDeque<T>,
    pub(super) delivered: u64,
    pub(super) failed: u64,
    pub(super) dropped: u64,
    pub(super) lost: u64,
    pub(super) failures: Option<Failures>,
    /// Whether an item is being processed.
    pub(super) busy: bool,
    /// Whether `finish` has timed out. Items processed after that count as lost.
    pub(super) abandoned: bool,
    pub(super) shutdown: Shutdown,
}

/// The state of the worker's shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shutdown {
    /// Not requested.
    No,
    /// The remaining items are processed until this deadline; `None` is no limit.
    By(Option<Instant>),
    /// The worker has ended.
    Done,
}

impl<T> Default for Queue<T> {
    fn default() -> Queue<T> {
        let state = State {
            items: VecDeque::new(),
            delivered: 0,
            failed: 0,
            dropped: 0,
            lost: 0,
            failures: None,
            busy: false,
            abandoned: false,
            shutdown: Shutdown::No,
        };
        Queue { state: Mutex::new(state), work_available: Condvar::new(), progress: Condvar::new() }
    }
}

impl<T> Queue<T> {
    /// No code panics while it holds the lock, so a poisoned state is still consistent.
    pub(super) fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn wake_worker(&self) {
        self.work_available.notify_one();
    }

    pub(super) fn wait_for_room<'a>(
        &'a self,
        mut state: MutexGuard<'a, State<T>>,
        capacity: usize,
    ) -> MutexGuard<'a, State<T>> {
        while state.items.len() >= capacity {
            state = self.progress.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state
    }

    /// Called by the worker: waits for items or the shutdown, up to `until`.
    pub(super) fn wait_for_work<'a>(
        &'a self,
        state: MutexGuard<'a, State<T>>,
        until: Option<Instant>,
    ) -> MutexGuard<'a, State<T>> {
        wait(&self.work_available, state, until)
    }

    /// Called by the worker when there is room or it has ended.
    pub(super) fn notify_progress(&self) {
        self.progress.notify_all();
    }

    /// Ends the worker and waits for it. Returns whether it ended in time, and how many items were lost.
    pub(super) fn close(&self, deadline: Option<Instant>) -> (bool, u64) {
        let mut state = self.lock();
        state.shutdown = Shutdown::By(deadline);
        self.work_available.notify_all();
        while state.shutdown != Shutdown::Done && deadline.is_none_or(|deadline| Instant::now() < deadline) {
            state = wait(&self.progress, state, deadline);
        }
        let ended = state.shutdown == Shutdown::Done;
        if !ended {
            state.lost += state.items.len() as u64 + u64::from(state.busy);
            state.items.clear();
            state.abandoned = true;
        }
        (ended, state.lost)
    }
}

/// Waits on the condition, up to `until`; `None` is no limit.
fn wait<'a, S>(condition: &Condvar, state: MutexGuard<'a, S>, until: Option<Instant>) -> MutexGuard<'a, S> {
    let Some(until) = until else { return condition.wait(state).unwrap_or_else(PoisonError::into_inner) };
    let time = until.saturating_duration_since(Instant::now());
    if time == Duration::ZERO {
        return state;
    }
    condition.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0
}

impl<T> State<T> {
    pub(super) fn note_failure(&mut self, error: BoxError) {
        match &mut self.failures {
            Some(failures) => failures.more += 1,
            None => self.failures = Some(Failures { first: error, more: 0 }),
        }
    }
}
