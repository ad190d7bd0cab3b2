//! Stall warnings: a thread reports loaders that keep the loop waiting.
//!
//! The loop only stores that it waits, and for which loader, without a lock or a clock read. So the watch
//! sees loaders that block the loop's own thread as well as those that load ahead.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use tenterhook_core::Progress;

use crate::data::Split;
use crate::journal::{Readers, RunNotice, SharedRecorder};
use crate::run::{JournalEntry, JournalEvent};

/// The loader that the loop waits for, shared with the watch.
#[derive(Debug, Default)]
pub(crate) struct WaitState {
    /// The number of starts and ends of waiting: odd while the loop waits.
    changes: AtomicU64,
    loader: AtomicUsize,
    evaluates: AtomicBool,
    step: AtomicU64,
    epoch: AtomicU64,
    /// The names of the training loaders and of the evaluation loaders.
    names: Mutex<[Vec<String>; 2]>,
    /// A stall was reported, but not its end.
    reported: AtomicBool,
    stalled: Mutex<Option<Stalled>>,
    /// Tells the watch to end.
    over: AtomicBool,
}

/// The stalled loader, the start of the stall, and the notices of it so far.
#[derive(Debug)]
struct Stalled {
    loader: String,
    since: Instant,
    warnings: Vec<RunNotice>,
}

/// A guard: the loop waits for a loader until it is dropped.
pub(crate) struct Waiting<'a>(&'a WaitState);

impl WaitState {
    /// Starts waiting for this loader.
    #[inline]
    pub(crate) fn begin(&self, loader: usize) -> Waiting<'_> {
        self.loader.store(loader, Ordering::Relaxed);
        self.count_change();
        Waiting(self)
    }

    /// Sets the position in the run, and whether it evaluates.
    #[inline]
    pub(crate) fn set_position(&self, progress: &Progress, evaluates: bool) {
        self.step.store(progress.step, Ordering::Relaxed);
        self.epoch.store(progress.epoch, Ordering::Relaxed);
        self.evaluates.store(evaluates, Ordering::Relaxed);
    }

    /// Only the loop's thread counts, so a load and a store suffice.
    #[inline]
    fn count_change(&self) {
        self.changes.store(self.changes.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    pub(crate) fn set_names(&self, split: Split, names: &[String]) {
        locked(&self.names)[usize::from(split != Split::Train)] = names.to_vec();
    }

    /// The name of the loader that the loop waits for, or last waited for.
    pub(crate) fn loader_name(&self) -> String {
        let names = &locked(&self.names)[usize::from(self.evaluates.load(Ordering::Relaxed))];
        names.get(self.loader.load(Ordering::Relaxed)).cloned().unwrap_or_default()
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.count_change();
    }
}

/// The thread that watches how long the loop waits for data.
pub(crate) struct StallWatch {
    pub(crate) wait: Arc<WaitState>,
    span: Duration,
    thread: Option<JoinHandle<()>>,
}

impl StallWatch {
    /// `span`: the time after which a stall is reported; zero disables the watch.
    pub(crate) fn new(span: Duration) -> StallWatch {
        StallWatch { wait: Arc::default(), span, thread: None }
    }

    /// Starts the thread, unless it runs already. If it cannot be started, the run continues without it.
    pub(crate) fn begin(&mut self, readers: &Readers, recorder: Option<&SharedRecorder>, elapsed: Duration) {
        if self.span.is_zero() || self.thread.is_some() {
            return;
        }
        let reporter = Reporter {
            readers: readers.clone(),
            recorder: recorder.cloned(),
            began: Instant::now(),
            elapsed,
        };
        let (wait, span) = (self.wait.clone(), self.span);
        let watching = Builder::new().name("stall-warning".into());
        self.thread = watching.spawn(move || watch(&wait, span, &reporter)).ok();
    }

    /// After waiting: the notices of a reported stall, and the notice of its end.
    #[inline]
    pub(crate) fn end_of_stall(&self) -> Option<(Vec<RunNotice>, RunNotice)> {
        if self.wait.reported.load(Ordering::Relaxed) { self.take_stall() } else { None }
    }

    #[cold]
    fn take_stall(&self) -> Option<(Vec<RunNotice>, RunNotice)> {
        self.wait.reported.store(false, Ordering::Relaxed);
        let Stalled { loader, since, warnings } = locked(&self.wait.stalled).take()?;
        Some((warnings, RunNotice::Stalled { loader, waited: since.elapsed(), over: true }))
    }
}

impl Drop for StallWatch {
    fn drop(&mut self) {
        self.wait.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic of a reader has been printed already.
            let _ = thread.join();
        }
    }
}

/// The readers and the recorder of stall warnings. The loop cannot report them itself while it waits.
struct Reporter {
    readers: Readers,
    recorder: Option<SharedRecorder>,
    began: Instant,
    /// The run's time when watching began.
    elapsed: Duration,
}

impl Reporter {
    fn tell(&self, state: &WaitState, notice: &RunNotice) {
        if let Some(recorder) = &self.recorder {
            let entry = JournalEntry {
                step: state.step.load(Ordering::Relaxed),
                epoch: state.epoch.load(Ordering::Relaxed),
                time: (self.elapsed + self.began.elapsed()).as_secs_f64(),
                what: JournalEvent::from(notice),
            };
            // The recorder counts lines that it cannot write.
            let _ = locked(recorder).event(entry);
        }
        self.readers.tell(notice);
    }
}

/// Reports a stall after `span`, and again whenever its duration has doubled.
fn watch(state: &WaitState, span: Duration, reporter: &Reporter) {
    let interval = (span / 8).clamp(Duration::from_millis(1), Duration::from_secs(5));
    let (mut seen, mut since, mut due) = (0, Instant::now(), span);
    while !state.over.load(Ordering::Acquire) {
        std::thread::park_timeout(interval);
        let changes = state.changes.load(Ordering::Acquire);
        if changes != seen {
            (seen, since, due) = (changes, Instant::now(), span);
            continue;
        }
        let waited = since.elapsed();
        if !changes.is_multiple_of(2) && waited >= due {
            due = due.saturating_mul(2);
            let loader = state.loader_name();
            let warning = || RunNotice::Stalled { loader: loader.clone(), waited, over: false };
            let mut stalled = locked(&state.stalled);
            let mut warnings = stalled.take().map_or_else(Vec::new, |stalled| stalled.warnings);
            warnings.push(warning());
            *stalled = Some(Stalled { loader: loader.clone(), since, warnings });
            drop(stalled);
            state.reported.store(true, Ordering::Relaxed);
            reporter.tell(state, &warning());
        }
    }
}

/// Locks a mutex, even a poisoned one: its value stays consistent.
fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
