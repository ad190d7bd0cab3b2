//! Where in the loop a checkpoint was taken, so that a resumed run continues right there.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenterhook_core::{Event, Phase, Progress};

use crate::checkpoint::PendingSave;
use crate::loops::{BatchPlace, Loop, Window};
use crate::module::Module;

/// The points of the loop at which a checkpoint can be taken. A save that is requested elsewhere waits for the next of
/// them: from the middle of a batch a run cannot be resumed.
///
/// At a point that has the name of an event, all hooks have received the event, and their decisions are applied; module
/// and strategy have not received it yet. A resumed run takes the saves that were pending, and continues with the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResumePoint {
    /// `on_train_start`, which a resumed run delivers anew.
    TrainStart,
    /// `on_train_epoch_start`
    EpochStart,
    /// `on_train_batch_end`
    BatchEnd,
    /// A batch is done, and so is the validation after it if there was one.
    BatchDone,
    /// A batch is done, and the validation after it has not ended: it runs again from its start.
    ValidationDue,
    /// `on_validation_end`
    ValidationEnd,
    /// `on_train_epoch_end`; the module, which comes before the monitors here, has received it.
    EpochEnd,
    /// An epoch is done, and the next has not begun.
    BetweenEpochs,
    /// `on_train_end`
    TrainEnd,
}

impl ResumePoint {
    /// The point at which the saves of an event are taken.
    pub(crate) const fn at(event: Event) -> Option<ResumePoint> {
        Some(match event {
            Event::TrainStart => ResumePoint::TrainStart,
            Event::TrainEpochStart => ResumePoint::EpochStart,
            Event::TrainBatchEnd => ResumePoint::BatchEnd,
            Event::ValidationEnd => ResumePoint::ValidationEnd,
            Event::TrainEpochEnd => ResumePoint::EpochEnd,
            Event::TrainEnd => ResumePoint::TrainEnd,
            _ => return None,
        })
    }

    /// Whether an epoch is under way.
    pub(crate) fn is_within_epoch(self) -> bool {
        !matches!(self, ResumePoint::TrainStart | ResumePoint::BetweenEpochs | ResumePoint::TrainEnd)
    }

    /// The point that a run has reached by its progress alone.
    pub(crate) fn of(progress: &Progress) -> ResumePoint {
        match progress {
            _ if progress.total_batches == 0 => ResumePoint::TrainStart,
            _ if progress.epochs_done > progress.epoch => ResumePoint::EpochEnd,
            _ if progress.batches == 0 => ResumePoint::BetweenEpochs,
            _ => ResumePoint::BatchDone,
        }
    }
}

/// What the loops keep from one batch to the next.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Loops {
    batch: BatchPlace,
    window: Window,
    /// Who asked to stop, and why.
    stop: Option<(String, String)>,
    end_epoch: bool,
    validate: bool,
    /// The saves that are still to be taken at this point, or wait for the next one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) requested: Vec<PendingSave>,
    /// The hook whose weights the module has in the place of its own.
    pub(crate) swapped_by: Option<String>,
    /// How long the run had taken when training began, and when the last validation ended.
    train_began: Duration,
    last_validation: Duration,
}

impl<M: Module> Loop<M> {
    pub(crate) fn loops(&self) -> Loops {
        Loops {
            batch: self.state.training_batch(),
            window: self.state.window,
            stop: self.flow.stop.clone(),
            end_epoch: self.flow.end_epoch,
            validate: self.flow.validate,
            requested: self.checkpointer.pending.clone(),
            // For a validation they are swapped in anew.
            swapped_by: self.weights.by.clone().filter(|_| self.state.phase == Phase::Train),
            train_began: self.state.train_began,
            last_validation: self.state.last_validation,
        }
    }

    pub(crate) fn restore_loops(&mut self, loops: Loops) {
        (self.state.batch, self.state.train_batch) = (loops.batch, loops.batch);
        self.state.window = loops.window;
        // The trainer's own reasons are looked at anew.
        self.flow.stop = loops.stop.filter(|(by, _)| by != "trainer");
        (self.flow.end_epoch, self.flow.validate) = (loops.end_epoch, loops.validate);
        self.checkpointer.pending = loops.requested;
        (self.state.train_began, self.state.last_validation) = (loops.train_began, loops.last_validation);
    }
}
