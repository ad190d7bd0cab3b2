//! Scripts: the events of a whole fit in order, with the progress counters of each.

use std::time::Duration;

use tenterhook_core::{Event, Hook, Progress};

use crate::outcomes::Delivery;
use crate::rig::Rig;

/// One event of a script with the values of its context.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScriptEntry {
    /// The event.
    pub event: Event,
    /// The progress counters.
    pub progress: Progress,
    /// The time since the start of the run.
    pub elapsed: Duration,
    /// The loss of the batch.
    pub loss: Option<f64>,
    /// The batch's index within its loop.
    pub batch: u64,
    /// Whether the batch is the last of its loop.
    pub is_last: bool,
}

/// A regular fit: its length, and the values of its contexts.
///
/// ```
/// use tenterhook_core::{closure, Event, HookExt};
/// use tenterhook_testkit::{FitScript, Rig};
///
/// let script = FitScript::new(3, 4).accumulate(2).script();
/// let steps = script.iter().filter(|entry| entry.event == Event::StepEnd);
/// assert_eq!(steps.map(|entry| entry.progress.step).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
///
/// let hook = closure::on_step_end("seen", |cx| cx.log("seen", cx.step as f64));
/// let mut rig = Rig::new(hook.every("5 steps").expect("a cadence"));
/// rig.play(&script);
/// assert_eq!(rig.metrics().get("seen"), Some(5.0));
/// ```
pub struct FitScript {
    epochs: u64,
    batches: u64,
    accumulate: u64,
    validation_batches: u64,
    batch_size: u64,
    batch_time: Duration,
    loss: Box<dyn Fn(u64) -> Option<f64>>,
    logs: bool,
}

impl FitScript {
    /// A fit of `epochs` epochs of `batches` batches, one optimizer step each, without validation.
    #[must_use]
    pub fn new(epochs: u64, batches: u64) -> FitScript {
        FitScript {
            epochs,
            batches,
            accumulate: 1,
            validation_batches: 0,
            batch_size: 1,
            batch_time: Duration::from_secs(1),
            loss: Box::new(|_| Some(1.0)),
            logs: false,
        }
    }

    /// Accumulates gradients over `batches` batches; the last window of an epoch may be shorter.
    #[must_use]
    pub fn accumulate(self, batches: u64) -> FitScript {
        FitScript { accumulate: batches, ..self }
    }

    /// Validates over `batches` batches at the end of every epoch.
    #[must_use]
    pub fn validate(self, batches: u64) -> FitScript {
        FitScript { validation_batches: batches, ..self }
    }

    /// The duration of a batch. Default: one second.
    #[must_use]
    pub fn batch_time(self, batch_time: Duration) -> FitScript {
        FitScript { batch_time, ..self }
    }

    /// The loss of each batch as a function of its number, counted from 1 over all epochs; `None` for a step without a loss.
    #[must_use]
    pub fn losses(self, loss: impl Fn(u64) -> Option<f64> + 'static) -> FitScript {
        FitScript { loss: Box::new(loss), ..self }
    }

    /// Adds `on_log` after batches, validations and epochs, as a trainer does.
    #[must_use]
    pub fn logging(self) -> FitScript {
        FitScript { logs: true, ..self }
    }

    fn log(&self, writer: &mut ScriptWriter) {
        if self.logs {
            writer.push(&[Event::Log]);
        }
    }

    /// The events in order.
    #[must_use]
    pub fn script(&self) -> Vec<ScriptEntry> {
        let (progress, elapsed) = (Progress::default(), Duration::ZERO);
        let next =
            ScriptEntry { event: Event::Setup, progress, elapsed, loss: None, batch: 0, is_last: false };
        let mut writer = ScriptWriter { entries: Vec::new(), next };
        writer.push(&[Event::Setup, Event::FitStart, Event::TrainStart]);
        for epoch in 0..self.epochs {
            writer.next.progress.epoch = epoch;
            writer.next.progress.batches = 0;
            writer.push(&[Event::TrainEpochStart]);
            for batch in 0..self.batches {
                self.batch(&mut writer, batch);
            }
            self.validation(&mut writer);
            writer.next.progress.epochs_done = epoch + 1;
            writer.push(&[Event::TrainEpochEnd]);
            self.log(&mut writer);
        }
        writer.next.progress.epoch = self.epochs;
        writer.push(&[Event::TrainEnd, Event::FitEnd, Event::Teardown]);
        writer.entries
    }

