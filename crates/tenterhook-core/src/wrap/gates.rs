//! The gates behind the wrappers.

use std::time::Duration;

use serde_json::{Value, json};

use super::Gate;
use crate::cadence::Cadence;
use crate::event::{Event, Events};
use crate::random::RandomStream;
use crate::run_context::RunContext;
use crate::spec::HookSpec;

/// A gate's decision for the current training batch. It is kept, because time passes within the batch.
#[derive(Clone, Copy, Debug, Default, serde::Serialize, serde::Deserialize)]
pub(super) struct BatchDecision(Option<(u64, bool)>);

impl BatchDecision {
    /// Reads it from the state of a gate.
    pub(super) fn from(state: &Value) -> BatchDecision {
        serde_json::from_value(state["batch"].clone()).unwrap_or_default()
    }

    pub(super) fn decide(&mut self, run_cx: &RunContext<'_>, decide: impl FnOnce() -> bool) -> bool {
        match self.0 {
            Some((batch, open)) if batch == run_cx.total_batches => open,
            _ => self.0.insert((run_cx.total_batches, decide())).1,
        }
    }
}

/// Passes events at an interval.
#[derive(Debug)]
pub struct Every {
    cadence: Cadence,
    /// When the gate last opened, for an interval of wall time.
    last: Duration,
    batch: BatchDecision,
}

impl Every {
    /// Opens at this interval.
    #[must_use]
    pub fn new(cadence: Cadence) -> Every {
        Every { cadence, last: Duration::ZERO, batch: BatchDecision::default() }
    }

    fn time_is_up(&mut self, interval: Duration, run_cx: &RunContext<'_>) -> bool {
        let (now, last) = (run_cx.elapsed(), &mut self.last);
        self.batch.decide(run_cx, || {
            let is_up = now.saturating_sub(*last) >= interval;
            if is_up {
                *last = now;
            }
            is_up
        })
    }
}

impl Gate for Every {
    fn open(&mut self, event: Event, run_cx: &RunContext<'_>) -> bool {
        let within_batch = event.belongs_to_train_batch(run_cx.phase, &run_cx.progress);
        match self.cadence {
            Cadence::Epochs(n) => (run_cx.epoch + 1).is_multiple_of(n),
            _ if !within_batch => true,
            Cadence::Steps(n) => run_cx.current_step().is_multiple_of(n),
            Cadence::Batches(n) => run_cx.total_batches.is_multiple_of(n),
            Cadence::Time(interval) => self.time_is_up(interval, run_cx),
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
        self.batch = BatchDecision::from(state);
    }
}

/// Passes the first training batch, and every event of an epoch outside of batches once.
#[derive(Debug, Default)]
pub struct Once {
    batch: Option<u64>,
    seen: Events,
}

impl Gate for Once {
    fn open(&mut self, event: Event, run_cx: &RunContext<'_>) -> bool {
        if event.belongs_to_train_batch(run_cx.phase, &run_cx.progress) {
            return *self.batch.get_or_insert(run_cx.total_batches) == run_cx.total_batches;
        }
        let first = !self.seen.contains(event);
        self.seen = self.seen.with(event);
        first
    }

    fn state(&self) -> Value {
        json!({ "batch": self.batch, "seen": self.seen.iter().collect::<Vec<_>>() })
    }

    fn load(&mut self, state: &Value) {
        self.batch = state["batch"].as_u64();
        let seen = state["seen"].as_array().into_iter().flatten();
        let events: Vec<_> = seen.filter_map(|name| Event::of_handler(name.as_str()?)).collect();
        self.seen = Events::of(&events);
    }
}

/// Passes events after a point of training.
#[derive(Debug)]
pub struct After {
    start: Cadence,
    batch: BatchDecision,
}

impl After {
    /// Opens at this point of training.
    #[must_use]
    pub fn new(start: Cadence) -> After {
        After { start, batch: BatchDecision::default() }
    }
}

impl Gate for After {
    fn open(&mut self, event: Event, run_cx: &RunContext<'_>) -> bool {
        let within_batch = event.belongs_to_train_batch(run_cx.phase, &run_cx.progress);
        match self.start {
            Cadence::Epochs(n) => run_cx.epoch >= n,
            Cadence::Steps(n) if within_batch => run_cx.current_step() > n,
            Cadence::Steps(n) => run_cx.step >= n,
            Cadence::Batches(n) if within_batch => run_cx.total_batches > n,
            Cadence::Batches(n) => run_cx.total_batches >= n,
            Cadence::Time(time) if within_batch => self.batch.decide(run_cx, || run_cx.elapsed() >= time),
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
        self.batch = BatchDecision::from(state);
    }
}

/// Passes events while a predicate is true.
pub struct When<P>(pub(super) P);

impl<P: FnMut(&RunContext<'_>) -> bool + Send + 'static> Gate for When<P> {
    fn open(&mut self, _: Event, run_cx: &RunContext<'_>) -> bool {
        (self.0)(run_cx)
    }
}

/// Passes a random fraction of all training batches.
#[derive(Debug)]
pub struct Sampled {
    fraction: f64,
}

impl Sampled {
    /// Opens for this fraction of all training batches, from 0 to 1.
    #[must_use]
    pub fn new(fraction: f64) -> Sampled {
        Sampled { fraction }
    }
}

impl Gate for Sampled {
    /// The choice is a function of the batch, so the gate needs no state.
    fn open(&mut self, event: Event, run_cx: &RunContext<'_>) -> bool {
        if !event.belongs_to_train_batch(run_cx.phase, &run_cx.progress) {
            return true;
        }
        let seed = run_cx.shared.streams.borrow().seed() ^ run_cx.total_batches.rotate_left(32);
        RandomStream::new(seed, "sampled", &run_cx.hook_name()).uniform() < self.fraction
    }

    fn passes_every_epoch(&self) -> bool {
        true
    }
}
