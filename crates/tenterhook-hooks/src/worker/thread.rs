//! What happens on the thread of a worker.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tenterhook_core::{HookResult, backtraces};

use super::Work;
use super::line::{End, Line};

/// What a worker asks about its own end.
pub struct Desk(Arc<dyn Ending>);

/// The part of a queue that is not about what is in it.
trait Ending: Send + Sync {
    fn end(&self) -> End;
    /// Waits for so long, or until the end has come and its time is over.
    fn pause(&self, time: Duration);
}

impl<T: Send> Ending for Line<T> {
    fn end(&self) -> End {
        self.lock().end
    }

    fn pause(&self, time: Duration) {
        let Some(until) = Instant::now().checked_add(time) else { return };
        let mut state = self.lock();
        loop {
            let until = match state.end {
                End::By(Some(deadline)) => until.min(deadline),
                End::No | End::By(None) => until,
                End::Done => return,
            };
            if Instant::now() >= until {
                return;
            }
            state = self.wait_for_news(state, Some(until));
        }
    }
}

impl Desk {
    /// Waits, before something is tried again; not beyond the time that is left to end in. Whether to try again.
    #[must_use]
    pub fn pause(&self, time: Duration) -> bool {
        self.0.pause(time);
        !self.is_over()
    }

    /// How long the worker may still take, once it is to end; `None` while the end is not in sight.
    #[must_use]
    pub fn time_left(&self) -> Option<Duration> {
        match self.0.end() {
            End::By(Some(deadline)) => Some(deadline.saturating_duration_since(Instant::now())),
            End::No | End::By(None) => None,
            End::Done => Some(Duration::ZERO),
        }
    }

    /// The time to end in is over: whatever is under way should be given up.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.time_left() == Some(Duration::ZERO)
    }
}

/// What the thread is to do next.
enum Next<T> {
    Take(T),
    Tick,
    Flush,
    End,
}

/// Works until the end.
pub(super) fn run<W: Work>(line: &Arc<Line<W::Item>>, mut work: W) {
    let desk = Desk(Arc::clone(line) as Arc<dyn Ending>);
    let mut period = None;
    note(
        line,
        guarded(|| {
            period = work.period().filter(|period| !period.is_zero());
            Ok(())
        }),
    );
    let mut tick_at = period.and_then(|period| Instant::now().checked_add(period));
    // Something was taken since the last flush.
    let mut unflushed = false;
    loop {
        match next(line, tick_at, unflushed) {
            Next::Take(item) => {
                unflushed = true;
                let taken = guarded(|| work.take(item, &desk));
                let mut state = line.lock();
                state.busy = false;
                let counts = u64::from(!state.abandoned);
                match taken {
                    Ok(()) => state.delivered += counts,
                    Err(error) => {
                        state.failed += counts;
                        state.note_failure(error);
                    }
                }
                drop(state);
                line.went_on();
            }
            Next::Tick => {
                tick_at = period.and_then(|period| Instant::now().checked_add(period));
                note(line, guarded(|| work.tick(&desk)));
            }
            Next::Flush => {
                unflushed = false;
                note(line, guarded(|| work.flush(&desk)));
            }
            Next::End => break,
        }
    }
    // What it holds is closed before anybody goes on who waits for the end.
    note(
        line,
        guarded(|| {
            drop(work);
            Ok(())
        }),
    );
    line.lock().end = End::Done;
    line.went_on();
}

fn next<T>(line: &Line<T>, tick_at: Option<Instant>, unflushed: bool) -> Next<T> {
    let mut state = line.lock();
    loop {
        let ends = state.end != End::No;
        // Ticks are on time also while much is handed over.
        if !ends && tick_at.is_some_and(|tick_at| Instant::now() >= tick_at) {
            return Next::Tick;
        }
        if let Some(item) = state.items.pop_front() {
            state.busy = true;
            drop(state);
            line.went_on();
            return Next::Take(item);
        }
        if unflushed {
            return Next::Flush;
        }
        if ends {
            return Next::End;
        }
        state = line.wait_for_news(state, tick_at);
    }
}

fn note<T>(line: &Line<T>, done: HookResult) {
    if let Err(error) = done {
        line.lock().note_failure(error);
    }
}

/// A panic is a failure, too.
fn guarded(work: impl FnOnce() -> HookResult) -> HookResult {
    backtraces::catch_panic("its worker panicked: ", work)
}
