//! What a hook sends away: a worker that is started when there is something for it, once per call of the trainer.

use tenterhook_core::{HookResult, Moment, OptionError, Outside, Phase, Sent, TimeSpan};

use super::{Queue, WhenFull, Work, Worker};
use crate::support::checks;

/// The worker of a hook, while there is one.
#[derive(Debug)]
pub struct Outbox<T> {
    worker: Option<Worker<T>>,
    /// What became of the things that were sent in the last call.
    sent: Option<Sent>,
}

impl<T> Default for Outbox<T> {
    fn default() -> Outbox<T> {
        Outbox { worker: None, sent: None }
    }
}

impl<T: Send + 'static> Outbox<T> {
    /// Whether there is a worker.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.worker.is_some()
    }

    /// Starts the worker.
    pub fn open(&mut self, name: &str, queue: Queue, work: impl Work<Item = T>) -> HookResult {
        self.worker = Some(Worker::start(name, queue, work)?);
        Ok(())
    }

    /// Hands something to the worker, if there is one. The error is what failed since.
    pub fn pass(&mut self, item: T) -> HookResult {
        self.worker.as_mut().map_or(Ok(()), |worker| worker.send(item))
    }

    /// Hands something to the worker, and starts it if it is the first thing. The error is what failed since.
    pub fn send<W: Work<Item = T>>(
        &mut self,
        item: T,
        (name, queue): (&str, Queue),
        work: impl FnOnce() -> W,
    ) -> HookResult {
        if !self.is_open() {
            self.open(name, queue, work())?;
        }
        self.pass(item)
    }

    /// What failed since it was last asked.
    pub fn check(&mut self) -> HookResult {
        self.worker.as_mut().map_or(Ok(()), Worker::check)
    }

    /// Waits for the rest, and lets the worker go.
    pub fn finish(&mut self) -> HookResult {
        let Some(mut worker) = self.worker.take() else { return Ok(()) };
        let finished = worker.finish();
        self.sent = Some(worker.sent());
        finished
    }

    /// A call begins: what became of the last one's things has been told.
    pub fn begin(&mut self) {
        self.sent = None;
    }

    /// What became of what was sent in this call.
    #[must_use]
    pub fn sent(&self) -> Option<Sent> {
        self.worker.as_ref().map(Worker::sent).or(self.sent)
    }
}

/// The queue that options ask for.
pub(crate) fn queue(size: usize, when_full: WhenFull, flush_timeout: TimeSpan) -> Result<Queue, OptionError> {
    checks::one_or_more("queue_size", size as u64)?;
    checks::above_zero("flush_timeout", flush_timeout)?;
    Ok(Queue { capacity: size, when_full, flush_timeout: flush_timeout.0 })
}

/// The permission to send something away: there is none in a dry run or a sanity check.
pub(crate) fn outside(cx: &Moment<'_>) -> Option<Outside> {
    cx.run.outside().filter(|_| cx.phase != Phase::SanityCheck)
}

/// Both, where both failed.
pub(crate) fn both(first: HookResult, second: HookResult) -> HookResult {
    match (first, second) {
        (Err(first), Err(second)) => Err(format!("{first}; and then, {second}").into()),
        (first, second) => first.and(second),
    }
}
