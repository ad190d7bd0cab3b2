//! Loaders that keep the loop waiting: told by name while it waits, by a thread that has nothing else to do.
//!
//! The loop only notes that it waits, and for whom: a few stores into memory, no lock and no clock. So loaders
//! that block the loop's own thread are seen as well as those that load ahead.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use tenterhook_core::Progress;

use crate::data::Split;
use crate::journal::{Readers, RunNotice, SharedRecorder};
use crate::run::{JournalEntry, JournalEvent};

/// What the loop and its watch share.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    /// How often waiting began or ended: odd while the loop waits.
    turns: AtomicU64,
    loader: AtomicUsize,
    evaluates: AtomicBool,
    step: AtomicU64,
    epoch: AtomicU64,
    /// The names of the training loaders, and of those of the evaluation.
    names: Mutex<[Vec<String>; 2]>,
    /// Somebody was told that the loop waits, and is to be told that it goes on.
    told: AtomicBool,
    stalled: Mutex<Option<Stalled>>,
    over: AtomicBool,
}

/// Who keeps the loop waiting, and since when.
#[derive(Clone, Debug)]
struct Stalled {
    loader: String,
    since: Instant,
}

/// While it lives, the loop waits for a loader.
pub(crate) struct Waiting<'a>(&'a Desk);

impl Desk {
    /// Where training stands, and that the loop waits for a batch of this loader.
    #[inline]
    pub(crate) fn waits_for(&self, loader: usize) -> Waiting<'_> {
        self.loader.store(loader, Ordering::Relaxed);
        self.turn();
        Waiting(self)
    }

    /// Notes where the run stands.
    #[inline]
    pub(crate) fn at(&self, progress: &Progress, evaluates: bool) {
        self.step.store(progress.step, Ordering::Relaxed);
        self.epoch.store(progress.epoch, Ordering::Relaxed);
        self.evaluates.store(evaluates, Ordering::Relaxed);
    }

    /// Only the loop counts, so nothing is lost between reading and writing.
    #[inline]
    fn turn(&self) {
        self.turns.store(self.turns.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    pub(crate) fn name(&self, split: Split, names: &[String]) {
        locked(&self.names)[usize::from(split != Split::Train)] = names.to_vec();
    }

    /// The name of the loader that the loop waits for, or waited for last.
    pub(crate) fn waited_for(&self) -> String {
        let names = &locked(&self.names)[usize::from(self.evaluates.load(Ordering::Relaxed))];
        names.get(self.loader.load(Ordering::Relaxed)).cloned().unwrap_or_default()
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.turn();
    }
}

/// Watches how long the loop waits for data, once that begins.
pub(crate) struct Watch {
    pub(crate) desk: Arc<Desk>,
    span: Duration,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// `span`: how long a batch may take without a word; at zero nobody watches.
    pub(crate) fn new(span: Duration) -> Watch {
        Watch { desk: Arc::default(), span, thread: None }
    }

    /// Begins to watch, unless somebody does already. A run that cannot have another thread goes on unwatched.
    pub(crate) fn begin(&mut self, readers: &Readers, recorder: Option<&SharedRecorder>, elapsed: Duration) {
        if self.span.is_zero() || self.thread.is_some() {
            return;
        }
        let outlet =
            Outlet { readers: readers.clone(), recorder: recorder.cloned(), began: Instant::now(), elapsed };
        let (desk, span) = (self.desk.clone(), self.span);
        let watching = Builder::new().name("stall-warning".into());
        self.thread = watching.spawn(move || watch(&desk, span, &outlet)).ok();
    }

    /// The loop goes on: what to tell of the waiting, if that was told of.
    #[inline]
    pub(crate) fn goes_on(&self) -> Option<RunNotice> {
        if self.desk.told.load(Ordering::Relaxed) { self.went_on() } else { None }
    }

    #[cold]
    fn went_on(&self) -> Option<RunNotice> {
        self.desk.told.store(false, Ordering::Relaxed);
        let Stalled { loader, since } = locked(&self.desk.stalled).take()?;
        Some(RunNotice::Stalled { loader, waited: since.elapsed(), over: true })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.desk.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // If telling panicked, it was somebody else's panic, and it has been printed.
            let _ = thread.join();
        }
    }
}

/// Where the watch tells what it sees; the loop cannot, it waits.
struct Outlet {
    readers: Readers,
    recorder: Option<SharedRecorder>,
    began: Instant,
    /// The run's time when watching began.
    elapsed: Duration,
}

impl Outlet {
    fn tell(&self, desk: &Desk, notice: &RunNotice) {
        if let Some(recorder) = &self.recorder {
            let entry = JournalEntry {
                step: desk.step.load(Ordering::Relaxed),
                epoch: desk.epoch.load(Ordering::Relaxed),
                time: (self.elapsed + self.began.elapsed()).as_secs_f64(),
                what: JournalEvent::from(notice),
            };
            // The recorder counts what it loses, and people are told of the stall all the same.
            let _ = locked(recorder).event(entry);
        }
        self.readers.tell(notice);
    }
}

/// Tells of a wait when it has taken this long, and again whenever it has doubled.
fn watch(desk: &Desk, span: Duration, outlet: &Outlet) {
    let glance = (span / 8).clamp(Duration::from_millis(1), Duration::from_secs(5));
    let (mut seen, mut since, mut due) = (0, Instant::now(), span);
    while !desk.over.load(Ordering::Acquire) {
        std::thread::park_timeout(glance);
        let turns = desk.turns.load(Ordering::Acquire);
        if turns != seen {
            (seen, since, due) = (turns, Instant::now(), span);
            continue;
        }
        let waited = since.elapsed();
        if !turns.is_multiple_of(2) && waited >= due {
            due = due.saturating_mul(2);
            let loader = desk.waited_for();
            *locked(&desk.stalled) = Some(Stalled { loader: loader.clone(), since });
            desk.told.store(true, Ordering::Relaxed);
            outlet.tell(desk, &RunNotice::Stalled { loader, waited, over: false });
        }
    }
}

/// What is locked here is whole even if somebody panicked with it.
fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
