//! The gates behind the wrappers, one small type each.

use std::time::Duration;

use serde_json::{Value, json};

use super::Gate;
use crate::cadence::Cadence;
use crate::event::{Event, Events};
use crate::progress::Progress;
use crate::random::Stream;
use crate::run_context::RunContext;
use crate::spec::HookSpec;

/// The position of an event in training: which batch of all it belongs to.
fn batch_of(progress: &Progress) -> u64 {
    progress.total_batches
}

/// What was decided for a batch. Time goes on within a batch; the decision must not change with it.
#[derive(Clone, Copy, Debug, Default, serde::Serialize, serde::Deserialize)]
pub(super) struct PerBatch(Option<(u64, bool)>);

impl PerBatch {
    /// As a gate's state holds it.
    pub(super) fn from(state: &Value) -> PerBatch {
        serde_json::from_value(state["batch"].clone()).unwrap_or_default()
    }

    pub(super) fn decide(&mut self, progress: &Progress, decide: impl FnOnce() -> bool) -> bool {
        let batch = batch_of(progress);
        match self.0 {
            Some((decided, open)) if decided == batch => open,
            _ => self.0.insert((batch, decide())).1,
        }
    }
}

/// Passes every so often.
#[derive(Debug)]
pub struct Every {
    cadence: Cadence,
    /// For wall time: when it last opened.
    last: Duration,
    batch: PerBatch,
}

impl Every {
    /// Opens this often.
    #[must_use]
    pub fn new(cadence: Cadence) -> Every {
        Every { cadence, last: Duration::ZERO, batch: PerBatch::default() }
    }

    fn time_has_come(&mut self, distance: Duration, run_cx: &RunContext<'_>) -> bool {
        let (now, last) = (run_cx.elapsed(), &mut self.last);
        self.batch.decide(&run_cx.progress, || {
            let come = now.saturating_sub(*last) >= distance;
            if come {
                *last = now;
            }
            come
        })
    }
}

impl Gate for Every {
    fn open(&mut self, event: Event, run_cx: &RunContext<'_>) -> bool {
        match self.cadence {
            Cadence::Steps(n) => {
                !event.belongs_to_train_batch(run_cx.phase, &run_cx.progress)
                    || run_cx.progress.current_step().is_multiple_of(n)
            }
            Cadence::Batches(n) => {
                !event.belongs_to_train_batch(run_cx.phase, &run_cx.progress)
                    || batch_of(&run_cx.progress).is_multiple_of(n)
            }
            Cadence::Epochs(n) => (run_cx.epoch + 1).is_multiple_of(n),
            Cadence::Time(distance) => {
                !event.belongs_to_train_batch(run_cx.phase, &run_cx.progress)
                    || self.time_has_come(distance, run_cx)
            }
        }
    }

    fn declare(&self, spec: HookSpec) -> HookSpec {
        spec.every_option("every", self.cadence)
    }

    fn passes_every_epoch(&self) -> bool {
        !matches!(self.cadence, Cadence::Epochs(n) if n > 1)
    }

    fn state(&self) -> Value {
        json!({ "last_ns": u64::try_from(self.last.as_nanos()).unwrap_or(u64::MAX), "batch": self.batch })
    }

    fn load(&mut self, state: &Value) {
        self.last = Duration::from_nanos(state["last_ns"].as_u64().unwrap_or(0));
        self.batch = PerBatch::from(state);
    }
}

/// Passes the first training batch, and every other event of the epochs once.
#[derive(Debug, Default)]
pub struct Once {
    batch: Option<u64>,
    seen: Events,
}

impl Gate for Once {
    fn open(&mut self, event: Event, run_cx: &RunContext<'_>) -> bool {
        if event.belongs_to_train_batch(run_cx.phase, &run_cx.progress) {
            let batch = batch_of(&run_cx.progress);
            return *self.batch.get_or_insert(batch) == batch;
        }
        let first = !self.seen.contains(event);
        self.seen = self.seen.with(event);
        first
    }

    fn state(&self) -> Value {
        json!({ "batch": self.batch, "seen": self.seen.iter().map(Event::handler).collect::<Vec<_>>() })
    }

    fn load(&mut self, state: &Value) {
        self.batch = state["batch"].as_u64();
        let seen = state["seen"].as_array().into_iter().flatten();
        let events: Vec<_> = seen.filter_map(|name| Event::of_handler(name.as_str()?)).collect();
        self.seen = Events::of(&events);
    }
}

/// Passes from some point on.
#[derive(Debug)]
pub struct After {
    start: Cadence,
    batch: PerBatch,
}

impl After {
    /// Opens once so much of training has passed.
    #[must_use]
    pub fn new(start: Cadence) -> After {
        After { start, batch: PerBatch::default() }
    }
}

impl Gate for After {
    fn open(&mut self, event: Event, run_cx: &RunContext<'_>) -> bool {
        match self.start {
            Cadence::Steps(n) if event.belongs_to_train_batch(run_cx.phase, &run_cx.progress) => {
                run_cx.progress.current_step() > n
            }
            Cadence::Steps(n) => run_cx.step >= n,
            Cadence::Batches(n) if event.belongs_to_train_batch(run_cx.phase, &run_cx.progress) => {
                batch_of(&run_cx.progress) > n
            }
            Cadence::Batches(n) => batch_of(&run_cx.progress) >= n,
            Cadence::Epochs(n) => run_cx.epoch >= n,
            Cadence::Time(time) if event.belongs_to_train_batch(run_cx.phase, &run_cx.progress) => {
                self.batch.decide(&run_cx.progress, || run_cx.elapsed() >= time)
            }
            Cadence::Time(time) => run_cx.elapsed() >= time,
        }
    }

    fn declare(&self, spec: HookSpec) -> HookSpec {
        spec.after_option("after", self.start)
    }

    fn state(&self) -> Value {
        json!({ "batch": self.batch })
    }

    fn load(&mut self, state: &Value) {
        self.batch = PerBatch::from(state);
    }
}

/// Passes when a predicate says so.
pub struct When<P>(pub(super) P);

impl<P: FnMut(&RunContext<'_>) -> bool + Send + 'static> Gate for When<P> {
    fn open(&mut self, _: Event, run_cx: &RunContext<'_>) -> bool {
        (self.0)(run_cx)
    }
}

/// Passes a share of all training batches.
#[derive(Debug)]
pub struct Sampled {
    share: f64,
}

impl Sampled {
    /// Opens for this share of all training batches: 0 is none, 1 is all.
    #[must_use]
    pub fn new(share: f64) -> Sampled {
        Sampled { share }
    }
}

impl Gate for Sampled {
    /// The choice is a function of the batch, so there is nothing to remember and nothing to restore.
    fn open(&mut self, event: Event, run_cx: &RunContext<'_>) -> bool {
        if !event.belongs_to_train_batch(run_cx.phase, &run_cx.progress) {
            return true;
        }
        let seed = run_cx.shared.streams.borrow().seed() ^ batch_of(&run_cx.progress).rotate_left(32);
        let mut stream = RandomStream::new(seed, "sampled", &run_cx.hook_name());
        stream.uniform() < self.share
    }

    fn passes_every_epoch(&self) -> bool {
        true
    }
}
