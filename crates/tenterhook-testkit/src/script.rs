//! Whole runs as scripts: the events of a fit in their order, each with the counters at that moment.

use std::time::Duration;

use tenterhook_core::{Event, Hook, Progress};

use crate::findings::Reply;
use crate::rig::Rig;

/// One event of a script, and what is given at it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cue {
    /// The event.
    pub event: Event,
    /// The counters.
    pub progress: Progress,
    /// The time since the run began.
    pub elapsed: Duration,
    /// The loss of the batch.
    pub loss: Option<f64>,
    /// The batch's index within its loop.
    pub batch: u64,
    /// Whether the batch is the last of its loop.
    pub is_last: bool,
}

/// A fit that goes by the book: how long it is, and what it finds.
///
/// ```
/// use tenterhook_core::{closure, Event, HookExt};
/// use tenterhook_testkit::{Fit, Rig};
///
/// let script = Fit::new(3, 4).accumulate(2).script();
/// let steps = script.iter().filter(|cue| cue.event == Event::StepEnd);
/// assert_eq!(steps.map(|cue| cue.progress.step).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
///
/// let hook = closure::on_step_end("seen", |cx| cx.log("seen", cx.step as f64));
/// let mut rig = Rig::new(hook.every("5 steps").expect("a cadence"));
/// rig.play(&script);
/// assert_eq!(rig.metrics().get("seen"), Some(5.0));
/// ```
pub struct Fit {
    epochs: u64,
    batches: u64,
    accumulate: u64,
    validation_batches: u64,
    batch_size: u64,
    batch_time: Duration,
    loss: Box<dyn Fn(u64) -> Option<f64>>,
    logs: bool,
}

impl Fit {
    /// So many epochs of so many batches, one step each, without validation.
    #[must_use]
    pub fn new(epochs: u64, batches: u64) -> Fit {
        Fit {
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

    /// A step after every so many batches, and after an epoch's last.
    #[must_use]
    pub fn accumulate(self, batches: u64) -> Fit {
        Fit { accumulate: batches, ..self }
    }

    /// A validation of so many batches at the end of every epoch.
    #[must_use]
    pub fn validate(self, batches: u64) -> Fit {
        Fit { validation_batches: batches, ..self }
    }

    /// Every batch takes this long; not said, a second.
    #[must_use]
    pub fn batch_time(self, batch_time: Duration) -> Fit {
        Fit { batch_time, ..self }
    }

    /// The loss of every batch, which are numbered from 1 through all epochs; `None` is a step without one.
    #[must_use]
    pub fn losses(self, loss: impl Fn(u64) -> Option<f64> + 'static) -> Fit {
        Fit { loss: Box::new(loss), ..self }
    }

    /// With `on_log` wherever a trainer writes a line: after batches, validations and epochs.
    #[must_use]
    pub fn logging(self) -> Fit {
        Fit { logs: true, ..self }
    }

    fn log(&self, writer: &mut Writer) {
        if self.logs {
            writer.all(&[Event::Log]);
        }
    }

    /// The script.
    #[must_use]
    pub fn script(&self) -> Vec<Cue> {
        let mut writer = Writer::default();
        writer.all(&[Event::Setup, Event::FitStart, Event::TrainStart]);
        for epoch in 0..self.epochs {
            writer.progress.epoch = epoch;
            writer.progress.batches = 0;
            writer.all(&[Event::TrainEpochStart]);
            for batch in 0..self.batches {
                self.batch(&mut writer, batch);
            }
            self.validation(&mut writer);
            writer.progress.epochs_done = epoch + 1;
            writer.all(&[Event::TrainEpochEnd]);
            self.log(&mut writer);
        }
        writer.progress.epoch = self.epochs;
        writer.all(&[Event::TrainEnd, Event::FitEnd, Event::Teardown]);
        writer.cues
    }

    fn batch(&self, writer: &mut Writer, batch: u64) {
        let progress = &mut writer.progress;
        progress.batches += 1;
        progress.total_batches += 1;
        progress.step_counted = false;
        let loss = (self.loss)(progress.total_batches);
        (writer.batch, writer.is_last, writer.loss) = (batch, batch + 1 == self.batches, loss);
        writer.all(&[Event::TrainBatchStart, Event::BeforeForward]);
        writer.elapsed += self.batch_time;
        writer.all(&[Event::AfterForward]);
        if batch.is_multiple_of(self.accumulate) {
            writer.all(&[Event::BeforeZeroGrad]);
        }
        let window_ends = (batch + 1).is_multiple_of(self.accumulate) || writer.is_last;
        if loss.is_some() {
            writer.all(&[Event::BeforeBackward, Event::AfterBackward]);
        }
        if loss.is_some() && window_ends {
            writer.all(&[Event::BeforeOptimizerStep, Event::GradientClip, Event::AfterOptimizerStep]);
            writer.progress.step += 1;
            writer.progress.step_counted = true;
        }
        writer.progress.samples += self.batch_size;
        if writer.progress.step_counted {
            writer.all(&[Event::StepEnd]);
        }
        writer.all(&[Event::TrainBatchEnd]);
        self.log(writer);
    }

    fn validation(&self, writer: &mut Writer) {
        if self.validation_batches == 0 {
            return;
        }
        writer.all(&[Event::ValidationStart, Event::ValidationEpochStart]);
        for batch in 0..self.validation_batches {
            (writer.batch, writer.is_last) = (batch, batch + 1 == self.validation_batches);
            writer.all(&[Event::ValidationBatchStart]);
            writer.elapsed += self.batch_time;
            writer.all(&[Event::ValidationBatchEnd]);
        }
        writer.all(&[Event::ValidationEpochEnd, Event::ValidationEnd]);
        self.log(writer);
    }
}

#[derive(Default)]
struct Writer {
    cues: Vec<Cue>,
    progress: Progress,
    elapsed: Duration,
    loss: Option<f64>,
    batch: u64,
    is_last: bool,
}

impl Writer {
    fn all(&mut self, events: &[Event]) {
        let Writer { progress, elapsed, loss, batch, is_last, .. } = *self;
        self.cues.extend(events.iter().map(|event| Cue {
            event: *event,
            progress,
            elapsed,
            loss,
            batch,
            is_last,
        }));
    }
}

/// Scripts.
impl<H: Hook> Rig<H> {
    /// Delivers one event of a script, with what is given at it.
    pub fn cue(&mut self, cue: &Cue) -> &Reply {
        self.progress(cue.progress).elapsed(cue.elapsed).batch(cue.batch).last_batch(cue.is_last);
        match cue.loss {
            Some(loss) => self.loss(loss),
            None => self.no_loss(),
        };
        self.deliver(cue.event)
    }

    /// Delivers a script, or a part of one: a test can look at the hook between two parts.
    pub fn play(&mut self, script: &[Cue]) -> &mut Rig<H> {
        for cue in script {
            self.cue(cue);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes in no fit that goes by the book, or is delivered by a method of its own.
    const APART: &[Event] = &[
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
        let script = Fit::new(1, 2).validate(1).logging().script();
        for event in Event::ALL {
            let of_fit =
                matches!(event.phase(), tenterhook_core::Phase::Train | tenterhook_core::Phase::Validate);
            let wanted = of_fit && !APART.contains(event);
            assert_eq!(script.iter().any(|cue| cue.event == *event), wanted, "{event}");
        }
    }
}