    fn batch(&self, writer: &mut ScriptWriter, batch: u64) {
        let progress = &mut writer.next.progress;
        progress.batches += 1;
        progress.total_batches += 1;
        progress.step_counted = false;
        let loss = (self.loss)(progress.total_batches);
        (writer.next.batch, writer.next.is_last, writer.next.loss) = (batch, batch + 1 == self.batches, loss);
        writer.push(&[Event::TrainBatchStart, Event::BeforeForward]);
        writer.next.elapsed += self.batch_time;
        writer.push(&[Event::AfterForward]);
        if batch.is_multiple_of(self.accumulate) {
            writer.push(&[Event::BeforeZeroGrad]);
        }
        let window_ends = (batch + 1).is_multiple_of(self.accumulate) || writer.next.is_last;
        if loss.is_some() {
            writer.push(&[Event::BeforeBackward, Event::AfterBackward]);
        }
        if loss.is_some() && window_ends {
            writer.push(&[Event::BeforeOptimizerStep, Event::GradientClip, Event::AfterOptimizerStep]);
            writer.next.progress.step += 1;
            writer.next.progress.step_counted = true;
        }
        writer.next.progress.samples += self.batch_size;
        if writer.next.progress.step_counted {
            writer.push(&[Event::StepEnd]);
        }
        writer.push(&[Event::TrainBatchEnd]);
        self.log(writer);
    }

    fn validation(&self, writer: &mut ScriptWriter) {
        if self.validation_batches == 0 {
            return;
        }
        writer.push(&[Event::ValidationStart, Event::ValidationEpochStart]);
        for batch in 0..self.validation_batches {
            (writer.next.batch, writer.next.is_last) = (batch, batch + 1 == self.validation_batches);
            writer.push(&[Event::ValidationBatchStart]);
            writer.next.elapsed += self.batch_time;
            writer.push(&[Event::ValidationBatchEnd]);
        }
        writer.push(&[Event::ValidationEpochEnd, Event::ValidationEnd]);
        self.log(writer);
    }
}

struct ScriptWriter {
    entries: Vec<ScriptEntry>,
    /// The values of the next entry.
    next: ScriptEntry,
}

impl ScriptWriter {
    fn push(&mut self, events: &[Event]) {
        self.entries.extend(events.iter().map(|event| ScriptEntry { event: *event, ..self.next }));
    }
}

/// Scripts.
impl<H: Hook> Rig<H> {
    /// Sets the values of one entry of a script, and delivers its event.
    pub fn play_entry(&mut self, entry: &ScriptEntry) -> &Delivery {
        self.progress(entry.progress).elapsed(entry.elapsed).batch(entry.batch).last_batch(entry.is_last);
        match entry.loss {
            Some(loss) => self.loss(loss),
            None => self.no_loss(),
        };
        self.deliver(entry.event)
    }

    /// Plays a script or a part of one; a test can inspect the hook between parts.
    pub fn play(&mut self, script: &[ScriptEntry]) -> &mut Rig<H> {
        for entry in script {
            self.play_entry(entry);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Events that no script contains.
    const EXCLUDED: &[Event] = &[
        Event::SanityCheckStart,
        Event::SanityCheckEnd,
        Event::Activation,
        Event::SaveCheckpoint,
        Event::LoadCheckpoint,
        Event::CheckpointSaved,
        Event::CheckpointLoaded,
        Event::HookDisabled,
        Event::Notice,
        Event::Exception,
    ];

    #[test]
    fn a_script_has_every_event_of_a_fit() {
        let script = FitScript::new(1, 2).validate(1).logging().script();
        for event in Event::ALL {
            let of_fit =
                matches!(event.phase(), tenterhook_core::Phase::Train | tenterhook_core::Phase::Validate);
            let wanted = of_fit && !EXCLUDED.contains(event);
            assert_eq!(script.iter().any(|entry| entry.event == *event), wanted, "{event}");
        }
    }
}
