//! The point of the loop at which a checkpoint was taken, and the state of the loop in a checkpoint.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenterhook_core::{Event, Origin, Phase, Progress};

use crate::checkpoint::PendingSave;
use crate::loops::{BatchPlace, FlowRequests, LoopState, WeightSwap, Window};

/// A point of the loop at which a checkpoint can be taken. A save that is requested elsewhere waits for the
/// next point, because a run cannot be resumed in the middle of a batch.
///
/// At a point with the name of an event, all hooks have received the event and their decisions are applied;
/// module and strategy have not received it yet. A resumed run takes the pending saves, and continues with
/// the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ResumePoint {
    /// `on_train_start`, which a resumed run delivers again.
    TrainStart,
    /// `on_train_epoch_start`
    EpochStart,
    /// `on_train_batch_end`
    BatchEnd,
    /// After a batch, and after the validation that follows it, if any.
    BatchDone,
    /// After a batch, before the end of the validation that follows it. The validation runs again from its
    /// start.
    ValidationDue,
    /// `on_validation_end`
    ValidationEnd,
    /// `on_train_epoch_end`. The module has received it, because it precedes the monitors in this event.
    EpochEnd,
    /// Between two epochs.
    BetweenEpochs,
    /// `on_train_end`
    TrainEnd,
}

impl ResumePoint {
    /// The point of an event at which saves are taken.
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

    /// Whether the point is within an epoch.
    pub(crate) fn is_within_epoch(self) -> bool {
        !matches!(self, ResumePoint::TrainStart | ResumePoint::BetweenEpochs | ResumePoint::TrainEnd)
    }

    /// The point that follows from the progress alone.
    pub(crate) fn of(progress: &Progress) -> ResumePoint {
        match progress {
            _ if progress.total_batches == 0 => ResumePoint::TrainStart,
            _ if progress.epochs_done > progress.epoch => ResumePoint::EpochEnd,
            _ if progress.batches == 0 => ResumePoint::BetweenEpochs,
            _ => ResumePoint::BatchDone,
        }
    }
}

/// The state of the loop in a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SavedLoopState {
    batch: BatchPlace,
    window: Window,
    /// The hook or module that requested a stop, and its reason.
    stop: Option<(String, String)>,
    end_epoch: bool,
    validate: bool,
    /// Pending saves of this point or the next.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) requested: Vec<PendingSave>,
    /// The hook whose weights are swapped in.
    pub(crate) swapped_by: Option<String>,
    /// The run's time when training began, and when the last validation ended.
    train_began: Duration,
    last_validation: Duration,
}

impl SavedLoopState {
    pub(crate) fn of(
        state: &LoopState,
        flow: &FlowRequests,
        requested: &[PendingSave],
        weights: &WeightSwap,
    ) -> SavedLoopState {
        SavedLoopState {
            batch: state.training_batch(),
            window: state.window,
            stop: flow.stop.clone(),
            end_epoch: flow.end_epoch,
            validate: flow.validate,
            requested: requested.to_vec(),
            // A repeated validation swaps the weights in again.
            swapped_by: weights.by.clone().filter(|_| state.phase == Phase::Train),
            train_began: state.train_began,
            last_validation: state.last_validation,
        }
    }

    /// Restores the state, and returns the pending saves.
    pub(crate) fn restore(self, state: &mut LoopState, flow: &mut FlowRequests) -> Vec<PendingSave> {
        (state.batch, state.train_batch) = (self.batch, self.batch);
        state.window = self.window;
        // The trainer checks its own reasons to stop again.
        flow.stop = self.stop.filter(|(by, _)| by != Origin::TRAINER);
        (flow.end_epoch, flow.validate) = (self.end_epoch, self.validate);
        (state.train_began, state.last_validation) = (self.train_began, self.last_validation);
        self.requested
    }
}
