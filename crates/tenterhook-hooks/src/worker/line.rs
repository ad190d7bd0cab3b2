//! The queue between a hook and its worker, and what each tells the other.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tenterhook_core::BoxError;

use super::Failures;

#[derive(Debug)]
pub(super) struct Line<T> {
    state: Mutex<State<T>>,
    /// Something was handed over, or it is to end.
    news: Condvar,
    /// There is room again, or the thread has ended.
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
    /// One is being dealt with.
    pub(super) busy: bool,
    /// Nobody waits any more: what is still done counts as lost.
    pub(super) abandoned: bool,
    pub(super) end: End,
}

/// How far the end has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It is not in sight.
    No,
    /// What waits is to be dealt with until then; `None` is without a limit.
    By(Option<Instant>),
    /// The thread has done everything.
    Done,
}

impl<T> Default for Line<T> {
    fn default() -> Line<T> {
        let state = State {
            items: VecDeque::new(),
            delivered: 0,
            failed: 0,
            dropped: 0,
            lost: 0,
            failures: None,
            busy: false,
            abandoned: false,
            end: End::No,
        };
        Line { state: Mutex::new(state), news: Condvar::new(), progress: Condvar::new() }
    }
}

impl<T> Line<T> {
    /// Nobody panics while holding it, so it is whole whatever happened.
    pub(super) fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn wake(&self) {
        self.news.notify_one();
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

    /// For the thread: waits for news, until then at most.
    pub(super) fn wait_for_news<'a>(
        &'a self,
        state: MutexGuard<'a, State<T>>,
        until: Option<Instant>,
    ) -> MutexGuard<'a, State<T>> {
        wait(&self.news, state, until)
    }

    /// For the thread: there is room, or everything is done.
    pub(super) fn went_on(&self) {
        self.progress.notify_all();
    }

    /// Lets the thread end, and waits until it has. Whether it did, and how many were lost because it did not.
    pub(super) fn close(&self, deadline: Option<Instant>) -> (bool, u64) {
        let mut state = self.lock();
        state.end = End::By(deadline);
        self.news.notify_all();
        while state.end != End::Done && deadline.is_none_or(|deadline| Instant::now() < deadline) {
            state = wait(&self.progress, state, deadline);
        }
        let ended = state.end == End::Done;
        if !ended {
            state.lost += state.items.len() as u64 + u64::from(state.busy);
            state.items.clear();
            state.abandoned = true;
        }
        (ended, state.lost)
    }
}

/// Waits on the condition, until then at most; `None` is without a limit.
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
