//! Where in the loop a checkpoint was taken, so that a resumed run goes on right there.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenterhook_core::{Event, Phase, Progress};

use super::roots::Save;
use crate::module::Module;
use crate::running::{BatchPlace, Running};

/// The places of the loop in which a checkpoint can be taken. What a hook asks for elsewhere waits for the next
/// of them: in the middle of a batch there is nothing to go on from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// `on_train_start`, which a resumed run delivers anew.
    TrainStart,
    /// `on_train_epoch_start`
    EpochStart,
    /// `on_train_batch_end`
    BatchEnd,
    /// A batch is done, and so is the validation after it if there was one.
    BatchDone,
    /// A batch is done, and the validation after it has not ended: it runs again whole.
    ValidationDue,
    /// `on_validation_end`
    ValidationEnd,
    /// `on_train_epoch_end`
    EpochEnd,
    /// An epoch is done, and the next has not begun.
    BetweenEpochs,
    /// `on_train_end`
    TrainEnd,
}

impl Place {
    /// The place of an event, where a checkpoint can be taken within it.
    pub(crate) fn of(event: Event) -> Option<Place> {
        Some(match event {
            Event::TrainStart => Place::TrainStart,
            Event::TrainEpochStart => Place::EpochStart,
            Event::TrainBatchEnd => Place::BatchEnd,
            Event::ValidationEnd => Place::ValidationEnd,
            Event::TrainEpochEnd => Place::EpochEnd,
            Event::TrainEnd => Place::TrainEnd,
            _ => return None,
        })
    }

    /// Whether the place is within an event, whose delivery goes on.
    pub(crate) fn has_event(self) -> bool {
        !matches!(self, Place::TrainStart | Place::BatchDone | Place::ValidationDue | Place::BetweenEpochs)
    }

    /// Whether an epoch is under way.
    pub(crate) fn is_within_epoch(self) -> bool {
        !matches!(self, Place::TrainStart | Place::BetweenEpochs | Place::TrainEnd)
    }
}

/// A place, and how far its event had come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Position {
    /// The place.
    pub place: Place,
    /// The hook in whose turn the checkpoint was taken: those behind it have not received the event yet. `None`:
    /// all hooks have, and the module has not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// What that hook wanted saved besides, and was not yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub saves: Vec<Save>,
}

impl Position {
    /// A place whose event all hooks have received.
    pub(crate) fn at(place: Place) -> Position {
        Position { place, by: None, saves: Vec::new() }
    }

    /// Where a run stands by its progress alone: a checkpoint of format 1 did not say more.
    pub(crate) fn guessed(progress: &Progress) -> Position {
        Position::at(match progress {
            _ if progress.total_batches == 0 => Place::TrainStart,
            _ if progress.epochs_done > progress.epoch => Place::EpochEnd,
            _ if progress.batches == 0 => Place::BetweenEpochs,
            _ => Place::BatchDone,
        })
    }
}

/// What the loops keep from one batch to the next.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Loops {
    batch: BatchPlace,
    /// The gradients of the accumulation window have been cleared, or are not to be used.
    window_open: bool,
    window_skipped: bool,
    /// Who asked to stop, and why.
    stop: Option<(String, String)>,
    end_epoch: bool,
    validate: bool,
    /// The saves that wait for the hooks to have received the event at hand.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) asked: Vec<Save>,
    /// The hook whose weights the module has in the place of its own.
    pub(super) swapped_by: Option<String>,
    /// How long the run had taken when training began, and when the last validation ended.
    train_began: Duration,
    last_validation: Duration,
}

impl<M: Module> Running<M> {
    /// The training batch, also while a validation has its own.
    pub(super) fn training_batch(&self) -> BatchPlace {
        if self.phase == Phase::Train { self.batch } else { self.train_batch }
    }

    pub(crate) fn loops(&self) -> Loops {
        Loops {
            batch: self.training_batch(),
            window_open: self.window_open,
            window_skipped: self.window_skipped,
            stop: self.signals.stop.clone(),
            end_epoch: self.signals.end_epoch,
            validate: self.signals.validate,
            asked: self.saves.asked.clone(),
            // For a validation they are swapped in anew.
            swapped_by: self.swapped_by.clone().filter(|_| self.phase == Phase::Train),
            train_began: self.train_began,
            last_validation: self.last_validation,
        }
    }

    pub(crate) fn restore_loops(&mut self, loops: Loops) {
        (self.batch, self.train_batch) = (loops.batch, loops.batch);
        (self.window_open, self.window_skipped) = (loops.window_open, loops.window_skipped);
        // The trainer's own reasons are looked at anew.
        self.signals.stop = loops.stop.filter(|(by, _)| by != "trainer");
        (self.signals.end_epoch, self.signals.validate) = (loops.end_epoch, loops.validate);
        self.saves.held = loops.asked;
        (self.train_began, self.last_validation) = (loops.train_began, loops.last_validation);
    }
}
